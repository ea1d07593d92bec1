"""What a run begins with: trials that were imported, which its first look has, and outcomes that it takes as R0.

Both are kept in the run as events, so that what is decided depends on nothing else: the first so many stored trials are
those that were imported, and R0 is read once, from the run that `prior_evidence` names, and written down.

A run lies in `<folder>/<name>`, and after `--fresh` in `<folder>/<name>~2`, `~3` ... beside it. What was spent under an
earlier horizon stays spent, so a run begins with the horizons that it had before today's as well.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.pace import opening_of
from adaptive_eval.config.planning import EarlierHorizon, longest_prompts, plan_of, worst_costs, worst_verdict
from adaptive_eval.config.prepare import PreparedRun, StoredSetup, favouring, prompts_of, setup_of, stored_config
from adaptive_eval.config.run import PriorEvidenceConfig, RunConfig
from adaptive_eval.core import Plan
from adaptive_eval.core.types import Cost
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.record.prior import EarlierRun, PriorOutcomes, kept_prior, read_prior
from adaptive_eval.record.thresholds import frozen_of, kept_rubric, kept_thresholds, thresholds_from_run
from adaptive_eval.store import (
    Event,
    PriorTaken,
    Roster,
    RunBegun,
    RunReader,
    ThresholdsFrozen,
    TrialsImported,
    events_of_kind,
)
from adaptive_eval.store.database import is_run
from adaptive_eval.store.looks import changed_horizons
from adaptive_eval.store.store import require_same_meaning
from scorio.moments import CountArray


def recorded_horizons(events: Sequence[Event]) -> tuple[EarlierHorizon, ...]:
    """The horizons that a stored run had before that of its newest configuration."""
    found: list[EarlierHorizon] = []
    for change in changed_horizons(events):
        if change.looks is not None:
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
    """When the first look is taken cannot depend on what it showed."""
    stored = stored_config(reader.header())
    before = stored.trials
    if not reader.most_looks():
        return
    same_horizon = config.trials.model_copy(update={"max": before.max})
    had = opening_of(before, in_turn=stored.in_turn)
    has = opening_of(same_horizon, in_turn=config.in_turn)
    if before.min == config.trials.min and had != has:
        raise ConfigError(
            f"the run took its first look with {had} trials a question, as trials.favour {before.favour} begins, and "
            f"cannot begin with {has} after it, as {config.trials.favour} does; set it to {before.favour} again, or "
            "begin another run with --fresh"
        )
    if before.min != config.trials.min:
        raise ConfigError(
            f"trials.min was {before.min} when the run took its first look, and cannot become {config.trials.min} "
            f"after it; set it to {before.min} again, or begin another run with --fresh"
        )


MARK = "~"
"""No run's name has it."""


def newest_directory(folder: Path, name: str) -> Path:
    """The run of this name that was begun last; the plain name where there is none."""
    return folder / _directory(name, max([1, *_numbers(folder, name)]))


def fresh_directory(folder: Path, name: str) -> Path:
    """A directory that does not exist yet; the plain name where it is free."""
    return folder / _directory(name, max([0, *_numbers(folder, name)]) + 1)


