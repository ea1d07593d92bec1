"""A run that is to begin or go on, with what it takes from earlier runs and which of that has to be stored."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from adaptive_eval.config.planning import NO_FACTS, RunFacts, make_plan
from adaptive_eval.config.prepare import (
    PreparedRun,
    StoredSetup,
    adopt_stored_trials,
    in_order_of_joining,
    stored_config,
    with_decisions,
    with_pace,
    with_questions,
)
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.report.changes import require_compatible
from adaptive_eval.report.old.earlier import PriorOutcomes, Recorded, stored_outcomes, stored_prior
from adaptive_eval.report.old.history import (
    Cells,
    first_cells,
    imported_cells,
    known_before,
)
from adaptive_eval.report.old.stages import earlier_stages, play_stages
from adaptive_eval.report.old.take_earlier import take_outcomes, take_prior
from adaptive_eval.report.reader import RunReader as Reader
from adaptive_eval.report.thresholds import thresholds_from_run
from adaptive_eval.store import Event, OutcomesRecorded, PriorTaken, RunReader, ThresholdsFrozen
from adaptive_eval.store.spending import total_spent
from adaptive_eval.store.thresholds import kept_thresholds, thresholds_from_event


class StartingPoint(NamedTuple):
    """A run that could begin or go on."""

    prepared: PreparedRun
    prior: PriorTaken | None
    """R0, if it is not stored yet."""
    thresholds: ThresholdsFrozen | None = None
    """Thresholds of an earlier run, if they are not stored yet."""
    recorded: Sequence[OutcomesRecorded] = ()
    """Outcomes of recorded models that are not stored yet."""

    @property
    def pending_events(self) -> list[Event]:
        """Events to be stored when the run begins."""
        return [e for e in (self.prior, self.thresholds, *self.recorded) if e is not None]


def load_starting_point(prepared: PreparedRun, directory: Path) -> StartingPoint:
    """Load what a run begins with, or goes on with, in `directory`; nothing is written.

    Raises `ConfigError` if settings contradict what the run has done (`record.changes`), or if outcomes or thresholds
    that it needs of earlier runs are not available.
    """
    with RunReader.if_begun(directory) as reader:
        prepared = prepared if reader is None else _begin_as_before(prepared, reader)
        held = _StoredBeginning() if reader is None else _read_beginning(prepared, reader)
    had = kept_thresholds(prepared.config.rubric, held.events)
    thresholds = thresholds_from_run(prepared.config.rubric) if had is None else None
    prepared = replace(prepared, rubric=open_rubric(prepared.config.rubric, thresholds_from_event(had or thresholds)))
    recorded = stored_outcomes(prepared.config, held.events)
    taken = take_outcomes(prepared, directory, recorded)
    recorded = {**recorded, **{event.model: event for event in taken}}
    section, event = prepared.config.prior, None
    prior = stored_prior(section, held.events)
    if section is not None and (prior is None or not prior.covers(prepared.models)):
        event = take_prior(section, prepared, directory, prior)
        prior = PriorOutcomes(event.run, event.outcomes)
    return StartingPoint(_with_known_outcomes(prepared, held, prior, recorded), event, thresholds, taken)


def _begin_as_before(prepared: PreparedRun, reader: RunReader) -> PreparedRun:
    """Keep the settings that the run began with where the configuration leaves them open."""
    stored, chosen = with_pace(stored_config(reader.header())), prepared.why_optimized is not None
    config = in_order_of_joining(adopt_stored_trials(prepared.config, stored, at_any_pace=chosen), reader.header())
    if config.models != prepared.config.models:
        prepared = replace(with_questions(config, prepared.questions), why_optimized=prepared.why_optimized)
    if config.trials == prepared.config.trials:
        return prepared
    why = (
        prepared.why_optimized if config.trials.optimize == prepared.config.trials.optimize else "the run began with it"
    )
    return replace(with_decisions(prepared, config), why_optimized=why)


class _StoredBeginning(NamedTuple):
    """Events and imported trials of a stored run, and what its plan needs to know."""

    events: Sequence[Event] = ()
    imported: Cells | None = None
    facts: RunFacts = NO_FACTS


def _read_beginning(prepared: PreparedRun, reader: RunReader) -> _StoredBeginning:
    events, config = reader.events(), prepared.config
    require_compatible(with_pace(stored_config(reader.header())), config, cast(Reader, reader), total_spent(reader))
    first = first_cells(config, prepared.roster, reader, events)
    now = StoredSetup(config, prepared.questions, {}, prepared.roster)
    before = play_stages(earlier_stages(reader, events, now), reader, events, now, starting=True)
    facts = RunFacts(first, before, reader.capped_opening())
    return _StoredBeginning(events, imported_cells(prepared.roster, reader, events), facts)


def _with_known_outcomes(
    prepared: PreparedRun, held: _StoredBeginning, prior: PriorOutcomes | None, recorded: Recorded
) -> PreparedRun:
    """Add what is known beforehand to the plan; R0 has no more trials per question than the first look."""
    facts = held.facts
    known_of_run = facts.first, facts.before, facts.capped_opening
    if prior is None and not recorded and not any(one is not None for one in known_of_run):
        return prepared
    config, worst = prepared.config, prepared.plan.bench.worst_cost
    known = known_before(config, prepared.roster, held.imported, prior, recorded)
    return replace(prepared, plan=make_plan(config, prepared.questions, worst, facts, known))
