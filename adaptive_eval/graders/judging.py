"""Grading by a judge: each answer gets the majority verdict of the votes, or the median level.

A missing or unreadable verdict is a grader error.

The first request shows whether the server can enforce the format of replies. If it refuses `response_format` but gives
a verdict without, later requests omit it, and a notice says so. A refusal costs nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import GraderError, JudgeFailed
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer, Notice, Sampling
from adaptive_eval.graders.asked import NO_REPLY
from adaptive_eval.graders.asking import AskingPool, GraderReply
from adaptive_eval.graders.ballots import Levels, parse_json_ballot, parse_line_ballot
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.pool import Grading, GradingPool, make_grade
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import Transcript
from adaptive_eval.graders.types import Grade, SignalValue
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question

UNSTRUCTURED = "the judge's server refuses response_format, so the replies of {} are read line by line ({})"
Transcripts = Callable[[bool], Sequence[Transcript]]
"""Returns the transcripts for one vote, given whether the server enforces the format of the reply."""


class Vote(NamedTuple):
    """A judge's replies, one for each order, and their verdicts."""

    replies: Sequence[GraderReply]
    levels: Sequence[Levels] | GraderError


class JudgePool(AskingPool):
    """Grades answers with a judge."""

    def __init__(
        self, judge: Judge, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost` bounds the cost of the verdict on an answer."""
        super().__init__(judge, rubric, folder=folder, keys=keys, lost=lost)
        self._judge = judge
        self._structured = judge.may_be_structured
        """Whether to ask the server to enforce the format of replies."""
        self._further = [JudgePool(pool, rubric, folder=folder, keys=keys, lost=lost) for pool in judge.seats[1:]]
        """Pools of the panel's other judges, which only vote."""
        for seat in self._further:
            seat._notices = self._notices
        self.at_once += sum(pool.at_once for pool in self._further)

    async def grade(self, answer: Answer, question: Question, retry_gate: Again | None = None) -> Grade:
        """Grade an answer; raises `JudgeFailed` with the reason and the cost if there is no grade.

        `retry_gate` is called before a lost reply is requested again, and counts its cost. The cost of a lost reply
        that is not retried is included here.
        """
        judge = self._judge
        if (decided := judge.form.decided(question, answer.text)) is not None:
            return make_grade(answer, judge.marks(decided, NO_COST, NO_REPLY), self.rubric, question.id)

        @cache
        def sent(structured: bool) -> tuple[Transcript, ...]:
            return judge.transcripts(question, answer.text, structured=structured)

        seats = [self, *self._further]
        votes_by_seat = await asyncio.gather(*(seat._votes(sent, answer.seed, retry_gate) for seat in seats))
        used, replies = NO_COST, NO_REPLY
        lost = NO_COST if retry_gate is None else self.lost_with(answer.text, question)
        for seat, seat_votes in zip(seats, votes_by_seat, strict=True):
            cost, usage = seat._replies_cost([reply for vote in seat_votes for reply in vote.replies], lost)
            used, replies = used.plus(cost), replies.plus(usage)
        votes = [vote for seat_votes in votes_by_seat for vote in seat_votes]
        read = [vote.levels for vote in votes if not isinstance(vote.levels, GraderError)]
        errors = [vote.levels for vote in votes if isinstance(vote.levels, GraderError)]
        try:
            voted = judge.voted(read)
        except GraderError as error:
            raise JudgeFailed(str(errors[0] if errors else error), used) from None
        marks = judge.marks(voted, used, replies)
        if self._further:
            marks = marks._replace(signals={**marks.signals, **self._judge_agreements(votes_by_seat, voted.levels)})
        return replace(make_grade(answer, marks, self.rubric, question.id), cost=used)

    def _judge_agreements(self, votes_by_seat: Sequence[Sequence[Vote]], decided: Levels) -> dict[str, SignalValue]:
        """For each judge that voted, the share of its votes that agree with the decision."""
        shares: dict[str, SignalValue] = {}
        for name, votes in zip(self._judge.agreements, votes_by_seat, strict=True):
            ballots = [vote.levels for vote in votes if not isinstance(vote.levels, GraderError)]
            decisions = [self._judge.form.voted([replies], 1).levels for replies in ballots]
            if decisions:
                shares[name] = sum(levels == decided for levels in decisions) / len(decisions)
        return shares

    async def close(self) -> None:
        """Close the connections of all judges."""
        await super().close()
        for pool in self._further:
            await pool.close()

    async def _votes(self, sent: Transcripts, first: int, retry_gate: Again | None) -> Sequence[Vote]:
        """Request the votes of this judge, each with its own seed."""
        seeds = range(first, first + self._judge.votes)
        return await asyncio.gather(*(self._vote(sent, seed, retry_gate) for seed in seeds))

    async def _vote(self, sent: Transcripts, seed: int, retry_gate: Again | None) -> Vote:
        orders = range(self._judge.form.orders)
        results = await asyncio.gather(*(self._request_levels(sent, order, seed, retry_gate) for order in orders))
        replies = [reply for reply, _ in results]
        errors = [levels for _, levels in results if isinstance(levels, GraderError)]
        if errors:
            return Vote(replies, errors[0])
        return Vote(replies, [levels for _, levels in results if not isinstance(levels, GraderError)])

    async def _request_levels(
        self, sent: Transcripts, order: int, seed: int, retry_gate: Again | None
    ) -> tuple[GraderReply, Levels | GraderError]:
        async with self._slots:
            structured, reply = self._structured, None
            if structured:
                reply = await self._sample(sent(True)[order].prompt, seed, retry_gate, structured=True)
            if reply is None or (reply.refused and self._judge.structured is None):
                refusal, structured = reply, False
                reply = await self._sample(sent(False)[order].prompt, seed, retry_gate)
                if refusal is not None and reply.answer is not None and self._structured:
                    self._structured = False
                    self._notices.append(
                        Notice("judge_unstructured", UNSTRUCTURED.format(self._judge.host.model, refusal.error))
                    )
        if reply.answer is None:
            return reply, reply.error or GraderError("the judge gave no reply")
        try:
            return reply, self._read(reply.answer.text, sent(structured)[order], structured=structured)
        except GraderError as error:
            return reply, error

    def _read(self, text: str, sent: Transcript, *, structured: bool) -> Levels:
        ballot = self._judge.form.ballot
        return parse_json_ballot(text, ballot) if structured else parse_line_ballot(text, sent.number, ballot)

    def _sampling(self, *, structured: bool) -> Sampling:
        first = self._judge.seats[0]
        return first.structured_sampling if structured else first.sampling


class BenchmarksPool(Grading):
    """Grades a run with several benchmarks: each answer by its judge, or by the graders without a server."""

    lasting = True

    def __init__(self, judges: Mapping[str, JudgePool], others: GradingPool) -> None:
        self._judges, self._others = judges, others
        self._all: tuple[JudgePool | GradingPool, ...] = (*judges.values(), others)
        self.lost = next(iter(judges.values())).lost
        self.at_once = sum(pool.at_once for pool in judges.values())

    def asks(self, question: Question) -> bool:
        return benchmark_named(question.id) in self._judges

    def _pool_for(self, question: Question) -> JudgePool | GradingPool:
        return self._judges.get(benchmark_named(question.id), self._others)

    @property
    def rubric(self) -> Rubric:
        return self._others.rubric

    @rubric.setter
    def rubric(self, rubric: Rubric) -> None:
        for pool in self._all:
            pool.rubric = rubric

    @property
    def notices(self) -> Sequence[Notice]:
        return [*chain.from_iterable(pool.notices for pool in self._all)]

    def lost_with(self, answer: str, question: Question) -> Cost:
        return self._pool_for(question).lost_with(answer, question)

    def lost_vote(self, lost: Cost) -> Cost:
        costs = [pool.lost_vote(lost) for pool in self._judges.values()]
        return Cost(*(max(values) for values in zip(*costs, strict=True)))

    async def grade(self, answer: Answer, question: Question, retry_gate: Again | None = None) -> Grade:
        return await self._pool_for(question).grade(answer, question, retry_gate)

    async def close(self) -> None:
        for pool in self._all:
            await pool.close()