def _directory(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{MARK}{number}"


def _numbers(folder: Path, name: str) -> list[int]:
    if not folder.is_dir():
        return []
    pattern = re.compile(rf"{re.escape(name)}(?:{MARK}(\d+))?")
    found = (pattern.fullmatch(path.name) for path in folder.iterdir())
    return [int(match[1] or 1) for match in found if match]


Cells = NDArray[np.int32]


class StartingPoint(NamedTuple):
    """A run that could begin or go on."""

    prepared: PreparedRun
    prior: PriorTaken | None
    """R0, where it has to be written down yet."""
    thresholds: ThresholdsFrozen | None = None
    """Those of an earlier run, where they have to be written down yet."""

    @property
    def news(self) -> list[Event]:
        """What has to be written down yet."""
        return [event for event in (self.prior, self.thresholds) if event is not None]


def stored_plan(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> Plan:
    """The plan that the looks of a stored run were taken by, for whoever only reads it: nothing is prepared for it.

    Raises `ConfigError` where the configuration has no room for the trials that are there.
    """
    config, roster = setup.config, setup.roster
    first = _imported(config, roster, reader, events)
    prior = kept_prior(config.prior_evidence, events)
    return plan_of(
        config,
        setup.questions,
        _worst_costs(setup, events),
        first,
        None if prior is None else _prior_counts(prior, roster, first, config),
        recorded_horizons(events),
    )


def _worst_costs(setup: StoredSetup, events: Sequence[Event]) -> tuple[Cost, ...]:
    """The most that one trial of each model may cost.

    Prompts count where a cap on tokens or USD reserves them; they are rendered only where no start has kept their
    lengths, as in a run of an earlier version, or in one that was only imported.
    """
    config = setup.config
    models, sizes = config.models, (0,) * len(config.models)
    if config.budget.tokens is not None or config.budget.usd is not None:
        starts = events_of_kind(events, RunBegun)
        kept = (starts[-1].longest_prompts if starts else None) or {}
        if all(model.name in kept for model in models):
            sizes = tuple(kept[model.name] for model in models)
        else:
            sizes = longest_prompts(prompts_of(config, setup.questions))
    return worst_costs(models, sizes, worst_verdict(config, setup.questions))


def stored_prior_counts(setup: StoredSetup, reader: RunReader, events: Sequence[Event]) -> CountArray | None:
    """(L, M, K): what a stored run has taken as R0; None where that is nothing."""
    prior = kept_prior(setup.config.prior_evidence, events)
    if prior is None:
        return None
    return _prior_counts(prior, setup.roster, _cells(setup.roster, reader, events), setup.config)


def load_starting_point(prepared: PreparedRun, directory: Path) -> StartingPoint:
    """A run that is to begin or go on in `directory`, with what it begins with; nothing is written.

    Raises `ConfigError` where the configuration has no room for the trials that are there, or R0 cannot be had.
    """
    prepared = _as_it_began(prepared, directory)
    held = _held(prepared, directory)
    had = kept_thresholds(prepared.config.rubric, held.events)
    thresholds = thresholds_from_run(prepared.config.rubric) if had is None else None
    prepared = replace(prepared, rubric=open_rubric(prepared.config.rubric, frozen_of(had or thresholds)))
    section = prepared.config.prior_evidence
    kept = kept_prior(section, held.events)
    if section is None or (kept is not None and kept.covers(prepared.models)):
        return StartingPoint(_planned(prepared, held, kept), None, thresholds)
    prior = _read(section, prepared, directory, kept)
    return StartingPoint(_planned(prepared, held, prior), prior.event(section), thresholds)


def _as_it_began(prepared: PreparedRun, directory: Path) -> PreparedRun:
    """A run that chooses its pace by itself keeps the one that it began with."""
    if prepared.why_favoured is None or not is_run(directory):
        return prepared
    with closing(RunReader.open(directory)) as reader:
        began = stored_config(reader.header()).trials.favour
    if began == "auto" or began == prepared.config.trials.favour:
        return prepared
    return replace(favouring(prepared, began), why_favoured="the run began with it")


def stored_trial_count(prepared: PreparedRun, directory: Path, *, grader_chosen: bool = False) -> int | None:
    """How many trials the run in `directory` has, which `prepared` would resume; None where there is no run.

    Raises `RunChanged` where their meaning is another; with `grader_chosen` the grader becomes that of `prepared`.
    """
    if not is_run(directory):
        return None
    with closing(RunReader.open(directory)) as reader:
        stored, now = reader.header(), prepared.header
        grader = {"grader": now.meaning["grader"]} if grader_chosen else {}
        require_same_meaning(replace(stored, meaning={**stored.meaning, **grader}), now, directory)
        return reader.trial_count()


class _StoredBeginning(NamedTuple):
    """What the run that is there has heard, the trials that it began with, and the horizons that it had."""

    events: Sequence[Event] = ()
    first: Cells | None = None
    horizons: tuple[EarlierHorizon, ...] = ()


def _held(prepared: PreparedRun, directory: Path) -> _StoredBeginning:
    if not is_run(directory):
        return _StoredBeginning()
    with closing(RunReader.open(directory)) as reader:
        events = reader.events()
        first = _imported(prepared.config, prepared.roster, reader, events)
        require_same_first_look(prepared.config, reader)
        return _StoredBeginning(events, first, earlier_horizons(prepared.config, reader, events))


def _imported(config: RunConfig, roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """(L, M): imported trials, for which the configuration must have room; None in a run that began with none."""
    first = _cells(roster, reader, events)
    if first is not None:
        _require_room(config, first)
    return first


def _cells(roster: Roster, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """(L, M): the imported trials of these models and questions; None where nothing was imported."""
    rows = sum(event.trials for event in events_of_kind(events, TrialsImported))
    if rows == 0:
        return None
    first = np.zeros((len(roster.models), len(roster.questions)), dtype=np.int32)
    for one in reader.cells(rows):
        if (one.model, one.question) in roster:
            first[roster.cell(one.model, one.question)] = one.trials
    return first


def _require_room(config: RunConfig, first: Cells) -> None:
    """The horizon holds what is there."""
    trials = config.trials
    needed = np.maximum(first, trials.min).mean(axis=1)
    most = int(needed.argmax())
    if needed[most] > trials.max:
        held = f"{first[most].mean():.4g} imported trials a question of {config.models[most].name}"
        raise ConfigError(
            f"trials.max must be at least {int(np.ceil(needed[most]))}, since the run begins with {held} and "
            f"trials.min is {trials.min}, but got {trials.max}; raise it"
        )


def _read(
    section: PriorEvidenceConfig, prepared: PreparedRun, directory: Path, kept: PriorOutcomes | None
) -> PriorOutcomes:
    if is_run(directory) and section.run.resolve() == directory.resolve():
        raise ConfigError("prior_evidence.run names the run itself; name an earlier one, or remove the section")
    if not is_run(section.run):
        raise ConfigError(f"prior_evidence.run: {section.run} holds no run; name the directory of one")
    with closing(RunReader.open(section.run)) as reader:
        return read_prior(section, prepared, _earlier(reader), reader, kept)


def _earlier(reader: RunReader) -> EarlierRun:
    """A run whose first trials are taken; no plan is made of it, so none of its plug-ins is loaded."""
    config, questions, _, roster = setup_of(reader.header())
    events = reader.events()
    first = _cells(roster, reader, events)
    if first is None:
        first = np.full((len(roster.models), len(questions)), config.trials.min, dtype=np.int32)
    return EarlierRun(config.name, tuple(roster.models), questions, kept_rubric(config.rubric, events), first)


def _planned(prepared: PreparedRun, held: _StoredBeginning, prior: PriorOutcomes | None) -> PreparedRun:
    """The plan with what is known beforehand; R0 has no more of a question than the first look has."""
    first, horizons = held.first, held.horizons
    if first is None and prior is None and not horizons:
        return prepared
    config, worst = prepared.config, prepared.plan.bench.worst_cost
    counts = None if prior is None else _prior_counts(prior, prepared.roster, first, config)
    return replace(prepared, plan=plan_of(config, prepared.questions, worst, first, counts, horizons))


def _prior_counts(prior: PriorOutcomes, roster: Roster, first: Cells | None, config: RunConfig) -> CountArray:
    """(L, M, K): R0, at most what the first look has of each question."""
    there = np.zeros((len(roster.models), len(roster.questions)), np.int32) if first is None else first
    most = np.maximum(there, config.trials.min)
    return prior.counts(tuple(roster.models), tuple(roster.questions), most, len(open_rubric(config.rubric).weights))
