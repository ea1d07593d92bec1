"""Grading for the event loop: at once where that is cheap, in a worker process where it may take time.

Worker processes are started when there is work, killed when they hang, replaced when they are gone. The clock of an
answer starts when its worker begins with it, and runs in the worker. The parent steps in only where a worker is silent
for longer than that: it is killed, the answer it was at is a grader error, and what it had not begun goes to another.
What uses up the time or the memory, or ends its worker, gets the benefit of the doubt once: the answer is tried again
in a fresh process, and after that by nobody in this start of the run.

An answer that takes long holds up no other: after `PATIENCE` its worker leaves its lane to another one, and what it has
not begun goes there, too. A worker grades in a lane, of which there are as many as processes were wanted.
"""

import asyncio
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice
from adaptive_eval.errors import GraderError, GraderExhausted
from adaptive_eval.graders.categorised import categorised
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import (
    FLAGS,
    Grade,
    Grader,
    MarkedAnswer,
    Marks,
    answer_facts,
    reads_as_refusal,
    token_facts,
)
from adaptive_eval.graders.worker import GradingTask, TaskDone, TaskFailed, Worker, WorkerDead, WorkerHung, WorkerSetup
from adaptive_eval.questions.types import Question

BATCH = 32
BATCH_CHARACTERS = 1_000_000
START_LIMIT = 120.0
GRACE = 1.0
"""Seconds beyond the time limit after which a silent worker is killed."""
PATIENCE = 0.5
"""Seconds after which an answer has taken long."""
MOST_SLOW = 4
"""Workers that are at such answers, beside those in lanes, where the number of workers was left open."""
ATTEMPTS = 2
CLOSED = TaskFailed("was closed before it came to this answer", over=True)


@dataclass(slots=True, eq=False)
class _Job:
    """An answer that waits for its marks."""

    task: GradingTask
    result: asyncio.Future[Marks]
    attempts: int = 0

    def settle(self, reply: TaskDone | TaskFailed) -> None:
        """Give the caller its marks or its error, unless it has gone."""
        if self.result.done():
            return
        if isinstance(reply, TaskDone) and reply.marks is not None:
            self.result.set_result(reply.marks)
        else:
            reason = reply.reason if isinstance(reply, TaskFailed) else "gave no marks"
            final = isinstance(reply, TaskFailed) and reply.over
            self.result.set_exception((GraderExhausted if final else GraderError)(f"the grader {reason}"))


class Workers:
    """Grades in at most `count` processes, in batches."""

    def __init__(self, grader: Grader, count: int, folder: Path, keys: Collection[str] = ()) -> None:
        self._grader, self._count, self._folder, self._keys = grader, count, folder, keys
        self._waiting: asyncio.Queue[_Job] = asyncio.Queue()
        self._serving: set[asyncio.Task[None]] = set()
        self._lanes = asyncio.Semaphore(count)
        self._most_slow = MOST_SLOW if grader.workers is None else 0
        self._slow = 0
        """Workers that have left their lanes."""
        self._idle = 0
        self._closed = False
        self._started = False
        self._refused: TaskFailed | None = None
        """Why the grader cannot start, as its first process said: the next one would say the same."""

    @property
    def refused(self) -> str | None:
        """Why no answer can be graded at all; None: as far as is known, they can."""
        return None if self._refused is None else self._refused.reason

    async def grade(self, text: str, question: Question) -> Marks:
        """The marks of one answer, from a worker."""
        job = _Job(GradingTask(text, question), asyncio.get_running_loop().create_future())
        if (told := CLOSED if self._closed else self._refused) is not None:
            job.settle(told)
        else:
            self._waiting.put_nowait(job)
            self._spread()
        return await job.result

    def _spread(self) -> None:
        """Have one more worker where something waits and there is a lane for it."""
        if self._idle == 0 and len(self._serving) - self._slow < self._count and not self._waiting.empty():
            self._serving.add(asyncio.create_task(self._serve()))

    async def close(self) -> None:
        """End every worker; what was not graded yet is a grader error."""
        self._closed = True
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._serving.clear()
        for job in self._take_waiting():
            job.settle(CLOSED)

    async def _serve(self) -> None:
        """One worker and its successors, for ever."""
        worker: Worker | None = None
        batch: list[_Job] = []
        try:
            while True:
                with ExitStack() as lane:
                    await self._lanes.acquire()
                    lane.callback(self._lanes.release)
                    if not (batch := await self._batch()):
                        continue
                    worker = worker or await self._start(batch)
                    if worker is not None and not await self._grade(worker, batch, lane):
                        await worker.end()
                        worker = None
        finally:
            if worker is not None and not all(job.result.done() for job in batch):
                worker.kill()
            for job in batch:
                job.settle(CLOSED)
            if worker is not None:
                await worker.end()

    async def _batch(self) -> list[_Job]:
        """A worker's share of what is waiting."""
        self._idle += 1
        try:
            batch = [await self._waiting.get()]
        finally:
            self._idle -= 1
        share = min(BATCH, self._waiting.qsize() // self._count + 1)
        characters = len(batch[0].task.text)
        while len(batch) < share and characters < BATCH_CHARACTERS and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
            characters += len(batch[-1].task.text)
        return [job for job in batch if not job.result.done()]  # others have been graded elsewhere, or are not wanted

    def _take_waiting(self) -> list[_Job]:
        """All that nobody has begun with."""
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]

    async def _start(self, batch: Sequence[_Job]) -> Worker | None:
        """A new worker that is ready; without one, the batch has failed with the reason."""
        try:
            worker = await Worker.start(self._folder, self._keys)
        except OSError as error:
            reply: TaskDone | TaskFailed = TaskFailed(f"cannot start: {error}", over=True)
        else:
            ready = False
            try:
                await worker.send(WorkerSetup(self._grader))
                reply = await self._reply(worker, START_LIMIT)
                ready = isinstance(reply, TaskDone)
            finally:
                if not ready:
                    worker.kill()
                    await worker.end()
            if isinstance(reply, TaskDone):
                self._started = True
                return worker
            if not reply.again and not self._started:
                self._refused = reply
                batch = [*batch, *self._take_waiting()]
        for job in batch:
            job.settle(reply)
        return None

    async def _grade(self, worker: Worker, batch: Sequence[_Job], lane: ExitStack) -> bool:
        """Have a batch graded. False: the worker is gone, and what it had not begun waits for another."""
        await worker.send([job.task for job in batch])
        limit, left = self._grader.timeout + GRACE, False
        for number, job in enumerate(batch, start=1):
            reply, waited = None, 0.0
            if not left and limit > PATIENCE and self._slow < self._most_slow:
                reply, waited = await self._soon(worker), PATIENCE
                if reply is None:
                    left = True
                    worker.give_way()
                    self._leave(lane, batch[number:])
            reply = reply or await self._reply(worker, limit - waited, waited)
            job.attempts += 1
            if isinstance(reply, TaskFailed) and reply.again and job.attempts < ATTEMPTS:
                self._waiting.put_nowait(job)
            else:
                job.settle(reply)
            if isinstance(reply, TaskFailed) and reply.over:
                for rest in () if left else batch[number:]:
                    self._waiting.put_nowait(rest)
                return False
        return True

    def _leave(self, lane: ExitStack, rest: Sequence[_Job]) -> None:
        """Give the lane to another worker, which is started if there is none, and what waits behind a long answer."""
        lane.pop_all().close()
        self._slow += 1
        lane.callback(self._come_back)
        for job in rest:
            self._waiting.put_nowait(job)
        self._spread()

    def _come_back(self) -> None:
        self._slow -= 1

    async def _reply(self, worker: Worker, limit: float, waited: float = 0.0) -> TaskDone | TaskFailed:
        """The next reply, after so long in vain; a worker that does not give it within `limit` is killed."""
        try:
            return await worker.receive(limit)
        except WorkerHung:
            worker.kill()
            return TaskFailed(f"was silent for {waited + limit:g} s and was killed", over=True, again=True)
        except WorkerDead as error:
            return TaskFailed(str(error), over=True, again=True)

    async def _soon(self, worker: Worker) -> TaskDone | TaskFailed | None:
        """The next reply where it does not take long."""
        try:
            return await worker.receive(PATIENCE, last=False)
        except WorkerHung:
            return None
        except WorkerDead as error:
            return TaskFailed(str(error), over=True, again=True)


