"""A judge at work: every answer gets its votes, and what most of them, or the middle one, say of it.

A verdict that cannot be read is a grader error, as one is that cannot be had.

Whether its server sees to the form of a reply is found out by asking for it: what refuses `response_format`, and gives
a verdict without, is asked without from then on, and a notice says so. A refusal costs nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice, Sampling
from adaptive_eval.errors import GraderError, JudgeFailed
from adaptive_eval.graders.asked import NO_REPLY
from adaptive_eval.graders.asking import AskingPool, GraderReply
from adaptive_eval.graders.ballots import Said, said_in_lines, said_in_object
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.pool import make_grade
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import Transcript
from adaptive_eval.graders.types import Grade, SignalValue
from adaptive_eval.questions.types import Question

UNSTRUCTURED = "the judge's server refuses response_format, so the replies of {} are read line by line ({})"
Transcripts = Callable[[bool], Sequence[Transcript]]
"""What is sent for one vote, with the form of the reply seen to by the server, or without."""


class Vote(NamedTuple):
    """The judge's replies, to one request or to one in each order, and their verdict."""

    replies: Sequence[GraderReply]
    said: Sequence[Said] | GraderError


class JudgePool(AskingPool):
    """Grades answers by a judge."""

    def __init__(
        self, judge: Judge, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost`: the most that the verdict on an answer may cost."""
        super().__init__(judge, rubric, folder=folder, keys=keys, lost=lost)
        self._judge = judge
        self._structured = judge.may_be_structured
        """Its server is asked to see to the form of replies."""
        self._further = [
            JudgePool(one, rubric, folder=folder, keys=keys, lost=lost) for one in judge.seats[1:] if judge.panel
        ]
        """The clients of the other judges, which give votes alone."""
        for one in self._further:
            one._notices = self._notices

    async def grade(self, answer: Answer, question: Question, again: Again | None = None) -> Grade:
        """The grade of an answer; `JudgeFailed` says why there is none, and what was spent.

        `again` is asked before a reply that was lost is asked for once more, and counts it; one that is lost at last is
        in the cost.
        """
        judge = self._judge
        if (known := judge.form.decided(question, answer.text)) is not None:
            return make_grade(answer, judge.marks(known, NO_COST, NO_REPLY), self.rubric, question.id)

        @cache
        def sent(structured: bool) -> tuple[Transcript, ...]:
            return judge.transcripts(question, answer.text, structured=structured)

        seats = [self, *self._further]
        found = await asyncio.gather(*(seat._votes(sent, answer.seed, again) for seat in seats))
        used, replies = NO_COST, NO_REPLY
        lost = NO_COST if again is None else self.lost_with(answer.text, question)
        for seat, given in zip(seats, found, strict=True):
            cost, came = seat._used([reply for vote in given for reply in vote.replies], lost)
            used, replies = used.plus(cost), replies.plus(came)
        votes = [vote for given in found for vote in given]
        read = [vote.said for vote in votes if not isinstance(vote.said, GraderError)]
        errors = [vote.said for vote in votes if isinstance(vote.said, GraderError)]
        try:
            voted = judge.voted(read)
        except GraderError as error:
            raise JudgeFailed(str(errors[0] if errors else error), used) from None
        marks = judge.marks(voted, used, replies)
        if self._further:
            marks = marks._replace(signals={**marks.signals, **self._agreeing(found, voted.said)})
        return replace(make_grade(answer, marks, self.rubric, question.id), cost=used)

    def _agreeing(self, found: Sequence[Sequence[Vote]], decided: Said) -> dict[str, SignalValue]:
        """For each judge, the share of its votes that say what was decided; one that gave none is left out."""
        shares: dict[str, SignalValue] = {}
        for name, votes in zip(self._judge.agreements, found, strict=True):
            read = [one.said for one in votes if not isinstance(one.said, GraderError)]
            said = [self._judge.form.voted([replies], 1).said for replies in read]
            if said:
                shares[name] = sum(one == decided for one in said) / len(said)
        return shares

    async def close(self) -> None:
        """Close every connection, of all judges."""
        await super().close()
        for one in self._further:
            await one.close()

    async def _votes(self, sent: Transcripts, first: int, again: Again | None) -> Sequence[Vote]:
        """The votes of this judge, each with a seed of its own."""
        seeds = range(first, first + self._judge.votes)
        return await asyncio.gather(*(self._vote(sent, seed, again) for seed in seeds))

    async def _vote(self, sent: Transcripts, seed: int, again: Again | None) -> Vote:
        orders = range(self._judge.form.orders)
        found = await asyncio.gather(*(self._replied(sent, order, seed, again) for order in orders))
        replies, errors = [reply for reply, _ in found], [said for _, said in found if isinstance(said, GraderError)]
        return Vote(replies, errors[0] if errors else [said for _, said in found if not isinstance(said, GraderError)])

    async def _replied(
        self, sent: Transcripts, order: int, seed: int, again: Again | None
    ) -> tuple[GraderReply, Said | GraderError]:
        async with self._slots:
            structured, reply = self._structured, None
            if structured:
                reply = await self._sample(sent(True)[order].prompt, seed, again, structured=True)
            if reply is None or (reply.refused and self._judge.structured is None):
                refusal, structured = reply, False
                reply = await self._sample(sent(False)[order].prompt, seed, again)
                if refusal is not None and reply.answer is not None and self._structured:
                    self._structured = False
                    self._notices.append(
                        Notice("judge_unstructured", UNSTRUCTURED.format(self._judge.server.model, refusal.error))
                    )
        if reply.answer is None:
            return reply, reply.error or GraderError("the judge gave no reply")
        try:
            return reply, self._read(reply.answer.text, sent(structured)[order], structured=structured)
        except GraderError as error:
            return reply, error

    def _read(self, text: str, sent: Transcript, *, structured: bool) -> Said:
        ballot = self._judge.ballot
        return said_in_object(text, ballot) if structured else said_in_lines(text, sent.number, ballot)

    def _sampling(self, *, structured: bool) -> Sampling:
        return self._judge.structured_sampling if structured else self._judge.sampling
