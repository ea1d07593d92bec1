"""Asking a judge: every answer gets its votes, and the verdict of most of them.

A verdict that cannot be had (a server that is gone, a request that is refused) or read is a grader error: the answer is
stored without a grade, and the next start of the run, or `adaptive-eval regrade`, asks again.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.opening import open_endpoint
from adaptive_eval.endpoints.types import Again, Answer, Endpoint
from adaptive_eval.errors import EndpointError, GraderError, JudgeFailed
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.pool import make_grade
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import Transcript, verdict_in
from adaptive_eval.graders.types import Grade, Marks
from adaptive_eval.questions.types import Question
from adaptive_eval.seeds import SEED_SPAN


class Vote(NamedTuple):
    """What the judge replied, and the verdict in it."""

    reply: Answer | None
    verdict: str | GraderError
    lost: bool = False
    """A reply may have been generated that did not come."""


class JudgePool:
    """Grades answers by a judge; in the place of a `GradingPool`."""

    lasting = True
    """A grade takes a request: the answer is stored before it is graded."""

    def __init__(
        self, judge: Judge, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost`: the most that the verdict on an answer may cost."""
        self.lost, self._asked_again = lost, 0
        self._judge, self._folder, self._keys = judge, folder, keys
        self.rubric = rubric
        """Replaced once its thresholds are fitted."""
        self._slots = asyncio.Semaphore(judge.concurrency.concurrency * len(judge.server.replicas))
        self._endpoint: Endpoint | None = None

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """The grade of an answer; `JudgeFailed` says why there is none, and what was spent.

        `again` is asked before a reply that was lost is asked for once more, and counts it; one that is lost at last is
        in the cost.
        """
        if not answer.text.strip():
            return make_grade(answer, self._judge.marks("", 1.0, NO_COST, 0, 0), self.rubric, question.id)
        sent = self._judge.transcript(question, answer.text)
        votes = await asyncio.gather(*(self._vote(sent, answer.seed + at, again) for at in range(self._judge.votes)))
        replies = [vote.reply for vote in votes if vote.reply is not None]
        used = self._cost(replies)
        if again is not None:
            used = used.plus(self.lost_vote.times(sum(vote.lost for vote in votes)))
        said = Counter(vote.verdict for vote in votes if isinstance(vote.verdict, str))
        errors = [vote.verdict for vote in votes if isinstance(vote.verdict, GraderError)]
        verdict, number = max(said.items(), key=lambda one: one[1], default=("", 0))
        if 2 * number <= self._judge.votes:
            raise JudgeFailed(str(errors[0]) if errors else f"the votes of the judge differ: {dict(said)}", used)
        tokens = sum(one.prompt_tokens for one in replies), sum(one.completion_tokens for one in replies)
        marks = self._judge.marks(verdict, number / self._judge.votes, used, *tokens)
        return replace(make_grade(answer, marks, self.rubric, question.id), cost=used)

    async def marks(self, text: str, question: Question) -> Marks:
        """A judge is not tried on answer keys, since that would cost."""
        raise GraderError("is a judge, which is asked about answers alone")

    @property
    def refused(self) -> str | None:
        """A judge has no process that could not start."""
        return None

    async def close(self) -> None:
        """Close every connection."""
        if self._endpoint is not None:
            await self._endpoint.close()

    @property
    def lost_vote(self) -> Cost:
        """The most that one reply may have cost that did not come."""
        votes, attempts = self._judge.votes, self._judge.concurrency.attempts
        return Cost(-(-self.lost.tokens // votes), self.lost.usd / votes, self.lost.gpu_seconds / votes / attempts)

    def _cost(self, replies: list[Answer]) -> Cost:
        each = [self._judge.cost(one.prompt_tokens, one.completion_tokens, one.latency) for one in replies]
        return Cost(sum(one.tokens for one in each), sum(one.usd for one in each), sum(one.gpu_seconds for one in each))

    async def _vote(self, sent: Transcript, seed: int, again: Again | None) -> Vote:
        seed %= SEED_SPAN

        async def asked_again() -> bool:
            self._asked_again += 1
            return again is None or await again()

        async with self._slots:
            try:
                (reply,) = await self._served().sample(sent.prompt, range(seed, seed + 1), asked_again)
            except EndpointError as error:
                return Vote(None, GraderError(f"the judge cannot be asked: {error}"), self._lost_at_last())
        lost = "timed_out" in reply.signals and self._lost_at_last()
        try:
            return Vote(reply, verdict_in(reply.text, sent.number, [one.name for one in self._judge.verdicts]), lost)
        except GraderError as error:
            return Vote(reply, error, lost)

    def _lost_at_last(self) -> bool:
        """Whether a reply was lost that is not asked for again: one that no caller has counted."""
        lost = self._served().stats.lost > self._asked_again
        self._asked_again += lost
        return lost

    def _served(self) -> Endpoint:
        """Opened when the first verdict is wanted."""
        if self._endpoint is None:
            judge = self._judge
            self._endpoint = open_endpoint(
                judge.server, judge.sampling, judge.concurrency, keys=self._keys, folder=self._folder
            )
        return self._endpoint
