"""A run that is to begin or go on: its plan, what it takes from earlier runs, and which of that has to be stored.

Whatever decisions depend on is stored with the run: imported trials are its first rows, and outcomes of other runs are
read once, and stored as events.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adaptive_eval.base.errors import ConfigError, RunChanged
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.base.roster import Roster
from adaptive_eval.config.fingerprint import require_same_meaning
from adaptive_eval.config.planning import RunFacts, longest_prompts, make_plan, worst_costs
from adaptive_eval.config.prepare import (
    PreparedRun,
    StoredSetup,
    adopt_stored_trials,
    in_order_of_joining,
    render_prompts,
    stored_config,
    with_decisions,
    with_pace,
    with_questions,
)
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.types import Cost
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.notes import events_of_kind
from adaptive_eval.notes.beginnings import OutcomesRecorded, PriorTaken, counted_runs
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.grading import ThresholdsFrozen, TrialsRegraded
from adaptive_eval.notes.lives import RunBegun
from adaptive_eval.report.changes import is_capped_opening, require_compatible
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.thresholds import kept_thresholds, thresholds_from_event, thresholds_from_run
from adaptive_eval.running.prior_outcomes import (
    Cells,
    Recorded,
    imported_cells,
    make_prior_knowledge,
    stored_cells,
    stored_outcomes,
    stored_prior,
)
from adaptive_eval.running.read_prior_outcomes import take_outcomes, take_prior


class StartingPoint(NamedTuple):
    """A run that could begin or go on."""

    prepared: PreparedRun
    trials: int | None
    """Stored answers; None if there is no run yet."""
    pending_events: Sequence[Event] = ()
    """Events that are not stored yet: outcomes and thresholds of earlier runs."""


def load_starting_point(prepared: PreparedRun, directory: Path, *, grader_chosen: bool = False) -> StartingPoint:
    """Load the starting point of a new or resumed run in `directory`; nothing is written.

    Raises `RunChanged` if stored trials would mean something else; with `grader_chosen` their grader may differ. Raises
    `ConfigError` if settings contradict what the run has done (`report.changes`), or if outcomes or thresholds that it
    needs of earlier runs are not available.
    """
    events: Sequence[Event] = ()
    trials, first, imported, capped = None, None, None, None
    with RunReader.if_begun(directory) as reader:
        if reader is not None:
            _require_same_meaning(reader, prepared, directory, grader_chosen=grader_chosen)
            trials, events = reader.trial_count(), reader.events()
            prepared = _begin_as_before(prepared, reader)
            require_compatible(with_pace(stored_config(reader.header())), prepared.config, reader, reader.log.spent())
            imported = imported_cells(prepared.roster, reader)
            first, capped = first_cells(prepared.config, prepared.roster, reader, events), has_capped_opening(reader)
    stored_thresholds = kept_thresholds(prepared.config.rubric, events)
    asked = prepared.roster.questions
    thresholds = thresholds_from_run(prepared.config.rubric, asked) if stored_thresholds is None else None
    prepared = replace(
        prepared, rubric=open_rubric(prepared.config.rubric, thresholds_from_event(stored_thresholds or thresholds))
    )
    recorded = stored_outcomes(prepared.config, events)
    new_outcomes = take_outcomes(prepared, directory, recorded)
    recorded = {**recorded, **{event.model: event for event in new_outcomes}}
    section, prior_event = prepared.config.prior, None
    prior = stored_prior(section, events)
    if section is not None and (prior is None or not prior.outcomes.keys() >= set(prepared.models)):
        prior = prior_event = take_prior(section, prepared, directory, prior)
    if prior is not None or recorded or first is not None or capped is not None:
        prior_knowledge = make_prior_knowledge(prepared.config, prepared.roster, imported, prior, recorded)
        facts = RunFacts(first, None, capped)
        plan = make_plan(prepared.config, prepared.questions, prepared.plan.bench.worst_cost, facts, prior_knowledge)
        prepared = replace(prepared, plan=plan)
    pending: list[PriorTaken | ThresholdsFrozen | OutcomesRecorded | None] = [prior_event, thresholds, *new_outcomes]
    return StartingPoint(prepared, trials, [event for event in pending if event is not None])


def stored_plan(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> Plan:
    """The plan of a stored configuration, without the stage before it. Prompts are rendered only if a cap reserves them
    and no start has stored their lengths, as in a run that was only imported. Raises `ConfigError` if the outcomes of
    recorded models are not there yet."""
    config, roster = setup.config, setup.roster
    recorded: Recorded = stored_outcomes(config, events)
    if missing := [name for at in sorted(config.recorded) if (name := config.models[at].name) not in recorded]:
        raise ConfigError(
            f"the run has not taken the outcomes of its recorded models yet ({', '.join(missing)}); it does so when it "
            "begins: adaptive-eval run"
        )
    prior = stored_prior(config.prior, events)
    prior_knowledge = make_prior_knowledge(config, roster, imported_cells(roster, reader), prior, recorded)
    facts = RunFacts(first_cells(config, roster, reader, events), None, has_capped_opening(reader))
    return make_plan(config, setup.questions, stored_worst_costs(setup, events), facts, prior_knowledge)


def stored_worst_costs(setup: StoredSetup, events: Sequence[Event]) -> tuple[Cost, ...]:
    """The most that one trial of each model of a stored run may cost."""
    config, prompt_lengths = setup.config, dict[str, int]()
    for start in events_of_kind(events, RunBegun):
        prompt_lengths |= start.longest_prompts or {}
    sizes = tuple(prompt_lengths.get(model.name, 0) for model in config.models)
    if not all(sizes) and (config.budget.tokens is not None or config.budget.usd is not None):
        sizes = longest_prompts(render_prompts(config, setup.questions))
    return worst_costs(config, setup.questions, sizes)


def has_capped_opening(reader: RunReader) -> bool | None:
    """Whether caps have allowed only `trials.min` in the first round; None before the first look."""
    first = next(iter(reader.log.looks()[:1]), None)
    return None if first is None else is_capped_opening(first)


def first_cells(config: RunConfig, roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """Trials (L, M) that the first look has besides those it asks for, imported or asked for under earlier grades; None
    if there are none. Raises `ConfigError` if they exceed the configured maximum."""
    regraded = [event.opening for event in events_of_kind(events, TrialsRegraded) if event.opening is not None]
    first = stored_cells(roster, reader, regraded[-1], first_round=True) if regraded else imported_cells(roster, reader)
    if first is not None:
        require_room(config, first)
    return first


def _require_same_meaning(reader: RunReader, prepared: PreparedRun, directory: Path, *, grader_chosen: bool) -> None:
    stored, now = reader.header(), prepared.header
    grader = {"grader": now.meaning["grader"]} if grader_chosen else {}
    try:
        as_now = replace(stored, meaning={**stored.meaning, **grader})
        has_changed = any(now.models.get(name, settings) != settings for name, settings in stored.models.items())
        unanswered = reader.unanswered_models() if has_changed else ()  # all rows are read for that
        is_regradable = not counted_runs(reader.events())
        require_same_meaning(as_now, now, directory, unanswered, is_regradable=is_regradable)
    except RunChanged:
        reader.require_intact()  # the difference may be damage
        raise


def _begin_as_before(prepared: PreparedRun, reader: RunReader) -> PreparedRun:
    """Keep the settings that the run began with where the configuration leaves them open, and the order of its models
    and questions, whose numbers are places in the store."""
    header, chosen = reader.header(), prepared.why_optimized is not None
    config, starts = prepared.config, events_of_kind(reader.events(), RunBegun)
    was_set = "trials.min" in ((starts[-1].overrides if starts else None) or {})
    if reader.log.looks() or not was_set or "trials.min" in prepared.overrides:  # else --set trials.min was undone
        config = adopt_stored_trials(config, with_pace(stored_config(header)), at_any_pace=chosen)
    config = in_order_of_joining(config, header)
    order = {key: place for place, key in enumerate(header.questions)}
    questions = tuple(sorted(prepared.questions, key=lambda question: order[question.id]))
    if config.models != prepared.config.models or questions != prepared.questions:
        prepared = replace(
            with_questions(config, questions),
            why_optimized=prepared.why_optimized,
            arguments=prepared.arguments,
            overrides=prepared.overrides,
        )
    if config.trials == prepared.config.trials:
        return prepared
    why = (
        prepared.why_optimized if config.trials.optimize == prepared.config.trials.optimize else "the run began with it"
    )
    return replace(with_decisions(prepared, config), why_optimized=why)


def require_room(config: RunConfig, first: Cells) -> None:
    """Raise `ConfigError` if the run begins with more trials than `trials.max`."""
    trials = config.trials
    needed = np.maximum(first, trials.min).mean(axis=1)
    model = int(needed.argmax())
    if needed[model] > trials.max:
        held = f"{plain_number(first[model].mean(), 4)} trials per question of {config.models[model].name}"
        raise ConfigError(
            f"trials.max must be at least {int(np.ceil(needed[model]))}, since the run begins with {held} and "
            f"trials.min is {trials.min}, but got {trials.max}; raise it"
        )
