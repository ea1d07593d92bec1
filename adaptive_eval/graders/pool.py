"""Grading for the event loop: inline if that is cheap, in a worker process if it may take time.

Worker processes are started on demand, killed when they hang, and replaced when they die. The time limit of an answer
is measured in its worker, from when it begins with it. If a worker is silent for longer than that, the parent kills it,
the current answer is a grader error, and the rest of the batch goes to another worker. An answer that has computed
until its time was up is given up. One that only waited, used up the memory or ended its worker is tried once more, in
a fresh process, and then not again in this start of the run.

An answer that takes longer than `PATIENCE` does not hold up others: its worker continues at lower priority. There are
as many workers for slow answers as for others; further slow answers, and those that the grader expects to be slow, wait
for one of these. If the number of workers is configured, slow answers may use all but one of them; a single worker
takes them when nothing else waits.
"""

import asyncio
import os
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from adaptive_eval.base.errors import GraderError, GraderExhausted
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice
from adaptive_eval.graders.rubric import Rubric, apply_rubric
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
from adaptive_eval.graders.worker import GradingTask, TaskFailed, TaskReply, Worker, WorkerDead, WorkerHung, took_longer
from adaptive_eval.questions.types import Question

BATCH = 32
BATCH_CHARACTERS = 1_000_000
START_LIMIT = 120.0
GRACE = 2.0
"""Seconds beyond the time limit after which a silent worker is killed."""
PATIENCE = 0.5
"""Seconds after which an answer counts as slow."""
ATTEMPTS = 2
CLOSED = TaskFailed("was closed before it came to this answer", over=True)


@dataclass(slots=True, eq=False)
class _Job:
    """An answer waiting for its marks."""

    task: GradingTask
    result: asyncio.Future[Marks]
    slow: bool = False
    attempts: int = 0

    def settle(self, reply: TaskReply) -> None:
        """Give the caller the marks or the error, unless the call was cancelled."""
        if self.result.done():
            return
        if isinstance(reply, TaskFailed):
            error = (GraderExhausted if reply.over else GraderError)(f"the grader {reply.reason}")
            self.result.set_exception(error)
        elif reply is None:
            self.result.set_exception(GraderError("the grader gave no marks"))
        else:
            self.result.set_result(reply)


