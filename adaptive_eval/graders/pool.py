"""Grading for the event loop: inline if that is cheap, in a worker process if it may take time.

Worker processes are started on demand, killed when they hang, and replaced when they die. The time limit of an answer
is measured in its worker, from when it begins with it. If a worker is silent for longer than that, the parent kills it.
An answer that has computed until its time was up is given up. One that only waited, used up the memory or ended its
worker is tried once more, in a fresh process, and then not again in this start of the run.

An answer that takes longer than `PATIENCE` does not hold up others: its worker continues at lower priority. There are
as many workers for slow answers as for others; further slow answers, and those that the grader expects to be slow, wait
for one of these. If the number of workers is configured, slow answers may use all but one of them; a single worker
takes them one at a time, between the others.
"""

import asyncio
import os
from collections.abc import Collection, Sequence
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

START_LIMIT = 120.0
GRACE = 2.0
"""Seconds beyond the time limit after which a silent worker is killed."""
PATIENCE = 0.5
"""Seconds after which an answer counts as slow."""
ATTEMPTS = 2
CLOSED = TaskFailed("was closed before it came to this answer", over=True)


class Workers:
    """Grades in the configured number of processes, or in two to four, with as many more for slow answers."""

    def __init__(self, grader: GraderOptions, folder: Path, keys: Collection[str]) -> None:
        self._grader, self._folder, self._keys = grader, folder, keys
        self._count, self._beside = grader.workers or _default_workers(), grader.workers is None
        self._most_slow = self._count if self._beside else max(1, self._count - 1)
        self._places = asyncio.Semaphore(self._count)
        self._slow_places = asyncio.Semaphore(self._most_slow)
        """Places of slow answers: beside the others, or of these."""
        self._gradings: set[asyncio.Task[Marks]] = set()
        self._live: set[Worker] = set()
        self._idle: dict[bool, list[Worker]] = {False: [], True: []}
        """Idle workers; those under True have lower priority."""
        self._closed = False
        self._started = False
        self.refused: TaskFailed | None = None
        """Why the grader cannot start, from its first process: further ones would fail alike."""

    async def grade(self, text: str, question: Question) -> Marks:
        """Grade an answer in a worker."""
        grading = asyncio.create_task(self._grade(GradingTask(text, question)))
        self._gradings.add(grading)
        grading.add_done_callback(self._gradings.discard)
        return await grading

    async def close(self) -> None:
        """End every worker; answers not graded yet are grader errors."""
        self._closed = True
        for worker in self._live.difference(*self._idle.values()):
            worker.kill()
        await asyncio.gather(*self._gradings, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._live))

    async def _grade(self, task: GradingTask) -> Marks:
        """Grade an answer, if need be as a slow one, and a second time if that may help."""
        slow, attempts = self._grader.is_slow(*task), 0
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
            if self._closed or not reply.again or attempts == ATTEMPTS:
                told = CLOSED if self._closed else reply
                raise (GraderExhausted if told.over else GraderError)(f"the grader {told.reason}")

    async def _attempt(self, task: GradingTask, slow: bool) -> TaskReply:
        """Grade with an idle or a new worker; raises `WorkerHung` if the answer is slow and needs another place."""
        beside = slow and self._beside
        needed = [self._slow_places] if beside else [self._slow_places, self._places] if slow else [self._places]
        held: list[asyncio.Semaphore] = []
        try:
            for places in needed:
                await places.acquire()
                held.append(places)
            if self._closed or self.refused is not None:
                return self.refused or CLOSED
            idle = self._idle[beside] or self._idle[False]
            try:
                worker = idle.pop() if idle else await Worker.start(self._folder, self._keys)
            except OSError as error:
                return TaskFailed(f"cannot start: {error}", over=True)
            ready = worker in self._live
            self._live.add(worker)
            reply: TaskReply = CLOSED
            try:
                if beside:
                    worker.give_way()
                reply = None if ready else await self._set_up(worker)
                if reply is None:
                    reply = CLOSED
                    reply = await self._ask(worker, task, held, slow)
            finally:
                over = isinstance(reply, TaskFailed) and reply.over
                if over:
                    worker.kill()
                if over or (worker.gives_way and sum(one.gives_way for one in self._live) > self._most_slow):
                    self._live.discard(worker)
                    await worker.end()
                else:
                    self._idle[worker.gives_way].append(worker)
            return reply
        finally:
            for places in held:
                places.release()

    async def _set_up(self, worker: Worker) -> TaskReply:
        """Give a new worker its grader."""
        if self._closed:
            return CLOSED
        worker.send(self._grader)
        reply = await self._reply(worker, START_LIMIT)
        if not isinstance(reply, TaskFailed):
            self._started = True
        elif not (reply.again or self._started or self._closed):
            self.refused = reply
        return reply

    async def _ask(self, worker: Worker, task: GradingTask, held: list[asyncio.Semaphore], slow: bool) -> TaskReply:
        """Have a worker grade; unless known as slow, an answer that takes `PATIENCE` needs the place of a slow one."""
        worker.send(task)
        limit = self._grader.timeout + GRACE
        if slow:
            return await self._reply(worker, limit)
        try:
            return await self._reply(worker, limit, patient=False)
        except WorkerHung:
            others_wait = self._count == 1 and not self._beside and len(self._gradings) > 1
            if others_wait or self._slow_places.locked():
                raise
        await self._slow_places.acquire()
        held.append(self._slow_places)
        if self._beside:
            worker.give_way()
            held.remove(self._places)
            self._places.release()
        return await self._reply(worker, limit, waited=PATIENCE)

    async def _reply(self, worker: Worker, limit: float, *, waited: float = 0.0, patient: bool = True) -> TaskReply:
        """Wait for the next reply, which fails if the worker does not give it within `limit`, of which it has `waited`.

        Unless `patient`, raises `WorkerHung` after `PATIENCE` instead.
        """
        try:
            return await worker.receive(limit - waited if patient else PATIENCE)
        except WorkerHung:
            if not patient:
                raise
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
