"""What a stored run has found, worked out anew from its trials: of runs that go on, were killed, or were imported.

Where the rule or the policy is a plug-in, nothing is worked out: that would run code that the run names. Then there is
what the run has written down itself, its results and its looks.

The outcomes that a run's scores are made of, as counts by model, question and category.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.prepare import stored_config, stored_questions, stored_words
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Controller, Outcome
from adaptive_eval.core.types import SetAside
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.questions import Question
from adaptive_eval.record.build import build_results, iso_time, subject_of, take_snapshot
from adaptive_eval.record.history import stored_plan, stored_prior_counts
from adaptive_eval.record.results import Caution, Results, read_results
from adaptive_eval.store import Event, ModelSetAside, RunHeader, RunReader, TrialsRegraded, only, since_the_start
from adaptive_eval.store.usage import Tally


class StoredRun(NamedTuple):
    """A run's newest configuration and its questions."""

    config: RunConfig
    questions: tuple[Question, ...]
    plug_ins: Mapping[str, str]
    """What the plug-ins that decide say of themselves, by the key that names them; no one has to believe it."""


def stored_run(header: RunHeader) -> StoredRun:
    """The configuration and the questions of a run, as they were stored."""
    return StoredRun(stored_config(header), stored_questions(header), stored_words(header))


def restored_results(reader: RunReader, stored: StoredRun, *, running: bool) -> Results | None:
    """The results as of the newest complete round; None before the first look."""
    config, questions, _ = stored
    events = reader.events()
    if config.plug_ins:
        return _published(reader, config, events, running=running)
    controller, tallies = restored_controller(reader, stored, events)
    subject = subject_of(config, questions, reader.created)
    snapshot = take_snapshot(
        subject, controller, tallies, elapsed=reader.elapsed, now=time.time(), stopped=not running, events=events
    )
    return None if snapshot is None else build_results(snapshot)


def _published(reader: RunReader, config: RunConfig, events: Sequence[Event], *, running: bool) -> Results | None:
    """What the run wrote down last; None where that was not yet, or before a change of its models or its grades."""
    results = read_results(reader.directory)
    if results is None or {model.name for model in results.models} != {model.name for model in config.models}:
        return None
    if _regraded_since(results.run.updated, events):
        return None
    status = "running" if running else "stopped" if results.run.status == "running" else results.run.status
    run = replace(results.run, status=status, reason=None if running else results.run.reason)
    return replace(results, run=run, warnings=(*results.warnings, _not_anew(config, results)))


def _regraded_since(updated: str, events: Sequence[Event]) -> bool:
    """Grades were changed later; within one second, if nothing has happened since."""
    regraded = only(events, TrialsRegraded)
    return any(iso_time(one.at) > updated or (iso_time(one.at) == updated and one is events[-1]) for one in regraded)


def _not_anew(config: RunConfig, results: Results) -> Caution:
    named = ", ".join(f"{key}: {name}" for key, name in config.plug_ins.items())
    return Caution(
        "plug_in",
        None,
        f"the run was decided by plug-ins ({named}), which are not loaded to read it: this is what it wrote down "
        f"itself, at {results.run.updated}",
    )


def restored_controller(
    reader: RunReader, stored: StoredRun, events: Sequence[Event]
) -> tuple[Controller, list[Tally]]:
    """The controller of a run as its stored trials leave it, and what was stored of each model."""
    controller = Controller(stored_plan(reader))
    tallies = [Tally() for _ in stored.config.models]
    set_aside = only(since_the_start(events), ModelSetAside)
    names = [model.name for model in stored.config.models]
    keys = [question.id for question in stored.questions]
    controller.restore(_outcomes(reader, names, keys, tallies, set_aside))
    for event in set_aside:
        controller.tell([SetAside(names.index(event.model), event.reason, event.cause)])
    controller.tick(reader.elapsed)
    return controller, tallies


def _outcomes(
    reader: RunReader,
    names: Sequence[str],
    keys: Sequence[str],
    tallies: Sequence[Tally],
    set_aside: Sequence[ModelSetAside],
) -> Iterator[Outcome]:
    """The trials; of a model that was set aside those that came before, as the run itself has judged it."""
    model_of = {name: model for model, name in enumerate(names)}
    question_of = {key: question for question, key in enumerate(keys)}
    last = {event.model: reader.count_until(event.at) for event in set_aside}
    for place, stored in enumerate(reader.outcomes()):
        model = model_of.get(stored.model)
        if model is None:
            continue
        tallies[model].add(stored)
        if place < last.get(stored.model, place + 1):
            yield stored.told(model, question_of[stored.question])


@dataclass(frozen=True, slots=True, eq=False)
class RunCounts:
    """Counts (L, M, K) with the names of models and questions."""

    models: tuple[str, ...]
    questions: tuple[str, ...]
    cells: NDArray[np.int64]
    """R0 and all complete rounds."""
    before: NDArray[np.int64]
    """Of these, R0."""

    def of(self, models: Sequence[str], questions: Sequence[str]) -> "RunCounts":
        """The counts of these models and questions, in this order."""
        rows = [self.models.index(name) for name in models]
        at = {key: column for column, key in enumerate(self.questions)}
        chosen = np.ix_(rows, [at[key] for key in questions])
        return RunCounts(tuple(models), tuple(questions), self.cells[chosen], self.before[chosen])


def read_counts(directory: Path) -> RunCounts:
    """What the newest look of a run has judged.

    Graded trials of an incomplete round are left out, as the run leaves them out: short answers arrive first, and are
    more often right.
    """
    reader = RunReader.open(directory)
    try:
        with reader.one_moment():
            stored = stored_run(reader.header())
            models = tuple(model.name for model in stored.config.models)
            questions = tuple(question.id for question in stored.questions)
            if stored.config.plug_ins:
                committed, before = _looked_at(reader, stored, models, questions), stored_prior_counts(reader)
            else:
                controller, _ = restored_controller(reader, stored, reader.events())
                committed, before = controller.counts.astype(np.int64), controller.plan.bench.prior_counts
            known = np.zeros_like(committed) if before is None else before
            return RunCounts(models, questions, committed + known, known)
    finally:
        reader.close()


def _looked_at(
    reader: RunReader, stored: StoredRun, models: Sequence[str], questions: Sequence[str]
) -> NDArray[np.int64]:
    """(L, M, K): of each model the rounds, from the first on, that together are no more than the newest look has."""
    shape = len(models), len(questions), len(open_rubric(stored.config.rubric).weights)
    look = reader.latest_look()
    told = {} if look is None else look.body
    most = dict(zip(cast(list[str], told.get("models", [])), cast(list[int], told.get("trials", [])), strict=True))
    model_at = {name: row for row, name in enumerate(models)}
    question_at = {key: column for column, key in enumerate(questions)}
    rounds: dict[tuple[str, int], NDArray[np.int64]] = defaultdict(lambda: np.zeros(shape[1:], dtype=np.int64))
    for model, question, number, category, trials in reader.round_counts():
        rounds[model, number][question_at[question], category] += trials
    cells, over = np.zeros(shape, dtype=np.int64), set[str]()
    for model, number in sorted(rounds, key=lambda one: one[1]):
        if model not in model_at or model in over:
            continue
        row = cells[model_at[model]]
        if row.sum() + rounds[model, number].sum() > most.get(model, 0):
            over.add(model)
        else:
            row += rounds[model, number]
    return cells
