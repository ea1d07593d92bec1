"""Trials and outcomes that a run begins with: imported, graded anew, or taken from earlier runs as R0.

All are kept in the run as events, so that what is decided depends on nothing else: the first so many stored trials are
those that were imported, and R0 is read once, from the run that `prior_evidence` names, and written down.

What was spent under an earlier horizon stays spent, so a run begins with the horizons that it had before today's too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.pace import opening_of
from adaptive_eval.config.planning import EarlierHorizon, KnownBefore, longest_prompts, plan_of, worst_costs
from adaptive_eval.config.prepare import PreparedRun, StoredSetup, prompts_of, stored_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Plan
from adaptive_eval.core.types import Cost
from adaptive_eval.errors import ConfigError, RunChanged
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.record.prior import PriorOutcomes, kept_prior
from adaptive_eval.record.recorded import Recorded, kept_outcomes, recorded_counts
from adaptive_eval.store import (
    CellExtent,
    Event,
    Roster,
    RunBegun,
    RunReader,
    TrialsImported,
    TrialsRegraded,
    events_of_kind,
)
from adaptive_eval.store.looks import changed_horizons
from adaptive_eval.store.same_meaning import require_same_meaning
from scorio.moments import CountArray


def recorded_horizons(events: Sequence[Event]) -> tuple[EarlierHorizon, ...]:
    """The horizons that a stored run had before that of its newest configuration."""
    found: list[EarlierHorizon] = []
    anew = [at for at, event in enumerate(events) if isinstance(event, TrialsRegraded) and event.opening is not None]
    for change in changed_horizons(events[anew[-1] + 1 :] if anew else events):
        _append(found, change.was, change.looks)
    return tuple(found)


def earlier_horizons(config: RunConfig, reader: RunReader, events: Sequence[Event]) -> tuple[EarlierHorizon, ...]:
    """The horizons of a stored run before that of `config`, under which it is to go on."""
    found = list(recorded_horizons(events))
    before, looks = stored_config(reader.header()).trials, reader.most_looks()
    if looks and before.max != config.trials.max:
        _append(found, before.max, looks)
    return tuple(found)


def _append(found: list[EarlierHorizon], trials: int, looks: int) -> None:
    found.append(EarlierHorizon(trials, max([looks, *(one.looks for one in found)])))


def require_same_first_look(config: RunConfig, reader: RunReader) -> None:
    """Raise `ConfigError` if the configuration would take the first look elsewhere than the run did."""
    stored = stored_config(reader.header())
    before = stored.trials
    if not reader.most_looks():
        return
    if before.draw != config.trials.draw:
        raise ConfigError(
            f"trials.draw was {before.draw or 'not set'} when the run took its first look, and cannot be "
            f"{config.trials.draw or 'not set'} after it; set it as it was, or begin another run with --fresh"
        )
    same_horizon = config.trials.model_copy(update={"max": before.max})
    had = opening_of(before, batched=stored.batched)
    has = opening_of(same_horizon, batched=config.batched)
    if before.min == config.trials.min and had != has:
        raise ConfigError(
            f"the run took its first look with {had} trials a question, as {_pace_text(stored)} begins, and cannot "
            f"begin with {has} after it, as {_pace_text(config)} does; set it as it was, or begin another run with "
            "--fresh"
        )
    if before.min != config.trials.min:
        raise ConfigError(
            f"trials.min was {before.min} when the run took its first look, and cannot become {config.trials.min} "
            f"after it; set it to {before.min} again, or begin another run with --fresh"
        )


def _pace_text(config: RunConfig) -> str:
    return "a model with a batch" if config.batched else f"trials.favour {config.trials.favour}"


Cells = NDArray[np.int32]


def stored_plan(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> Plan:
    """The plan that the looks of a stored run were taken by, for whoever only reads it: nothing is prepared for it.

    Raises `ConfigError` where the configuration has no room for the trials that are there.
    """
    config, roster = setup.config, setup.roster
    first, imported = first_cells(config, roster, reader, events), imported_cells(roster, reader, events)
    recorded = kept_outcomes(config, events)
    _require_taken(config, recorded)
    known = known_before(config, roster, imported, kept_prior(config.prior_evidence, events), recorded)
    worst, capped = stored_worst_costs(setup, events), reader.capped_opening()
    return plan_of(config, setup.questions, worst, first, known, recorded_horizons(events), capped)


def _require_taken(config: RunConfig, recorded: Recorded) -> None:
    missing = [model.name for model in config.models if model.recorded is not None and model.name not in recorded]
    if missing:
        raise ConfigError(
            f"the run has not taken the outcomes of its recorded models yet ({', '.join(missing)}); it does so when it "
            "begins: adaptive-eval run"
        )


def stored_worst_costs(setup: StoredSetup, events: Sequence[Event]) -> tuple[Cost, ...]:
    """The most that one trial of each model of a stored run may cost.

    Prompts are rendered only where a cap on tokens or USD reserves them and no start has kept their lengths, as in a
    run of an earlier version, or in one that was only imported.
    """
    config, kept = setup.config, dict[str, int]()
    for start in events_of_kind(events, RunBegun):
        kept |= start.longest_prompts or {}
    sizes = tuple(kept.get(model.name, 0) for model in config.models)
    if not all(sizes) and (config.budget.tokens is not None or config.budget.usd is not None):
        sizes = longest_prompts(prompts_of(config, setup.questions))
    return worst_costs(config, setup.questions, sizes)


def stored_prior_counts(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> CountArray | None:
    """(L, M, K): what a stored run has taken from earlier ones; None where that is nothing."""
    config, imported = setup.config, imported_cells(setup.roster, reader, events)
    prior = kept_prior(config.prior_evidence, events)
    return known_before(config, setup.roster, imported, prior, kept_outcomes(config, events)).counts


def stored_trial_count(prepared: PreparedRun, directory: Path, *, grader_chosen: bool = False) -> int | None:
    """The number of trials of the run that `prepared` would resume; None if there is no run.

    Raises `RunChanged` where their meaning is another; with `grader_chosen` the grader becomes that of `prepared`.
    """
    with RunReader.if_begun(directory) as reader:
        if reader is None:
            return None
        stored, now = reader.header(), prepared.header
        grader = {"grader": now.meaning["grader"]} if grader_chosen else {}
        try:
            require_same_meaning(replace(stored, meaning={**stored.meaning, **grader}), now, directory)
        except RunChanged:
            reader.require_intact()  # what differs may be a byte that nobody has changed on purpose
            raise
        return reader.trial_count()


def first_cells(config: RunConfig, roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """(L, M): trials that the first look has besides those it asks for, imported or asked for under earlier grades;
    None if there are none. The configuration must have room for them."""
    regraded = [event.opening for event in events_of_kind(events, TrialsRegraded) if event.opening is not None]
    there = _in_cells(roster, reader.cells(regraded[-1], first_round=True)) if regraded else None
    first = imported_cells(roster, reader, events) if there is None else there
    if first is not None:
        _require_room(config, first)
    return first


def imported_cells(roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """(L, M): the trials of these models and questions that were imported from elsewhere, with those that are missing
    before the highest number; None where there are none."""
    rows = sum(event.trials for event in events_of_kind(events, TrialsImported) if not event.seeds_match)
    return _in_cells(roster, reader.cells(rows)) if rows else None


def has_foreign_trials(events: Sequence[Event]) -> bool:
    """Whether trials were imported whose seeds are unknown, or others than the configuration gives them."""
    return not all(event.seeds_match for event in events_of_kind(events, TrialsImported))


def _in_cells(roster: Roster, trials: Iterable[CellExtent]) -> Cells:
    found = np.zeros((len(roster.models), len(roster.questions)), dtype=np.int32)
    for one in trials:
        if (one.model, one.question) in roster:
            found[roster.cell(one.model, one.question)] = one.extent
    return found


def _require_room(config: RunConfig, first: Cells) -> None:
    """Raise `ConfigError` if the horizon is below the trials that are there."""
    trials = config.trials
    needed = np.maximum(first, trials.min).mean(axis=1)
    most = int(needed.argmax())
    if needed[most] > trials.max:
        held = f"{first[most].mean():.4g} trials a question of {config.models[most].name}"
        raise ConfigError(
            f"trials.max must be at least {int(np.ceil(needed[most]))}, since the run begins with {held} and "
            f"trials.min is {trials.min}, but got {trials.max}; raise it"
        )


def known_before(
    config: RunConfig, roster: Roster, imported: Cells | None, prior: PriorOutcomes | None, recorded: Recorded
) -> KnownBefore:
    """R0, at most as much of each question as was imported or a first round has, and all that recorded models have."""
    categories = len(open_rubric(config.rubric).weights)
    if recorded:
        return recorded_counts(recorded, roster, categories)
    if prior is None:
        return KnownBefore()
    there = np.zeros((len(roster.models), len(roster.questions)), np.int32) if imported is None else imported
    most = np.maximum(there, config.trials.min)
    counts = prior.counts(tuple(roster.models), tuple(roster.questions), most, categories)
    return KnownBefore(counts, spent=prior.spent)
