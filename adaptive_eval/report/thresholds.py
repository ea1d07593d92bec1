"""Thresholds that a rubric takes from an earlier run."""

from collections import Counter
from collections.abc import Iterable, Sequence

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.config.prepare import stored_setup
from adaptive_eval.graders.frozen import Facts, FrozenThresholds, fact_numbers, fit_frozen
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import answer_facts
from adaptive_eval.notes import Event, ThresholdsFrozen, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.store.database import has_tables

FIRST_ROUND = 0


def thresholds_from_run(section: RubricConfig, questions: Iterable[str] = ()) -> ThresholdsFrozen | None:
    """Thresholds from the run that the rubric names; None if it names none, or needs none.

    Raises `ConfigError` if `length_ratio` would be unknown for any of the `questions`.
    """
    event = _thresholds_of_source(section)
    unknown = [name for name in questions if name not in event.medians] if event and section.looks_at_lengths else []
    if unknown:
        rule = f"{section.source_run} has no lengths of answers to {first_few(unknown, 3)}, which length_ratio needs"
        raise ConfigError(f"rubric.thresholds: {rule}; name a run that has asked them, and knows their tokens")
    return event


def _thresholds_of_source(section: RubricConfig) -> ThresholdsFrozen | None:
    """Thresholds from the run that the rubric names.

    Those that the run has itself are taken unchanged; others are fitted on its first round, which must be complete:
    short answers come first.
    """
    directory = section.source_run
    if directory is None or not open_rubric(section).lacks:
        return None
    if not has_tables(directory):
        raise ConfigError(f"rubric.thresholds: {directory} has no run; name a run directory under `from`")
    with RunReader.intact(directory) as reader:
        setup, events = stored_setup(reader.header()), reader.events()
        source_rubric = setup.config.rubric
        event = kept_thresholds(source_rubric, events)
        own = thresholds_from_event(event)
        available = {**own.values, **source_rubric.numbers}
        missing = {name: rule for name, rule in section.unfitted.items() if name not in available}
        if not missing and (own.medians or not section.looks_at_lengths):
            selected = {name: available[name] for name in section.unfitted}
            rest_on = {name: number for name, number in own.rest_on.items() if name in selected}
            frozen = FrozenThresholds(selected, rest_on, own.medians if section.looks_at_lengths else {})
            return frozen_event(section, frozen, Counter({} if event is None else event.models), setup.config.name)
        if not reader.look_count():
            raise ConfigError(f"rubric.thresholds: {directory} has no complete first round; resume that run first")
        models, questions, facts = Counter[str](), list[str](), list[Facts]()
        for record in reader.trials():
            if record.round == FIRST_ROUND and (record.signals or record.category is not None):
                models[record.model] += 1
                questions.append(record.question)
                facts.append({**answer_facts(record.answer), **record.signals})
    try:
        fitted = fit_frozen(fact_numbers(facts), questions, section.unfitted, with_medians=section.looks_at_lengths)
    except GraderError as error:
        raise ConfigError(f"rubric.thresholds: {directory}: {error}; name another run, or give the number") from error
    values = {name: available.get(name, value) for name, value in fitted.values.items()}  # frozen ones stay
    frozen = FrozenThresholds(values, fitted.rest_on, fitted.medians)
    return frozen_event(section, frozen, models, setup.config.name)


def frozen_sentence(event: ThresholdsFrozen) -> str:
    """Describe frozen thresholds and the trials that they were fitted on."""
    parts = [
        f"{name} {plain_number(value, 4)} ({event.rest_on[name]:,} trials)"
        if name in event.rest_on
        else f"{name} {plain_number(value, 4)}"
        for name, value in event.values.items()
    ]
    trials = sum(event.models.values())
    if event.medians:
        parts.append(f"the median length of the answers to each of {len(event.medians)} questions ({trials:,} trials)")
    return f"The rubric's thresholds were fitted once, on the run {event.run}, and then frozen: {'; '.join(parts)}."


def kept_thresholds(section: RubricConfig, events: Sequence[Event]) -> ThresholdsFrozen | None:
    """The newest event that froze thresholds for this rubric; None if there is none."""
    stored_section = section.model_dump(mode="json", exclude_defaults=True)
    matching = [event for event in events_of_kind(events, ThresholdsFrozen) if event.section == stored_section]
    return matching[-1] if matching else None


def thresholds_from_event(event: ThresholdsFrozen | None) -> FrozenThresholds:
    """Convert the event to thresholds; without an event, to none."""
    return FrozenThresholds() if event is None else FrozenThresholds(event.values, event.rest_on, event.medians)


def kept_rubric(section: RubricConfig, events: Sequence[Event]) -> Rubric:
    """The rubric of a stored run, with its frozen thresholds."""
    return open_rubric(section, thresholds_from_event(kept_thresholds(section, events)))


def frozen_event(section: RubricConfig, frozen: FrozenThresholds, models: Counter[str], run: str) -> ThresholdsFrozen:
    """The event that stores thresholds fitted on trials of the `run`."""
    stored_section = section.model_dump(mode="json", exclude_defaults=True)
    return ThresholdsFrozen(stored_section, run, frozen.values, frozen.rest_on, frozen.medians, dict(models))
