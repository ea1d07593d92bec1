"""Grading for the event loop: at once where that is cheap, in a worker process where it may take time.

Worker processes are started when there is work, killed when they hang, replaced when they are gone. The clock of an
answer starts when its worker begins with it, and runs in the worker. The parent steps in only where a worker is silent
for longer than that: it is killed, the answer it was at is a grader error, and what it had not begun goes to another.
What has computed until its time was over is given up. What waits in vain, uses up the memory or ends its worker is
tried once more, in a fresh process, and after that by nobody in this start of the run.

An answer that takes longer than `PATIENCE` holds up no other: its worker goes on with it beside the others, and gives
way to them. As many are at such answers as at usual ones. What is slow beyond that waits for one of these, as does what
the grader knows to be slow beforehand. Where the number of workers is given, slow answers have all but one of them; a
single worker comes to them when nothing else waits.
"""

import asyncio
import os
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice
from adaptive_eval.errors import GraderError, GraderExhausted
from adaptive_eval.graders.rubric import Rubric, categorised
from adaptive_eval.graders.types import (
    FLAGS,
    Grade,
    GraderOptions,
    MarkedAnswer,
    Marks,
    answer_facts,
    reads_as_refusal,
    token_facts,
)
from adaptive_eval.graders.worker import GradingTask, TaskDone, TaskFailed, Worker, WorkerDead, WorkerHung, took_longer
from adaptive_eval.questions.types import Question

BATCH = 32
BATCH_CHARACTERS = 1_000_000
START_LIMIT = 120.0
GRACE = 2.0
"""Seconds beyond the time limit after which a silent worker is killed."""
PATIENCE = 0.5
"""Seconds after which an answer has taken long."""
ATTEMPTS = 2
CLOSED = TaskFailed("was closed before it came to this answer", over=True)


