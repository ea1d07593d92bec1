"""What an imported run has found: one look at all that is there, stored and published as that of any run."""

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Controller, Outcome, SetAside
from adaptive_eval.results import Results, build_results, take_snapshot, write_results
from adaptive_eval.run.history import with_beginnings
from adaptive_eval.run.meaning import stored_questions
from adaptive_eval.run.prepare import Prepared, prepared_with
from adaptive_eval.run.subject import subject_of
from adaptive_eval.scheduler.looks import plain_look
from adaptive_eval.scheduler.tallies import Tally
from adaptive_eval.scheduler.types import Cause
from adaptive_eval.store import Batch, Event, EventKind, Store, StoredOutcome


def conclude(directory: Path, config: RunConfig) -> Results | None:
    """Take the look, and write it down; None where no model has all that it needs.

    A model that lacks something is set aside, so that the others can be judged; `run` asks for what it lacks.
    """
    store = Store.attach(directory)
    try:
        header = store.reader.header()
        prepared = with_beginnings(prepared_with(config, stored_questions(header), header), store.reader)
        controller = Controller(prepared.plan)
        tallies = [Tally() for _ in prepared.models]
        ungraded: dict[int, str] = {}
        controller.restore(_told(prepared, store.reader.outcomes(), tallies, ungraded))
        events = _set_aside(prepared, controller, ungraded)
        looks = [plain_look(look, prepared.models) for look in controller.looks]
        reason = controller.finished
        ended = Event(EventKind.STOPPED) if reason is None else Event(EventKind.FINISHED, {"reason": str(reason)})
        store.commit(Batch(looks=looks, events=[*events, ended]))
        subject = subject_of(prepared.config, prepared.questions, store.reader.created)
        snapshot = take_snapshot(
            subject, controller, tallies, elapsed=0.0, now=time.time(), stopped=True, events=store.reader.events()
        )
        if snapshot is None:
            return None
        results = build_results(snapshot)
        write_results(directory, results)
        return results
    finally:
        store.close()


def _told(
    prepared: Prepared, stored: Iterable[StoredOutcome], tallies: list[Tally], ungraded: dict[int, str]
) -> Iterable[Outcome]:
    """The graded trials; a model whose answer has no grade is noted in `ungraded`."""
    model_at = {name: number for number, name in enumerate(prepared.models)}
    question_at = {question.id: number for number, question in enumerate(prepared.questions)}
    for one in stored:
        model = model_at[one.model]
        tallies[model].add(one)
        if one.category is None:
            ungraded.setdefault(model, f"no grade on question {one.question}")
        else:
            yield one.told(model, question_at[one.question])


def _set_aside(prepared: Prepared, controller: Controller, ungraded: dict[int, str]) -> list[Event]:
    """Go on without the models that lack something, unless all of them do."""
    lacking = controller.arrived.sum(axis=-1) < prepared.plan.opening
    silent = dict(controller.set_aside)
    models = np.flatnonzero(lacking.any(axis=1)).tolist()
    if len(models) == len(prepared.models):
        return []
    events = []
    for model in models:
        question = prepared.questions[int(lacking[model].argmax())].id
        reason = silent.get(model) or ungraded.get(
            model, f"not all trials of question {question} that the first look needs are there"
        )
        controller.tell([SetAside(model, reason)])
        cause = Cause.GRADER if model in ungraded else Cause.SERVER
        events.append(
            Event(EventKind.SET_ASIDE, {"model": prepared.models[model], "reason": reason, "cause": str(cause)})
        )
    return events
