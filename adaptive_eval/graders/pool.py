"""Grading for the event loop: inline if that is cheap, else in a worker process.

Worker processes are started on demand, killed when they hang, and replaced when they die. The time limit for an answer
is measured in the worker, from when it starts on that answer. If a worker is silent for longer, the parent kills it. An
answer that used up its time computing is not retried. An answer that only waited, ran out of memory or ended its worker
is retried once in a new process, and one on which a function raised an exception once.

An answer that takes longer than `SLOW_AFTER` is slow. Slow answers may use all workers but one, and further ones wait
for one of these, so that they do not delay others; a single worker grades them when no other answer waits.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, TypeVar

from adaptive_eval.base.errors import GraderError
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, EndpointStats, Notice, RetryGate
from adaptive_eval.graders.frozen import length_ratio
from adaptive_eval.graders.rubric import Rubric, apply_rubric
from adaptive_eval.graders.types import (
    FLAGS,
    Grade,
    GraderOptions,
    MarkedAnswer,
    Marks,
    WorkerSettings,
    answer_facts,
    reads_as_refusal,
)
from adaptive_eval.graders.worker import (
    GradingTask,
    TaskFailed,
    TaskReply,
    Worker,
    WorkerDead,
    WorkerHung,
    timeout_reason,
)
from adaptive_eval.questions.types import Question

START_TIMEOUT = 120.0
"""Seconds for a worker to start."""
KILL_GRACE = 2.0
"""Seconds after the time limit until a silent worker is killed."""
SLOW_AFTER = 0.5
"""Seconds after which an answer counts as slow."""
MAX_ATTEMPTS = 2
Result = TypeVar("Result")
POOL_CLOSED = TaskFailed("was closed before it graded this answer", process_ended=True)


class Grading:
    """Turns answers into grades, or raises `GraderError`. This base class sends no requests."""

    lasting = False
    """Whether some grades need requests."""
    lost = NO_COST
    """Upper bound on the cost of the requests for any grade."""
    at_once = 16
    """Maximum number of answers to grade at a time, if grades need requests."""
    rubric: Rubric

    @property
    def notices(self) -> Sequence[Notice]:
        """Notices about the grading servers, oldest first."""
        return ()

    @property
    def stats(self) -> Mapping[str, EndpointStats]:
        """The traffic with each grading server, by the name of its judge."""
        return {}

    def asks(self, question: Question) -> bool:
        """Whether grading an answer to this question needs a request; if so, it is stored before it is graded."""
        return False

    def lost_with(self, answer: str, question: Question) -> Cost:
        """Upper bound on the cost of the requests for the grade of this answer."""
        return NO_COST

    def lost_vote(self, lost: Cost) -> Cost:
        """Upper bound on the cost of one lost reply, if all requests for the grade may cost `lost`."""
        return NO_COST

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        """The grade of an answer if that takes no waiting; raises `GraderError` if the grader fails."""
        return None

    async def grade(self, answer: Answer, question: Question, retry_gate: RetryGate | None = None) -> Grade:
        """Grade an answer; `retry_gate` is called before a request with a lost reply is repeated."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close all connections and end the worker processes."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class GradingPool(Grading):
    """Grades answers in worker processes; the rubric turns the grader's and the answer's signals into a category."""

    def __init__(self, grader: GraderOptions, rubric: Rubric, settings: WorkerSettings) -> None:
        self._grader, self.rubric, self._settings, self._limits = grader, rubric, settings, settings.limits
        self._count = self._limits.workers or _default_workers()
        self._places = asyncio.Semaphore(self._count)
        self._slow_places = asyncio.Semaphore(max(1, self._count - 1))
        """Those of the places that slow answers may use."""
        self._gradings: set[asyncio.Task[Marks]] = set()
        self._live: set[Worker] = set()
        self._idle: list[Worker] = []
        self._closed = False
        self._started = False
        self._refusal: TaskFailed | None = None

    @property
    def refused(self) -> str | None:
        """Why the first process of the grader could not start; others would fail for the same reason."""
        return None if self._refusal is None else self._refusal.reason

    async def grade(self, answer: Answer, question: Question, retry_gate: RetryGate | None = None) -> Grade:
        marks = answer.require_marks() if isinstance(answer, MarkedAnswer) else await self.marks(answer.text, question)
        return make_grade(answer, marks, self.rubric, question.id)

    def grade_now(self, answer: Answer, question: Question) -> Grade | None:
        marks = answer.require_marks() if isinstance(answer, MarkedAnswer) else self._quick_marks(answer.text, question)
        return None if marks is None else make_grade(answer, marks, self.rubric, question.id)

    async def marks(self, text: str, question: Question) -> Marks:
        """The grader's marks for a text; raises `GraderError` if it gives none."""
        if (marks := self._quick_marks(text, question)) is not None:
            return marks
        grading = asyncio.create_task(self._grade_in_worker(GradingTask(text, question)))
        self._gradings.add(grading)
        grading.add_done_callback(self._gradings.discard)
        return await grading

    def _quick_marks(self, text: str, question: Question) -> Marks | None:
        """Marks that the grader gives at once; None if it needs a worker."""
        try:
            return self._grader.quick(text, question)
        except GraderError:
            raise
        except Exception as error:  # any failure of a grader is a grader error, not a wrong answer
            raise GraderError(f"the grader raised {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """End all workers; answers that are not graded yet get grader errors."""
        self._closed = True
        for worker in self._live.difference(self._idle):
            worker.kill()
        await asyncio.gather(*self._gradings, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._live))

    async def _grade_in_worker(self, task: GradingTask) -> Marks:
        """Grade an answer, as a slow one if necessary, and retry once if that may help."""
        slow, attempts = False, 0
        while True:
            try:
                reply = await self._attempt(task, slow)
            except WorkerHung:
                slow = True
                continue
            attempts += 1
            if reply is None:
                raise GraderError("the grader gave no marks")
            if isinstance(reply, Marks):
                return reply
            if self._closed or not reply.may_retry or attempts == MAX_ATTEMPTS:
                raise GraderError(f"the grader {(POOL_CLOSED if self._closed else reply).reason}")

    async def _attempt(self, task: GradingTask, slow: bool) -> TaskReply:
        """Grade with an idle or a new worker; raises `WorkerHung` if the answer needs the place of a slow one."""
        held: list[asyncio.Semaphore] = []
        try:
            for places in [self._slow_places, self._places] if slow else [self._places]:
                await places.acquire()
                held.append(places)
            if self._closed or self._refusal is not None:
                return self._refusal or POOL_CLOSED
            try:
                worker = self._idle.pop() if self._idle else await Worker.start(self._settings)
            except OSError as error:
                return TaskFailed(f"cannot start: {error}", process_ended=True)
            ready = worker in self._live
            self._live.add(worker)
            reply: TaskReply = POOL_CLOSED
            try:
                reply = None if ready else await self._set_up(worker)
                if reply is None:
                    reply = POOL_CLOSED
                    reply = await self._ask(worker, task, held, slow)
            finally:
                if isinstance(reply, TaskFailed) and reply.process_ended:
                    worker.kill()
                    self._live.discard(worker)
                    await worker.end()
                else:
                    self._idle.append(worker)
            return reply
        finally:
            for places in held:
                places.release()

    async def _set_up(self, worker: Worker) -> TaskReply:
        """Send its grader and its limits to a new worker."""
        if self._closed:
            return POOL_CLOSED
        worker.send((self._grader, self._limits))
        reply = await self._reply(worker, START_TIMEOUT)
        if not isinstance(reply, TaskFailed):
            self._started = True
        elif not (reply.may_retry or self._started or self._closed):
            self._refusal = reply
        return reply

    async def _ask(self, worker: Worker, task: GradingTask, held: list[asyncio.Semaphore], slow: bool) -> TaskReply:
        """Grade with a worker; after `SLOW_AFTER` the answer needs the place of a slow one, unless it has one."""
        worker.send(task)
        limit = self._limits.timeout + KILL_GRACE
        if slow:
            return await self._reply(worker, limit)
        try:
            return await self._reply(worker, limit, patient=False)
        except WorkerHung:
            others_wait = self._count == 1 and len(self._gradings) > 1
            if others_wait or self._slow_places.locked():
                raise
        await self._slow_places.acquire()
        held.append(self._slow_places)
        return await self._reply(worker, limit, waited=SLOW_AFTER)

    async def _reply(self, worker: Worker, limit: float, *, waited: float = 0.0, patient: bool = True) -> TaskReply:
        """Wait for the next reply for `limit` seconds, of which `waited` have passed; a timeout is a failure.

        Unless `patient`, raises `WorkerHung` after `SLOW_AFTER` instead.
        """
        try:
            return await worker.receive(limit - waited if patient else SLOW_AFTER)
        except WorkerHung:
            if not patient:
                raise
            return TaskFailed(f"was silent for {limit:g} s and was killed", process_ended=True, may_retry=True)
        except WorkerDead as error:
            reason = timeout_reason(self._limits.timeout) if error.out_of_time else str(error)
            return TaskFailed(reason, process_ended=True, may_retry=not error.out_of_time)


def make_grade(answer: Answer, marks: Marks, rubric: Rubric, question: str = "") -> Grade:
    """Build the grade of an answer: its category, and the grader's signals with the answer's flags."""
    facts = answer_facts(answer)
    if not marks.signals.get("has_answer", True) and reads_as_refusal(answer.text):
        facts["refusal"] = True
    raised = {flag: True for flag in FLAGS if facts[flag]}
    category = apply_rubric({**facts, **marks.signals}, rubric, question)
    measured = length_ratio({**facts, **marks.signals}, question, rubric.medians)
    return Grade(category, {**marks.signals, **raised, **measured}, marks.extracted)


def why_unanswered(answer: Answer) -> str | None:
    """Why there is nothing to grade; None if there is an answer."""
    if "unanswered" not in answer.signals:
        return None
    return f"every attempt at it failed, and others are answered: {answer.finish_reason}"


async def grade_or_error(
    grade: Callable[[Answer, Question], Awaitable[Result]], answer: Answer, question: Question
) -> Result | GraderError:
    """Grade an answer; returns the error of the grader, or of the server if it gave no answer."""
    if (why := why_unanswered(answer)) is not None:
        return GraderError(why)
    try:
        return await grade(answer, question)
    except GraderError as error:
        return error


def _default_workers() -> int:
    """Number of cores minus one, but two to eight: with one, a slow answer would block all others."""
    return max(2, min(8, (os.cpu_count() or 2) - 1))
