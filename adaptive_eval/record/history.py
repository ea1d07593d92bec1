"""What a run begins with: trials that were imported, which its first look has, and outcomes that it takes as R0.

Both are kept in the run as events, so that what is decided depends on nothing else: the first so many stored trials are
those that were imported, and R0 is read once, from the run that `prior_evidence` names, and written down.

Where a run lies: `<folder>/<name>`, and after `--fresh` `<folder>/<name>~2`, `~3` ... beside it.

The horizons that a run had before today's, under which what was spent stays spent.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.planning import Horizon, plan_of
from adaptive_eval.config.prepare import Prepared, prepared_with, stored_config, stored_questions
from adaptive_eval.config.run import PriorEvidenceConfig, RunConfig
from adaptive_eval.core import Plan
from adaptive_eval.errors import ConfigError, StoreError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.record.prior import Earlier, Prior, kept_prior, read_prior
from adaptive_eval.store import Event, PriorTaken, RunReader, TrialsImported, only
from adaptive_eval.store.database import is_run
from adaptive_eval.store.looks import changed_horizons
from adaptive_eval.store.store import require_same_meaning


def earlier_horizons(config: RunConfig, reader: RunReader, events: Sequence[Event]) -> tuple[Horizon, ...]:
    """The horizons of a stored run before that of `config`, under which it is to go on or to be read."""
    found: list[Horizon] = []
    for change in changed_horizons(events):
        if change.looks is not None:
            found.append(Horizon(change.was, max([change.looks, *(one.looks for one in found)])))
    before, looks = stored_config(reader.header()).trials, reader.most_looks()
    if looks and before.max != config.trials.max:
        found.append(Horizon(before.max, max([looks, *(one.looks for one in found)])))
    return tuple(found)


def require_same_first_look(config: RunConfig, reader: RunReader) -> None:
    """When the first look is taken cannot depend on what it showed."""
    before = stored_config(reader.header()).trials
    if before.min != config.trials.min and reader.most_looks():
        raise ConfigError(
            f"trials.min was {before.min} when the run took its first look, and cannot become {config.trials.min} "
            f"after it; set it to {before.min} again, or begin another run with --fresh"
        )


MARK = "~"
"""No run's name has it."""


def newest(folder: Path, name: str) -> Path:
    """The run of this name that was begun last; the plain name where there is none."""
    return folder / _directory(name, max([1, *_numbers(folder, name)]))


def fresh(folder: Path, name: str) -> Path:
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


class Begun(NamedTuple):
    """A run that could begin or go on."""

    prepared: Prepared
    prior: PriorTaken | None
    """R0, where it has to be written down yet."""


def stored_plan(reader: RunReader) -> Plan:
    """The plan that a stored run's looks were taken by, for those who only read it."""
    return prepared_again(reader).plan


def prepared_again(reader: RunReader) -> Prepared:
    """A stored run as it was started last; raises `StoreError` where it names a plug-in, whose code is not run here."""
    header = reader.header()
    config = stored_config(header)
    if config.plug_ins:
        named = ", ".join(f"{key}: {name}" for key, name in config.plug_ins.items())
        raise StoreError(
            f"{reader.directory} was decided by plug-ins ({named}), and who reads a run runs none of its code; "
            "`adaptive-eval run` with a configuration of yours that names them loads them"
        )
    return with_beginnings(prepared_with(config, stored_questions(header), header), reader)


def with_beginnings(prepared: Prepared, reader: RunReader) -> Prepared:
    """A prepared run with what the stored one began with."""
    events = reader.events()
    horizons = earlier_horizons(prepared.config, reader, events)
    held = _Held(events, _imported(prepared, reader, events), horizons)
    return _planned(prepared, held, kept_prior(prepared.config.prior_evidence, events))


def stored_prior_counts(reader: RunReader) -> NDArray[np.int64] | None:
    """(L, M, K): what a stored run has taken as R0; None where that is nothing."""
    header, events = reader.header(), reader.events()
    config, questions = stored_config(header), [question.id for question in stored_questions(header)]
    prior = kept_prior(config.prior_evidence, events)
    if prior is None:
        return None
    models = [model.name for model in config.models]
    first = _cells(models, questions, reader, events)
    return _prior_counts(prior, models, questions, first, config)


