"""Where the thresholds of a run's rubric come from: its own opening, or an earlier run; they are kept as an event."""

from collections import Counter
from collections.abc import Mapping, Sequence

from adaptive_eval.config.prepare import setup_of
from adaptive_eval.errors import ConfigError, GraderError
from adaptive_eval.graders.frozen import FactColumns, FrozenThresholds, fit_frozen
from adaptive_eval.graders.rubric import EarlierThresholds, Rubric, RubricConfig, open_rubric
from adaptive_eval.scheduler.opening_fit import HeldTrial, frozen_event
from adaptive_eval.store import Event, RunReader, ThresholdsFrozen, events_of_kind
from adaptive_eval.store.whereabouts import is_run

FIRST_ROUND = 0


def kept_thresholds(section: RubricConfig, events: Sequence[Event]) -> ThresholdsFrozen | None:
    """What a run has frozen for this rubric."""
    told = section.model_dump(mode="json", exclude_defaults=True)
    kept = [event for event in events_of_kind(events, ThresholdsFrozen) if event.section == told]
    return kept[-1] if kept else None


def frozen_of(event: ThresholdsFrozen | None) -> FrozenThresholds:
    """What was fitted; nothing, where nothing was."""
    return FrozenThresholds() if event is None else FrozenThresholds(event.values, event.rest_on, event.medians)


def kept_rubric(section: RubricConfig, events: Sequence[Event]) -> Rubric:
    """The rubric of a stored run, with what it has frozen."""
    return open_rubric(section, frozen_of(kept_thresholds(section, events)))


def thresholds_from_run(section: RubricConfig) -> ThresholdsFrozen | None:
    """What is taken from the run that the rubric names; None where it names none, or needs nothing of it.

    What that run has frozen itself is taken as it is; the rest is fitted on its opening.
    """
    if not isinstance(section.fit, EarlierThresholds) or not open_rubric(section).lacks:
        return None
    directory = section.fit.run
    if not is_run(directory):
        raise ConfigError(f"rubric.fit.run: {directory} holds no run; name the directory of one")
    with RunReader.intact(directory) as reader:
        setup, events = setup_of(reader.header()), reader.events()
        had = setup.config.rubric
        own = kept_thresholds(had, events)
        known = {**frozen_of(own).values, **had.thresholds}
        wanted = {name: rule for name, rule in section.unfitted.items() if name not in known}
        medians = frozen_of(own).medians
        if not wanted and (medians or not section.looks_at_lengths):
            taken = {name: known[name] for name in section.unfitted}
            rest_on = {name: one for name, one in frozen_of(own).rest_on.items() if name in taken}
            frozen = FrozenThresholds(taken, rest_on, medians if section.looks_at_lengths else {})
            return frozen_event(section, frozen, Counter({} if own is None else own.models), setup.config.name)
        held = [HeldTrial.of(record) for record in reader.trials() if record.round == FIRST_ROUND]
    held = [one for one in held if one.signals or one.outcome.category is not None]
    columns, questions = FactColumns([one.facts for one in held]), [one.outcome.question for one in held]
    try:
        fitted = fit_frozen(columns, questions, section.unfitted, with_medians=section.looks_at_lengths)
    except GraderError as error:
        raise ConfigError(f"rubric.fit.run: {directory}: {error}; name another run, or give the number") from error
    models = Counter(one.outcome.model for one in held)
    return frozen_event(section, _preferring(fitted, known), models, setup.config.name)


def _preferring(fitted: FrozenThresholds, known: Mapping[str, float]) -> FrozenThresholds:
    """What the earlier run itself has compared with stays as it is."""
    values = {name: known.get(name, value) for name, value in fitted.values.items()}
    return FrozenThresholds(values, fitted.rest_on, fitted.medians)


def frozen_words(event: ThresholdsFrozen) -> str:
    """Which thresholds there are, and on how many trials they rest."""
    each = [
        f"{name} {value:.4g} ({event.rest_on[name]:,} trials)" if name in event.rest_on else f"{name} {value:.4g}"
        for name, value in event.values.items()
    ]
    trials = sum(event.models.values())
    if event.medians:
        each.append(f"the median length of the answers to each of {len(event.medians)} questions ({trials:,} trials)")
    where = "this run's opening" if event.run is None else f"the run {event.run}"
    of = f"{len(event.models)} {'model' if len(event.models) == 1 else 'models'}"
    basis = f"{where}, all answers of {of} before the first look" if event.run is None else where
    return f"The rubric's thresholds were fitted once, on {basis}, and then frozen: {'; '.join(each)}."
