"""What a stored run has found, worked out anew from its trials: of runs that go on, were killed, or were imported."""

import json
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Controller, Outcome
from adaptive_eval.core.types import SetAside
from adaptive_eval.questions import Question
from adaptive_eval.results import Results, build_results, take_snapshot
from adaptive_eval.run.history import stored_plan
from adaptive_eval.run.meaning import stored_question
from adaptive_eval.run.subject import subject_of
from adaptive_eval.scheduler.tallies import Tally
from adaptive_eval.store import Event, EventKind, RunHeader, RunReader


class StoredRun(NamedTuple):
    """A run's newest configuration and its questions."""

    config: RunConfig
    questions: tuple[Question, ...]


def stored_run(header: RunHeader) -> StoredRun:
    """The configuration and the questions of a run, as they were stored."""
    config = RunConfig.model_validate_json(json.dumps(header.configuration))
    return StoredRun(config, tuple(stored_question(key, body) for key, body in header.questions.items()))


def restored_results(reader: RunReader, stored: StoredRun, *, running: bool) -> Results | None:
    """The results as of the newest complete round; None before the first look."""
    config, questions = stored
    events = reader.events()
    controller, tallies = restored_controller(reader, stored, events)
    subject = subject_of(config, questions, reader.created)
    snapshot = take_snapshot(
        subject, controller, tallies, elapsed=reader.elapsed, now=time.time(), stopped=not running, events=events
    )
    return None if snapshot is None else build_results(snapshot)


def restored_controller(
    reader: RunReader, stored: StoredRun, events: Sequence[Event]
) -> tuple[Controller, list[Tally]]:
    """The controller of a run as its stored trials leave it, and what was stored of each model."""
    controller = Controller(stored_plan(reader))
    tallies = [Tally() for _ in stored.config.models]
    set_aside = _set_aside(events)
    names = [model.name for model in stored.config.models]
    keys = [question.id for question in stored.questions]
    controller.restore(_outcomes(reader, names, keys, tallies, set_aside))
    controller.tell(SetAside(names.index(str(event.body["model"])), str(event.body["reason"])) for event in set_aside)
    controller.tick(reader.elapsed)
    return controller, tallies


def _set_aside(events: Sequence[Event]) -> list[Event]:
    """The models that the run goes on without since it was last started."""
    starts = [at for at, event in enumerate(events) if event.kind in (EventKind.STARTED, EventKind.RESUMED)]
    return [event for event in events[max(starts, default=0) :] if event.kind is EventKind.SET_ASIDE]


def _outcomes(
    reader: RunReader, names: Sequence[str], keys: Sequence[str], tallies: Sequence[Tally], set_aside: Sequence[Event]
) -> Iterator[Outcome]:
    """The graded trials; of a model that was set aside those that came before, as the run itself has judged it."""
    model_of = {name: model for model, name in enumerate(names)}
    question_of = {key: question for question, key in enumerate(keys)}
    last = {str(event.body["model"]): reader.count_until(event.at) for event in set_aside}
    for place, stored in enumerate(reader.outcomes()):
        model = model_of.get(stored.model)
        if model is None:
            continue
        tallies[model].add(stored)
        if stored.category is not None and place < last.get(stored.model, place + 1):
            yield stored.told(model, question_of[stored.question])
