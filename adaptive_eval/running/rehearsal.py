"""Rehearsal of a dry run: a few real answers of each model in each benchmark, graded as the run would grade them.

The answers are the first trials of these questions, and are kept for the run (`report.dry_run`).
"""

import asyncio
import shutil
import tempfile
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, GraderError, Rejected
from adaptive_eval.base.seeds import trial_seed
from adaptive_eval.config.planning import trial_cost
from adaptive_eval.config.prepare import PreparedRun, seed_base
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.pool import Grading
from adaptive_eval.graders.types import Grade
from adaptive_eval.machine.events import Answered, Event, Failed, Received
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.supply import Supply
from adaptive_eval.machine.trial import DONE, GRADING, UNGRADED, Request, Trial
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question
from adaptive_eval.report.dry_run import DRY_RUN
from adaptive_eval.running.answer_keys import open_run_graders
from adaptive_eval.running.grading import grade_answer
from adaptive_eval.running.simulator import with_simulator
from adaptive_eval.store.lock import make_directory
from adaptive_eval.store.redact import redact_trial
from adaptive_eval.store.write import RunStore
from adaptive_eval.supplies.opening import (
    SuppliedModel,
    SupplyContext,
    open_supplies,
    request_limits,
    within_open_files,
)

MAX_WAIT_SECONDS = 600.0
"""Seconds that an answer or its grade may take here; a run waits longer, for as many attempts as it may make."""


class TriedAnswer(NamedTuple):
    """A real answer, graded as the run would grade it, or why there is none."""

    model: str
    question: Question
    answer: Answer | EndpointError
    grade: Grade | GraderError | None
    trial: Trial | None = None
    """The answer as a trial of the run, its model by its place in the configuration; None if there is no answer, or
    Inspect has logged it elsewhere."""


def keep_answers(prepared: PreparedRun, directory: Path, tried: Sequence[TriedAnswer]) -> int:
    """Keep the answers for the run in `directory`, in place of those of an earlier dry run; returns how many.

    Raises `StoreError` if the run could not begin there.
    """
    trials = [answer.trial for answer in tried if answer.trial is not None]
    folder = directory / DRY_RUN
    if folder.exists():
        shutil.rmtree(folder)
    if trials:
        make_directory(directory)
        with closing(RunStore.open(folder, prepared.header, run_redactor(prepared.config))) as store:
            numbers = store.reader.models()
            store.append(*(trial._replace(model=numbers[prepared.models[trial.model]]) for trial in trials))
    return len(trials)


class _Replies:
    """The answers that supplies post, by request."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Received]] = {}

    async def ask(self, supply: Supply, request: Request) -> Received:
        """Have a request answered; raises `EndpointError` if it is not."""
        reply: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = reply
        supply.submit(request, claimed=False)
        try:
            return await reply
        finally:
            supply.cancel([request.id])

    def post(self, event: Event) -> None:
        """Hand out a reply."""
        if isinstance(event, Answered | Failed) and not (reply := self._waiting[event.request]).done():
            if isinstance(event, Answered):
                reply.set_result(event.answers[0])
            else:
                refused = event.kind is RequestFailure.REFUSED
                reply.set_exception(Rejected(event.reason) if refused else EndpointError(event.reason))

    def fail(self, error: BaseException) -> None:
        """Hand an error out to all that wait."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(error)


async def try_answers(prepared: PreparedRun, models: Collection[str]) -> list[TriedAnswer]:
    """Ask these models, whose servers are up, the first questions, with the seeds of their first trials. Models with a
    batch service are asked directly, since a batch takes too long."""
    config = prepared.config
    chosen = [number for number, name in enumerate(prepared.models) if name in models]
    redactor, replies = run_redactor(config), _Replies()
    async with AsyncExitStack() as stack:
        grading = await stack.enter_async_context(open_run_graders(prepared))
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="adaptive-eval-rehearsal-")))
        asked = await with_simulator(config, stack)
        direct = {number: asked.models[number].model_copy(update={"batch": None}) for number in chosen}
        asked = asked.model_copy(update={"models": tuple(direct.values())})
        asked, notices = within_open_files(asked)
        context = SupplyContext(
            prepared, asked, logs, redactor, notices, stack, replies.post, replies.fail, patient=False
        )
        bases = {number: seed_base(config, config.models[number]) for number in chosen}

        def seed(model: int, question: int, number: int) -> int:
            return trial_seed(bases[model](prepared.questions[question].id), number)

        supplied = {
            number: SuppliedModel(model, prepared.prompts[number].__getitem__, partial(seed, number), trial_cost(model))
            for number, model in direct.items()
        }
        supplies = open_supplies(context, supplied)
        for supply in {id(supply): supply for supply in supplies.values()}.values():
            stack.push_async_callback(supply.close)
        first = {
            number: _first_questions(prepared, request_limits(model).rehearsed) for number, model in direct.items()
        }
        pairs = [(number, question) for number in chosen for question in first[number]]
        requests = [Request(at, *pair, 0, 1, 0) for at, pair in enumerate(pairs)]
        tried = await asyncio.gather(
            *(_try(prepared, supplies[request.model], replies, request, grading, redactor) for request in requests)
        )
    logged = {model.name for model in direct.values() if model.inspect is not None}
    return [answer._replace(trial=None) if answer.model in logged else answer for answer in tried]


def _first_questions(prepared: PreparedRun, number: int) -> list[int]:
    """The indices of the first questions of each benchmark, so many of each."""
    by_benchmark: dict[str, list[int]] = {}
    for at, question in enumerate(prepared.questions):
        name = benchmark_named(question.id) if prepared.config.benchmarks else ""
        by_benchmark.setdefault(name, []).append(at)
    return [at for numbers in by_benchmark.values() for at in numbers[:number]]


async def _try(
    prepared: PreparedRun, supply: Supply, replies: _Replies, request: Request, grading: Grading, redactor: Redactor
) -> TriedAnswer:
    name, question = prepared.models[request.model], prepared.questions[request.question]
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            received = await replies.ask(supply, request)
    except EndpointError as error:
        redactor.error(error)
        return TriedAnswer(name, question, error, None)
    except TimeoutError:
        servers = ", ".join(replica.url for replica in supply.stats(request.model).replicas) or "its server"
        late = f"{name} has not answered within {MAX_WAIT_SECONDS / 60:g} minutes at {servers}; a run may wait longer"
        return TriedAnswer(name, question, EndpointError(late), None)
    answer = received.answer
    assert answer is not None
    trial = Trial(
        *(request.model, request.question, 0, 0),
        state=GRADING,
        cost=received.cost,
        kinds=received.kinds,
        seconds=received.seconds,
        answer=answer,
    )
    try:
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            graded = await grade_answer(grading, trial, question, None)
    except TimeoutError:
        late = f"its grade has not come within {MAX_WAIT_SECONDS / 60:g} minutes; a run may wait longer"
        return TriedAnswer(name, question, answer, GraderError(late))
    state = UNGRADED if graded.category is None else DONE
    trial = trial._replace(state=state, category=graded.category, verdict=graded.cost, grade=graded.details)
    trial = redact_trial(trial, answer, redactor)
    details, shown = trial.grade, trial.answer
    assert details is not None and shown is not None
    if trial.category is None:
        return TriedAnswer(name, question, shown, GraderError(details.error or ""), trial)
    return TriedAnswer(name, question, shown, Grade(trial.category, details.signals, details.extracted), trial)
