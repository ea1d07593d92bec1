"""Asking a server about answers: what a judge and a verifier have in common when they are at work.

What cannot be had (a server that is gone, a request that is refused) is a grader error: the answer is stored without a
grade, and the next start of the run, or `adaptive-eval regrade`, asks again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.failures import Refusal
from adaptive_eval.endpoints.opening import open_endpoint
from adaptive_eval.endpoints.redaction import blotted, kept_from_answers
from adaptive_eval.endpoints.refusals import OF_AN_OPTION
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, Notice, Prompt, Sampling
from adaptive_eval.errors import EndpointError, GraderError
from adaptive_eval.graders.asked import NO_REPLY, AskedGrader, ReplyUse
from adaptive_eval.graders.pool import Grading
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import visible
from adaptive_eval.questions.types import Question
from adaptive_eval.seeds import SEED_SPAN


class GraderReply(NamedTuple):
    """A reply, or the reason why there is none."""

    answer: Answer | None
    error: GraderError | None = None
    lost: bool = False
    """One may have been generated that did not come."""
    refused: bool = False
    """The server does not take such a request, maybe for one of its options."""


class AskingPool(Grading):
    """Grades answers by asking a server."""

    lasting = True

    def __init__(
        self, asked: AskedGrader, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost`: the most that the grade of an answer may cost."""
        self.lost, self._asked_again = lost, 0
        self._asked, self._folder, self._keys = asked, folder, keys
        self._secrets = kept_from_answers([(asked.server, asked.sampling)], keys)
        """What its server is sent and no reply is read with: what cannot be read is quoted."""
        self.rubric = rubric
        self._slots = asyncio.Semaphore(asked.concurrency.in_flight * len(asked.server.replicas))
        self._endpoints: dict[bool, Endpoint] = {}
        """By whether the server sees to the form of replies."""
        self._notices: list[Notice] = []

    @property
    def notices(self) -> Sequence[Notice]:
        return self._notices

    async def close(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.close()

    def asks(self, question: Question) -> bool:
        return True

    def lost_with(self, answer: str, question: Question) -> Cost:
        worst = self._asked.worst_cost((question,), len(visible(answer).encode()))
        return worst if worst.tokens < self.lost.tokens else self.lost

    def lost_vote(self, lost: Cost) -> Cost:
        replies, attempts = self._asked.replies, self._asked.concurrency.attempts
        return Cost(-(-lost.tokens // replies), lost.usd / replies, lost.gpu_seconds / replies / attempts)

    def _used(self, replies: Sequence[GraderReply], lost: Cost) -> tuple[Cost, ReplyUse]:
        """The cost of replies, with those that were lost, of a grade that may cost so much, and the usage of those that
        came."""
        came = [one.answer for one in replies if one.answer is not None]
        each = [self._asked.cost(one.prompt_tokens, one.completion_tokens, one.latency) for one in came]
        used = Cost(sum(one.tokens for one in each), sum(one.usd for one in each), sum(one.gpu_seconds for one in each))
        used = used.plus(self.lost_vote(lost).times(sum(one.lost for one in replies)))
        each_use = (ReplyUse(one.prompt_tokens, one.completion_tokens, one.latency) for one in came)
        return used, reduce(ReplyUse.plus, each_use, NO_REPLY)

    async def _ask(self, sent: Prompt, seed: int, again: Again | None) -> GraderReply:
        async with self._slots:
            return await self._sample(sent, seed, again)

    async def _sample(self, sent: Prompt, seed: int, again: Again | None, *, structured: bool = False) -> GraderReply:
        """One reply, for whoever has a slot."""
        seed %= SEED_SPAN

        async def may_ask_again() -> bool:
            self._asked_again += 1
            return again is None or await again()

        try:
            endpoint = self._endpoint(structured=structured)
            (reply,) = await endpoint.sample(sent, range(seed, seed + 1), may_ask_again)
        except EndpointError as error:
            said = GraderError(f"the {self._asked.kind} cannot be asked: {error}")
            refused = isinstance(error, Refusal) and error.status in OF_AN_OPTION
            return GraderReply(None, said, self._lost_at_last(), refused)
        if "unanswered" in reply.signals:
            said = GraderError(f"the {self._asked.kind} fails on this request every time: {reply.finish_reason}")
            return GraderReply(None, said, self._lost_at_last())
        reply = replace(reply, text=blotted(reply.text, self._secrets))
        return GraderReply(reply, None, "timed_out" in reply.signals and self._lost_at_last())

    def _lost_at_last(self) -> bool:
        """Whether a reply was lost that is not asked for again: one that no caller has counted."""
        lost = sum(endpoint.stats.lost for endpoint in self._endpoints.values()) > self._asked_again
        self._asked_again += lost
        return lost

    def _endpoint(self, *, structured: bool) -> Endpoint:
        """The endpoint for replies of this form, opened when the first is wanted."""
        if structured not in self._endpoints:
            asked = self._asked
            self._endpoints[structured] = open_endpoint(
                asked.server,
                self._sampling(structured=structured),
                asked.concurrency,
                keys=self._keys,
                folder=self._folder,
            )
        return self._endpoints[structured]

    def _sampling(self, *, structured: bool) -> Sampling:
        """How replies are drawn."""
        return self._asked.sampling
