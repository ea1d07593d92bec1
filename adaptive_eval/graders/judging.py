"""A judge at work: every answer gets its votes, and the verdict of most of them.

A verdict that cannot be read is a grader error, as one is that cannot be had.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer
from adaptive_eval.errors import GraderError, JudgeFailed
from adaptive_eval.graders.asking import AskingPool, GraderReply
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.pool import make_grade
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import Transcript, verdict_in
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.types import Question


class Vote(NamedTuple):
    """What the judge replied, and the verdict in it."""

    reply: GraderReply
    verdict: str | GraderError


class JudgePool(AskingPool):
    """Grades answers by a judge."""

    def __init__(
        self, judge: Judge, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost`: the most that the verdict on an answer may cost."""
        super().__init__(judge, rubric, folder=folder, keys=keys, lost=lost)
        self._judge = judge

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """The grade of an answer; `JudgeFailed` says why there is none, and what was spent.

        `again` is asked before a reply that was lost is asked for once more, and counts it; one that is lost at last is
        in the cost.
        """
        if not answer.text.strip():
            return make_grade(answer, self._judge.marks("", 1.0, NO_COST, 0, 0), self.rubric, question.id)
        sent = self._judge.transcript(question, answer.text)
        votes = await asyncio.gather(*(self._vote(sent, answer.seed + at, again) for at in range(self._judge.votes)))
        used, tokens = self._used([vote.reply for vote in votes], again)
        said = Counter(vote.verdict for vote in votes if isinstance(vote.verdict, str))
        errors = [vote.verdict for vote in votes if isinstance(vote.verdict, GraderError)]
        verdict, number = max(said.items(), key=lambda one: one[1], default=("", 0))
        if 2 * number <= self._judge.votes:
            raise JudgeFailed(str(errors[0]) if errors else f"the votes of the judge differ: {dict(said)}", used)
        marks = self._judge.marks(verdict, number / self._judge.votes, used, *tokens)
        return replace(make_grade(answer, marks, self.rubric, question.id), cost=used)

    async def _vote(self, sent: Transcript, seed: int, again: Again | None) -> Vote:
        reply = await self._ask(sent.prompt, seed, again)
        if reply.answer is None:
            return Vote(reply, reply.error or GraderError("the judge gave no reply"))
        try:
            names = [one.name for one in self._judge.verdicts]
            return Vote(reply, verdict_in(reply.answer.text, sent.number, names))
        except GraderError as error:
            return Vote(reply, error)