def look_back(prepared: Prepared, directory: Path) -> Begun:
    """A run that is to begin or go on in `directory`, with what it begins with; nothing is written.

    Raises `ConfigError` where the configuration has no room for the trials that are there, or R0 cannot be had.
    """
    held = _held(prepared, directory)
    section = prepared.config.prior_evidence
    kept = kept_prior(section, held.events)
    if section is None or (kept is not None and kept.covers(prepared.models)):
        return Begun(_planned(prepared, held, kept), None)
    prior = _read(section, prepared, directory, kept)
    return Begun(_planned(prepared, held, prior), prior.event(section))


def trials_there(prepared: Prepared, directory: Path, *, grader_chosen: bool = False) -> int | None:
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


class _Held(NamedTuple):
    """What the run that is there has heard, the trials that it began with, and the horizons that it had."""

    events: Sequence[Event] = ()
    first: Cells | None = None
    horizons: tuple[Horizon, ...] = ()


def _held(prepared: Prepared, directory: Path) -> _Held:
    if not is_run(directory):
        return _Held()
    with closing(RunReader.open(directory)) as reader:
        events = reader.events()
        first = _imported(prepared, reader, events)
        require_same_first_look(prepared.config, reader)
        return _Held(events, first, earlier_horizons(prepared.config, reader, events))


def _imported(prepared: Prepared, reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """(L, M): imported trials, for which the configuration must have room; None in a run that began with none."""
    first = _cells(prepared.models, [question.id for question in prepared.questions], reader, events)
    if first is not None:
        _require_room(prepared, first)
    return first


def _cells(models: Sequence[str], questions: Sequence[str], reader: RunReader, events: Sequence[Event]) -> Cells | None:
    """(L, M): the imported trials of these models and questions; None where nothing was imported."""
    rows = sum(event.trials for event in only(events, TrialsImported))
    if rows == 0:
        return None
    model_at = {name: number for number, name in enumerate(models)}
    question_at = {key: number for number, key in enumerate(questions)}
    first = np.zeros((len(model_at), len(question_at)), dtype=np.int32)
    for model, question, trials in reader.cells(rows):
        if model in model_at and question in question_at:
            first[model_at[model], question_at[question]] = trials
    return first


def _require_room(prepared: Prepared, first: Cells) -> None:
    """The horizon holds what is there."""
    trials = prepared.config.trials
    needed = np.maximum(first, trials.min).mean(axis=1)
    most = int(needed.argmax())
    if needed[most] > trials.max:
        held = f"{first[most].mean():.4g} imported trials a question of {prepared.models[most]}"
        raise ConfigError(
            f"trials.max must be at least {int(np.ceil(needed[most]))}, since the run begins with {held} and "
            f"trials.min is {trials.min}, but got {trials.max}; raise it"
        )


def _read(section: PriorEvidenceConfig, prepared: Prepared, directory: Path, kept: Prior | None) -> Prior:
    if is_run(directory) and section.run.resolve() == directory.resolve():
        raise ConfigError("prior_evidence.run names the run itself; name an earlier one, or remove the section")
    if not is_run(section.run):
        raise ConfigError(f"prior_evidence.run: {section.run} holds no run; name the directory of one")
    with closing(RunReader.open(section.run)) as reader:
        return read_prior(section, prepared, _earlier(reader), reader, kept)


def _earlier(reader: RunReader) -> Earlier:
    """A run whose first trials are taken; no plan is made of it, so none of its plug-ins is loaded."""
    header = reader.header()
    config, questions = stored_config(header), stored_questions(header)
    models = tuple(model.name for model in config.models)
    first = _cells(models, [question.id for question in questions], reader, reader.events())
    if first is None:
        first = np.full((len(models), len(questions)), config.trials.min, dtype=np.int32)
    return Earlier(config.name, models, questions, open_rubric(config.rubric), first)


def _planned(prepared: Prepared, held: _Held, prior: Prior | None) -> Prepared:
    """The plan with what is known beforehand; R0 has no more of a question than the first look has."""
    first, horizons = held.first, held.horizons
    if first is None and prior is None and not horizons:
        return prepared
    questions, counts = prepared.questions, None
    if prior is not None:
        ids = [question.id for question in questions]
        counts = _prior_counts(prior, prepared.models, ids, first, prepared.config)
    return replace(prepared, plan=plan_of(prepared.config, questions, prepared.prompts, first, counts, horizons))


def _prior_counts(
    prior: Prior, models: Sequence[str], questions: Sequence[str], first: Cells | None, config: RunConfig
) -> NDArray[np.int64]:
    """(L, M, K): R0, at most what the first look has of each question."""
    there = np.zeros((len(models), len(questions)), np.int32) if first is None else first
    most = np.maximum(there, config.trials.min)
    return prior.counts(models, questions, most, len(open_rubric(config.rubric).weights))