MOST_WORKERS = 4
FEWEST_WORKERS = 2
"""On a small machine, too, one answer that takes long must not hold up all others."""


class GradingPool:
    """Grades answers: the grader's signals and the answer's own, made into a category by the rubric."""

    lasting = False
    """A grade is there in a moment."""
    lost = NO_COST
    notices: Sequence[Notice] = ()

    def __init__(self, grader: Grader, rubric: Rubric, *, folder: Path = Path(), keys: Collection[str] = ()) -> None:
        """`keys` are variables that worker processes do not get, besides all that are named like secrets."""
        self._grader = grader
        self.rubric = rubric
        """Replaced once its thresholds are fitted."""
        self._workers = Workers(grader, grader.workers or _default_workers(), folder, keys)

    def lost_with(self, answer: str, question: Question) -> Cost:
        """Nothing is asked for a grade."""
        return NO_COST

    def lost_vote(self, lost: Cost) -> Cost:
        """Nothing is asked for a grade."""
        return NO_COST

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """The grade of an answer; `GraderError` says why there is none, and the answer can be graded again.

        `again` is never asked: nothing is paid for.
        """
        marks = answer.given() if isinstance(answer, MarkedAnswer) else await self.marks(answer.text, question)
        return make_grade(answer, marks, self.rubric, question.id)

    async def marks(self, text: str, question: Question) -> Marks:
        """What the grader finds in a text; `GraderError` says why it finds nothing."""
        marks = self._quick(text, question)
        return marks if marks is not None else await self._workers.grade(text, question)

    @property
    def refused(self) -> str | None:
        """Why the grader cannot start, whatever the answer; None: as far as is known, it can."""
        return self._workers.refused

    async def close(self) -> None:
        """End the worker processes."""
        await self._workers.close()

    def _quick(self, text: str, question: Question) -> Marks | None:
        try:
            return self._grader.quick(text, question)
        except GraderError:
            raise
        except Exception as error:  # a grader that fails is no wrong answer, whatever it failed with
            raise GraderError(f"the grader raised {type(error).__name__}: {error}") from error


def make_grade(answer: Answer, marks: Marks, rubric: Rubric, question: str = "") -> Grade:
    """The category of an answer, and the signals that led to it: all of the grader's, and the flags that are up."""
    facts = answer_facts(answer)
    if not marks.signals.get("has_answer", True) and reads_as_refusal(answer.text):
        facts["refusal"] = True
    raised = {flag: True for flag in FLAGS if facts[flag]}
    signals = {**token_facts(answer.token_logprobs), **marks.signals}
    found = categorised({**facts, **signals}, rubric, question)
    return Grade(found.category, {**signals, **raised, **found.measured}, marks.extracted)


def _default_workers() -> int:
    """One per core but one, at least two and at most four."""
    return max(FEWEST_WORKERS, min(MOST_WORKERS, (os.cpu_count() or 2) - 1))
