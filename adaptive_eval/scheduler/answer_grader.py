"""Turns answers into records, and stored answers into verdicts.

If grading takes a request of its own, the answer is committed first and its verdict later, so that nothing is lost when
the run ends between the two.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.committer import RepeatGuard
from adaptive_eval.scheduler.first_answers import GradeWatch
from adaptive_eval.scheduler.grading import (
    Grading,
    grade_or_error,
    make_record,
    make_regrade,
    waiting_record,
    wasted_verdict,
)
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.scheduler.verdict_costs import VerdictCosts, used
from adaptive_eval.store import CommitBatch, Regrade, TrialRecord
from adaptive_eval.supply.happenings import Judged, Say, TaskEnded
from adaptive_eval.supply.types import Request


class AnswerGrader:
    """Turns the answers of a request into records, and asks a judge about stored answers."""

    def __init__(
        self,
        state: RunState,
        questions: Sequence[Question],
        grading: Grading,
        repeats: RepeatGuard,
        say: Say,
    ) -> None:
        self._state, self._lanes, self._questions, self.grading = state, state.lanes, questions, grading
        self.costs = VerdictCosts(grading, questions, capped=state.capped)
        self.questions = {question.id: question for question in questions}
        self._repeats, self._say = repeats, say
        self._waiting: deque[TrialRecord] = deque()
        self._begun: set[tuple[str, str, int]] = set()
        """Answers whose verdicts were asked for and are not committed yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.watch = GradeWatch(state, lambda question: grading.asks(self.questions[question]))
        """Notices a grader that fails on everything."""

    @property
    def tasks(self) -> int:
        """How many verdicts are awaited."""
        return len(self._tasks) + len(self._waiting)

    async def records(self, request: Request, answers: Sequence[Answer]) -> list[TrialRecord]:
        """Grade the answers of a request, or mark them as awaiting a verdict; returns the records to store.

        If that is cancelled, answers without a grade await the next start.
        """
        lane, question = self._lanes[request.model], self._questions[request.question]
        records, cancelled = [], False
        for trial, answer in zip(request.trials, answers, strict=True):
            waiting = waiting_record(lane, question, trial, request.round, answer)
            if self.grading.asks(question):
                waiting = replace(waiting, cost=waiting.cost.plus(self.costs.reserved(waiting)))
            elif not cancelled:
                try:
                    grade = await grade_or_error(self.grading.grade, answer, question.for_trial(trial))
                    waiting = make_record(lane, question, trial, request.round, answer, grade)
                except asyncio.CancelledError:
                    cancelled = True
            records.append(waiting)
        return records

    def judge(self, committed: CommitBatch) -> None:
        """Ask for the verdicts that the answers of this commit await, in their order, as others arrive; raises an error
        if the grader fails on everything.

        After a kill, the uncommitted verdicts that were asked for are those of the first answers without one.
        """
        self.watch.see(committed.trials)
        self._begun -= {(one.model, one.question, one.trial) for one in committed.verdicts}
        self._waiting.extend(record for record in committed.trials if record.awaits_verdict)
        while self._waiting and len(self._begun) < self.grading.at_once:
            record = self._waiting.popleft()
            self._begun.add((record.model, record.question, record.trial))
            task = asyncio.create_task(self._verdict(record))
            self._tasks.add(task)
            task.add_done_callback(self._on_end)

    def enter_verdict(self, verdict: Regrade, reserved: Cost, batch: CommitBatch) -> None:
        """Add a verdict to a commit; raises `Unavailable` if it shows that caps cannot hold, or that all verdicts
        fail."""
        batch.verdicts.append(used(verdict, reserved))
        batch.events.extend(filter(None, [wasted_verdict(verdict)]))
        self.costs.require_kept(verdict, reserved)
        self.watch.see([verdict])

    async def cancel(self) -> None:
        """Stop judging; the next start judges the answers that have no verdict."""
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _verdict(self, record: TrialRecord) -> None:
        loss = self.costs.loss(record)
        again = None if loss is None else partial(self._repeats.may_repeat, loss=loss)
        question = self.questions[record.question].for_trial(record.trial)
        grade = await grade_or_error(self.grading.grade, record.answer, question, again)
        self._say(Judged(make_regrade(record, grade), self.costs.reserved(record)))

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._say(TaskEnded(None if task.cancelled() else task.exception()))
