"""Turns answers into records, and stored answers into verdicts.

If grading takes a request of its own, the answer is committed first and its verdict later, so that nothing is lost when
the run ends between the two.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.committer import RepeatGuard
from adaptive_eval.scheduler.grading import Grading, grade_or_error, make_record, make_regrade, waiting_record
from adaptive_eval.scheduler.verdict_costs import VerdictCosts
from adaptive_eval.store import TrialRecord
from adaptive_eval.supply.happenings import Judged, Say, TaskEnded
from adaptive_eval.supply.types import Lane, Request


class AnswerGrader:
    """Turns the answers of a request into records, and asks a judge about stored answers."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        questions: Sequence[Question],
        grading: Grading,
        costs: VerdictCosts,
        repeats: RepeatGuard,
        say: Say,
    ) -> None:
        self._lanes, self._questions, self.grading, self.costs = lanes, questions, grading, costs
        self.questions = {question.id: question for question in questions}
        self._repeats, self._say = repeats, say
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def tasks(self) -> int:
        """How many verdicts are awaited."""
        return len(self._tasks)

    async def records(self, request: Request, answers: Sequence[Answer]) -> list[TrialRecord]:
        """Grade the answers of a request, or mark them as awaiting a verdict; returns the records to store."""
        lane, question = self._lanes[request.model], self._questions[request.question]
        records = []
        for trial, answer in zip(request.trials, answers, strict=True):
            if self.grading.asks(question):
                waiting = waiting_record(lane, question, trial, request.round, answer)
                records.append(replace(waiting, cost=waiting.cost.plus(self.costs.reserved(waiting))))
            else:
                grade = await grade_or_error(self.grading, answer, question.for_trial(trial))
                records.append(make_record(lane, question, trial, request.round, answer, grade))
        return records

    def judge(self, record: TrialRecord) -> None:
        """Start to judge a stored answer."""
        task = asyncio.create_task(self._verdict(record))
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    async def cancel(self) -> None:
        """Stop judging; the next start judges the answers that have no verdict."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _verdict(self, record: TrialRecord) -> None:
        loss = self.costs.loss(record)
        again = None if loss is None else partial(self._repeats.may_repeat, loss=loss)
        question = self.questions[record.question].for_trial(record.trial)
        grade = await grade_or_error(self.grading, record.answer, question, again)
        self._say(Judged(make_regrade(record, grade), self.costs.reserved(record)))

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._say(TaskEnded(None if task.cancelled() else task.exception()))