@dataclass(slots=True, eq=False)
class _Job:
    """An answer that waits for its marks."""

    task: GradingTask
    result: asyncio.Future[Marks]
    slow: bool = False
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
    """Grades in at most `count` processes, in batches; with `beside` in as many more, which are for slow answers."""

    def __init__(
        self, grader: GraderOptions, count: int, folder: Path, keys: Collection[str] = (), *, beside: bool = False
    ) -> None:
        self._grader, self._count, self._folder, self._keys = grader, count, folder, keys
        self._beside = beside
        self._most_slow = count if beside else max(1, count - 1)
        self._waiting: deque[_Job] = deque()
        self._slow: deque[_Job] = deque()
        """Those that wait for a worker that is for slow answers."""
        self._at_work: dict[asyncio.Task[None], bool] = {}
        """For each batch: it is a slow answer."""
        self._idle: dict[bool, list[Worker]] = {False: [], True: []}
        """Workers without work; those at True have given way to others."""
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
            job.slow = self._grader.is_slow(text, question)
            self._put(job)
        return await job.result

    async def close(self) -> None:
        """End every worker; what was not graded yet is a grader error."""
        self._closed = True
        for task in self._at_work:
            task.cancel()
        await asyncio.gather(*self._at_work, return_exceptions=True)
        for job in self._take_waiting():
            job.settle(CLOSED)
        await asyncio.gather(*(worker.end() for idle in self._idle.values() for worker in idle))

    def _put(self, *jobs: _Job) -> None:
        """Have jobs wait, and begin with what there is a worker for."""
        for job in jobs:
            (self._slow if job.slow else self._waiting).append(job)
        while not self._closed and (batch := self._batch()):
            task = asyncio.create_task(self._serve(batch))
            self._at_work[task] = batch[0].slow
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._at_work[task]
        self._put()

    def _batch(self) -> list[_Job]:
        """What a worker can begin with now; nothing if nothing waits, or all workers are busy."""
        slow = self._slow_ones
        free = len(self._at_work) - (slow if self._beside else 0) < self._count
        batch = self._share() if free else []
        while not batch and self._slow and slow < self._most_slow and (free or self._beside):
            batch = [job for job in [self._slow.popleft()] if not job.result.done()]
        return batch

    def _share(self) -> list[_Job]:
        """A worker's share of what is waiting."""
        batch: list[_Job] = []
        share = min(BATCH, -(-len(self._waiting) // self._count))
        characters = 0
        while self._waiting and len(batch) < share and characters < BATCH_CHARACTERS:
            job = self._waiting.popleft()
            if not job.result.done():  # others have been graded elsewhere, or are not wanted
                batch.append(job)
                characters += len(job.task.text)
        return batch

    async def _serve(self, batch: Sequence[_Job]) -> None:
        """Grade a batch, with a worker that is idle or a new one."""
        slow = batch[0].slow and self._beside
        idle = self._idle[slow] or self._idle[False]
        worker, kept = idle.pop() if idle else None, False
        try:
            worker = worker or await self._start(batch, slow)
            if worker is not None:
                if slow:
                    worker.give_way()
                kept = await self._grade(worker, batch)
        except BaseException:
            for job in batch:
                job.settle(CLOSED)
            raise
        finally:
            if worker is not None:
                await self._keep(worker) if kept else await self._end(worker)

    async def _keep(self, worker: Worker) -> None:
        """Have a worker wait for its next batch, unless there are enough for slow answers."""
        idle = self._idle[worker.gives_way]
        if worker.gives_way and self._slow_ones + len(idle) > self._most_slow:
            await worker.end()
        else:
            idle.append(worker)

    async def _end(self, worker: Worker) -> None:
        worker.kill()
        await worker.end()

    @property
    def _slow_ones(self) -> int:
        """Slow answers that workers are at."""
        return sum(self._at_work.values())

    def _take_waiting(self) -> list[_Job]:
        """All that nobody has begun with."""
        taken = [*self._waiting, *self._slow]
        self._waiting.clear()
        self._slow.clear()
        return taken

    async def _start(self, batch: Sequence[_Job], slow: bool) -> Worker | None:
        """A new worker that is ready; without one, the batch has failed with the reason."""
        try:
            worker = await Worker.start(self._folder, self._keys)
        except OSError as error:
            reply: TaskDone | TaskFailed = TaskFailed(f"cannot start: {error}", over=True)
        else:
            ready = False
            try:
                if slow:
                    worker.give_way()
                await worker.send(self._grader)
                reply = await self._reply(worker, START_LIMIT)
                ready = isinstance(reply, TaskDone)
            finally:
                if not ready:
                    await self._end(worker)
            if isinstance(reply, TaskDone):
                self._started = True
                return worker
            if not reply.again and not self._started:
                self._refused = reply
                batch = [*batch, *self._take_waiting()]
        self._settle(reply, *batch)
        return None

    def _settle(self, reply: TaskDone | TaskFailed, *jobs: _Job) -> None:
        """Give jobs this reply, or have them wait for another worker where that may help."""
        put_back = []
        for job in jobs:
            job.attempts += 1
            if isinstance(reply, TaskFailed) and reply.again and job.attempts < ATTEMPTS:
                put_back.append(job)
            else:
                job.settle(reply)
        self._put(*put_back)

    async def _grade(self, worker: Worker, batch: Sequence[_Job]) -> bool:
        """Have a batch graded. False: the worker is gone, and what it had not begun waits for another."""
        await worker.send([job.task for job in batch])
        limit = self._grader.timeout + GRACE
        for number, job in enumerate(batch, start=1):
            reply, waited = None, 0.0
            rest = batch[number:]
            if not job.slow and limit > PATIENCE:
                reply, waited = await self._soon(worker), PATIENCE
                if reply is None:
                    job.slow = True
                    if not self._goes_on(worker, rest):
                        self._put(*rest, job)
                        return False
                    rest = ()
            reply = reply or await self._reply(worker, limit - waited, waited)
            self._settle(reply, job)
            if isinstance(reply, TaskFailed) and reply.over:
                self._put(*rest)
                return False
            if job.slow:
                break
        return True

    def _goes_on(self, worker: Worker, rest: Sequence[_Job]) -> bool:
        """Whether a worker stays at an answer that takes long; what waits behind it goes to others then."""
        only = self._count == 1 and not self._beside
        if self._slow_ones >= self._most_slow or (only and (rest or self._waiting)):
            return False
        task = asyncio.current_task()
        assert task is not None
        self._at_work[task] = True
        if self._beside:
            worker.give_way()
        self._put(*rest)
        return True

    async def _reply(self, worker: Worker, limit: float, waited: float = 0.0) -> TaskDone | TaskFailed:
        """The next reply, after so long in vain; a worker that does not give it within `limit` is killed."""
        try:
            return await worker.receive(limit)
        except WorkerHung:
            worker.kill()
            return TaskFailed(f"was silent for {waited + limit:g} s and was killed", over=True, again=True)
        except WorkerDead as error:
            return self._dead(error)

    async def _soon(self, worker: Worker) -> TaskDone | TaskFailed | None:
        """The next reply where it does not take long."""
        try:
            return await worker.receive(PATIENCE, last=False)
        except WorkerHung:
            return None
        except WorkerDead as error:
            return self._dead(error)

    def _dead(self, error: WorkerDead) -> TaskFailed:
        reason = took_longer(self._grader.timeout) if error.out_of_time else str(error)
        return TaskFailed(reason, over=True, again=not error.out_of_time)


MOST_WORKERS = 4
FEWEST_WORKERS = 2
"""On a small machine, too, one answer that takes long must not hold up all others."""


class Grading:
    """Turns answers into categories; raises `GraderError` where it cannot. By itself it asks nobody."""

    lasting = False
    """Some grades take requests."""
    lost = NO_COST
    """The most that the requests for the grade of any answer may cost."""
    rubric: Rubric
    """Replaced once its thresholds are fitted."""

    @property
    def notices(self) -> Sequence[Notice]:
        """Notices about the servers that are asked for grades, in the order of time."""
        return ()

    def asks(self, question: Question) -> bool:
        """Whether a grade of an answer to this question takes a request: the answer is stored before it is graded."""
        return False

    def lost_with(self, answer: str, question: Question) -> Cost:
        """The most that those for the grade of this answer may cost."""
        return NO_COST

    def lost_vote(self, lost: Cost) -> Cost:
        """The most that one of them may have cost whose reply did not come, where all may cost so much."""
        return NO_COST

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """The grade of one answer; `again` is asked before a request whose reply was lost is repeated."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close every connection, and end the worker processes."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class GradingPool(Grading):
    """Grades answers: the grader's signals and the answer's own, made into a category by the rubric."""

    def __init__(
        self, grader: GraderOptions, rubric: Rubric, *, folder: Path = Path(), keys: Collection[str] = ()
    ) -> None:
        """`keys` are variables that worker processes do not get, besides all that are named like secrets."""
        self._grader = grader
        self.rubric = rubric
        count = grader.workers or _default_workers()
        self._workers = Workers(grader, count, folder, keys, beside=grader.workers is None)

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        marks = answer.require_marks() if isinstance(answer, MarkedAnswer) else await self.marks(answer.text, question)
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
