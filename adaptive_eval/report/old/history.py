"""Trials and outcomes that a run begins with: imported, graded anew, or taken from earlier runs as R0.

The run stores them as events, so that decisions depend on nothing outside it: imported trials are the first stored
ones, and R0 is read once from the run that `prior` names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError, RunChanged
from adaptive_eval.config.planning import (
    PriorKnowledge,
    longest_prompts,
    worst_costs,
)
from adaptive_eval.config.prepare import PreparedRun, StoredSetup, render_prompts
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import Cost
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.report.old.earlier import PriorOutcomes, Recorded, recorded_counts, stored_outcomes, stored_prior
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
from adaptive_eval.store.same_meaning import require_same_meaning
from scorio.moments import CountArray

Cells = NDArray[np.int32]


def require_outcomes_taken(config: RunConfig, recorded: Recorded) -> None:
    """Raise `ConfigError` unless the run has taken the outcomes of its recorded models."""
    missing = [name for number in sorted(config.recorded) if (name := config.models[number].name) not in recorded]
    if missing:
        raise ConfigError(
            f"the run has not taken the outcomes of its recorded models yet ({', '.join(missing)}); it does so when it "
            "begins: adaptive-eval run"
        )


def stored_worst_costs(setup: StoredSetup, events: Sequence[Event]) -> tuple[Cost, ...]:
    """Maximum cost of one trial of each model of a stored run.

    Prompts are rendered only if a cap on tokens or USD reserves them and no start has stored their lengths, as in a
    run that was only imported.
    """
    config, kept = setup.config, dict[str, int]()
    for start in events_of_kind(events, RunBegun):
        kept |= start.longest_prompts or {}
    sizes = tuple(kept.get(model.name, 0) for model in config.models)
    if not all(sizes) and (config.budget.tokens is not None or config.budget.usd is not None):
        sizes = longest_prompts(render_prompts(config, setup.questions))
    return worst_costs(config, setup.questions, sizes)


def stored_prior_counts(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> CountArray | None:
    """Counts (L, M, K) that a stored run has taken from earlier runs; None if there are none."""
    config, imported = setup.config, imported_cells(setup.roster, reader, events)
    prior = stored_prior(config.prior, events)
    return known_before(config, setup.roster, imported, prior, stored_outcomes(config, events)).counts


def stored_trial_count(prepared: PreparedRun, directory: Path, *, grader_chosen: bool = False) -> int | None:
    """Number of trials of the run that `prepared` would resume; None if there is no run.

    Raises `RunChanged` if `prepared` gives them another meaning; with `grader_chosen` the grader may differ.
    """
    with RunReader.if_begun(directory) as reader:
        if reader is None:
            return None
        stored, now = reader.header(), prepared.header
        grader = {"grader": now.meaning["grader"]} if grader_chosen else {}
        try:
            require_same_meaning(replace(stored, meaning={**stored.meaning, **grader}), now, directory)
        except RunChanged:
            reader.require_intact()  # the difference may be damage
            raise
        return reader.trial_count()


def first_cells(config: RunConfig, roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """Trials (L, M) that the first look has besides those it asks for, imported or asked for under earlier grades; None
    if there are none. Raises `ConfigError` if they exceed the configured maximum."""
    regraded = [event.opening for event in events_of_kind(events, TrialsRegraded) if event.opening is not None]
    there = cell_extents(roster, reader.cells(regraded[-1], first_round=True)) if regraded else None
    first = imported_cells(roster, reader, events) if there is None else there
    if first is not None:
        _require_room(config, first)
    return first


def imported_cells(roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """Imported trials (L, M) of these models and questions, with gaps before the highest number; None if none."""
    rows = sum(event.trials for event in events_of_kind(events, TrialsImported) if not event.seeds_match)
    return cell_extents(roster, reader.cells(rows)) if rows else None


def cell_extents(roster: Roster, trials: Iterable[CellExtent]) -> Cells:
    """(L, M): one more than the highest trial number of these models and questions; 0 without a trial."""
    found = np.zeros((len(roster.models), len(roster.questions)), dtype=np.int32)
    for one in trials:
        if (one.model, one.question) in roster:
            found[roster.cell(one.model, one.question)] = one.extent
    return found


def _require_room(config: RunConfig, first: Cells) -> None:
    """Raise `ConfigError` if the run begins with more trials than `trials.max`."""
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
) -> PriorKnowledge:
    """All outcomes of recorded models, or else R0: per question no more than was imported or the first round asks."""
    categories = len(open_rubric(config.rubric).weights)
    if recorded:
        return recorded_counts(recorded, roster, categories)
    if prior is None:
        return PriorKnowledge()
    there = np.zeros((len(roster.models), len(roster.questions)), np.int32) if imported is None else imported
    most = np.maximum(there, config.trials.min)
    counts = prior.counts(tuple(roster.models), tuple(roster.questions), most, categories)
    return PriorKnowledge(counts)