class Workers:
    """Grades batches in the configured number of processes, or in two to four, with as many more for slow answers."""

    def __init__(self, grader: GraderOptions, folder: Path, keys: Collection[str]) -> None:
        self._grader, self._folder, self._keys = grader, folder, keys
        self._count, self._beside = grader.workers or _default_workers(), grader.workers is None
        self._most_slow = self._count if self._beside else max(1, self._count - 1)
        self._waiting: deque[_Job] = deque()
        self._slow: deque[_Job] = deque()
        """Jobs waiting for a worker for slow answers."""
        self._at_work: dict[asyncio.Task[None], bool] = {}
        """Running batches, and whether each is a slow answer."""
        self._idle: dict[bool, list[Worker]] = {False: [], True: []}
        """Idle workers; those under True have lower priority."""
        self._closed = False
        self._started = False
        self.refused: TaskFailed | None = None
        """Why the grader cannot start, from its first process: further ones would fail alike."""

    async def grade(self, text: str, question: Question) -> Marks:
        """Grade an answer in a worker."""
        job = _Job(GradingTask(text, question), asyncio.get_running_loop().create_future())
        if (failure := CLOSED if self._closed else self.refused) is not None:
            job.settle(failure)
        else:
            job.slow = self._grader.is_slow(text, question)
            self._enqueue(job)
        return await job.result

    async def close(self) -> None:
        """End every worker; answers not graded yet are grader errors."""
        self._closed = True
        await asyncio.sleep(0)  # a task that is cancelled before it begins tells nobody
        for task in self._at_work:
            task.cancel()
        await asyncio.gather(*self._at_work, return_exceptions=True)
        for job in self._take_waiting():
            job.settle(CLOSED)
        await asyncio.gather(*(worker.end() for idle in self._idle.values() for worker in idle))

    def _enqueue(self, *jobs: _Job) -> None:
        """Queue jobs, and start as many batches as there are free workers."""
        for job in jobs:
            (self._slow if job.slow else self._waiting).append(job)
        while not self._closed and (batch := self._next_batch()):
            task = asyncio.create_task(self._serve(batch))
            self._at_work[task] = batch[0].slow
            task.add_done_callback(self._on_batch_done)

    def _on_batch_done(self, task: asyncio.Task[None]) -> None:
        del self._at_work[task]
        self._enqueue()

    def _next_batch(self) -> list[_Job]:
        """The next batch for a worker; empty if nothing waits, or all workers are busy."""
        slow = self._slow_count
        free = len(self._at_work) - (slow if self._beside else 0) < self._count
        batch = self._take_share() if free else []
        while not batch and self._slow and slow < self._most_slow and (free or self._beside):
            batch = [job for job in [self._slow.popleft()] if not job.result.done()]
        return batch

    def _take_share(self) -> list[_Job]:
        """A worker's share of the waiting jobs."""
        batch: list[_Job] = []
        share = min(BATCH, -(-len(self._waiting) // self._count))
        characters = 0
        while self._waiting and len(batch) < share and characters < BATCH_CHARACTERS:
            job = self._waiting.popleft()
            if not job.result.done():  # else it was cancelled
                batch.append(job)
                characters += len(job.task.text)
        return batch

    async def _serve(self, batch: Sequence[_Job]) -> None:
        """Grade a batch with an idle or a new worker."""
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
                await self._make_idle(worker) if kept else await self._end(worker)

    async def _make_idle(self, worker: Worker) -> None:
        """Make a worker idle, unless there are enough for slow answers."""
        idle = self._idle[worker.gives_way]
        if worker.gives_way and self._slow_count + len(idle) > self._most_slow:
            await worker.end()
        else:
            idle.append(worker)

    async def _end(self, worker: Worker) -> None:
        worker.kill()
        await worker.end()

    @property
    def _slow_count(self) -> int:
        """Number of slow answers in progress."""
        return sum(self._at_work.values())

    def _take_waiting(self) -> list[_Job]:
        """Remove and return all waiting jobs."""
        taken = [*self._waiting, *self._slow]
        self._waiting.clear()
        self._slow.clear()
        return taken

    async def _start(self, batch: Sequence[_Job], slow: bool) -> Worker | None:
        """Start a worker; if that fails, fail the batch with the reason and return None."""
        try:
            worker = await Worker.start(self._folder, self._keys)
        except OSError as error:
            reply: TaskReply = TaskFailed(f"cannot start: {error}", over=True)
        else:
            ready = False
            try:
                if slow:
                    worker.give_way()
                await worker.send(self._grader)
                reply = await self._reply(worker, START_LIMIT)
                ready = not isinstance(reply, TaskFailed)
            finally:
                if not ready:
                    await self._end(worker)
            if not isinstance(reply, TaskFailed):
                self._started = True
                return worker
            if not reply.again and not self._started:
                self.refused = reply
                batch = [*batch, *self._take_waiting()]
        self._settle(reply, *batch)
        return None

    def _settle(self, reply: TaskReply, *jobs: _Job) -> None:
        """Give jobs this reply, or queue them again if another worker may help."""
        put_back = []
        for job in jobs:
            job.attempts += 1
            if isinstance(reply, TaskFailed) and reply.again and job.attempts < ATTEMPTS:
                put_back.append(job)
            else:
                job.settle(reply)
        self._enqueue(*put_back)

    async def _grade(self, worker: Worker, batch: Sequence[_Job]) -> bool:
        """Grade a batch; False if the worker is lost, and the jobs that it had not begun are queued again."""
        await worker.send([job.task for job in batch])
        limit = self._grader.timeout + GRACE
        for number, job in enumerate(batch, start=1):
            rest = batch[number:]
            try:
                reply = await self._reply(worker, limit, patient=job.slow or limit <= PATIENCE)
            except WorkerHung:
                job.slow = True
                if not self._may_continue(worker, rest):
                    self._enqueue(*rest, job)
                    return False
                rest = ()
                reply = await self._reply(worker, limit, waited=PATIENCE)
            self._settle(reply, job)
            if isinstance(reply, TaskFailed) and reply.over:
                self._enqueue(*rest)
                return False
            if job.slow:
                break
        return True

    def _may_continue(self, worker: Worker, rest: Sequence[_Job]) -> bool:
        """Whether a worker may continue with a slow answer; if so, the rest of its batch is queued for others."""
        only = self._count == 1 and not self._beside
        if self._slow_count >= self._most_slow or (only and (rest or self._waiting)):
            return False
        task = asyncio.current_task()
        assert task is not None
        self._at_work[task] = True
        if self._beside:
            worker.give_way()
        self._enqueue(*rest)
        return True

    async def _reply(self, worker: Worker, limit: float, *, waited: float = 0.0, patient: bool = True) -> TaskReply:
        """Wait for the next reply; kill a worker that does not give it within `limit`, of which it has `waited`.

        Unless `patient`, raises `WorkerHung` after `PATIENCE` instead.
        """
        try:
            return await worker.receive(limit - waited if patient else PATIENCE, last=patient)
        except WorkerHung:
            if not patient:
                raise
            worker.kill()
            return TaskFailed(f"was silent for {limit:g} s and was killed", over=True, again=True)
        except WorkerDead as error:
            reason = took_longer(self._grader.timeout) if error.out_of_time else str(error)
            return TaskFailed(reason, over=True, again=not error.out_of_time)


MOST_WORKERS = 4
FEWEST_WORKERS = 2
"""So that on a small machine, too, a slow answer does not hold up all others."""


class Grading:
    """Turns answers into grades, or raises `GraderError`. This base class asks no server."""

    lasting = False
    """Whether some grades take requests."""
    lost = NO_COST
    """The most that the requests for any grade may cost."""
    at_once = 16
    """How many answers it is given at a time, where grades take requests."""
    rubric: Rubric

    @property
    def notices(self) -> Sequence[Notice]:
        """Notices about the servers that are asked for grades, oldest first."""
        return ()

    def asks(self, question: Question) -> bool:
        """Whether grading an answer to this question takes a request, so that it is stored before it is graded."""
        return False

    def lost_with(self, answer: str, question: Question) -> Cost:
        """The most that the requests for the grade of this answer may cost."""
        return NO_COST

    def lost_vote(self, lost: Cost) -> Cost:
        """The most that one lost reply may have cost, if all requests for the grade may cost `lost`."""
        return NO_COST

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """Grade an answer; `again` is called before a request with a lost reply is repeated."""
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

    def __init__(
        self, grader: GraderOptions, rubric: Rubric, *, folder: Path = Path(), keys: Collection[str] = ()
    ) -> None:
        """`keys` are environment variables withheld from workers, besides those named like secrets."""
        self._grader, self.rubric = grader, rubric
        self._workers = Workers(grader, folder, keys)

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        marks = answer.require_marks() if isinstance(answer, MarkedAnswer) else await self.marks(answer.text, question)
        return make_grade(answer, marks, self.rubric, question.id)

    async def marks(self, text: str, question: Question) -> Marks:
        """The grader's marks for a text; raises `GraderError` if it gives none."""
        try:
            marks = self._grader.quick(text, question)
        except GraderError:
            raise
        except Exception as error:  # any failure of a grader is a grader error, not a wrong answer
            raise GraderError(f"the grader raised {type(error).__name__}: {error}") from error
        return marks if marks is not None else await self._workers.grade(text, question)

    @property
    def refused(self) -> str | None:
        """Why the grader cannot start, whatever the answer; None if no reason is known."""
        return None if self._workers.refused is None else self._workers.refused.reason

    async def close(self) -> None:
        await self._workers.close()


def make_grade(answer: Answer, marks: Marks, rubric: Rubric, question: str = "") -> Grade:
    """Build the grade of an answer: its category, and the grader's signals with the answer's flags."""
    facts = answer_facts(answer)
    if not marks.signals.get("has_answer", True) and reads_as_refusal(answer.text):
        facts["refusal"] = True
    raised = {flag: True for flag in FLAGS if facts[flag]}
    signals = {**token_facts(answer.token_logprobs), **marks.signals}
    found = apply_rubric({**facts, **signals}, rubric, question)
    return Grade(found.category, {**signals, **raised, **found.measured}, marks.extracted)


def _default_workers() -> int:
    """One less than there are cores, but two to four."""
    return max(FEWEST_WORKERS, min(MOST_WORKERS, (os.cpu_count() or 2) - 1))
