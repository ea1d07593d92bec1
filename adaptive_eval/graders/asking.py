"""Base of the pools of judges and verifiers, which send each answer to a server.

If there is no reply (the server is down, or refuses the request), that is a grader error: the answer is stored without
a grade, and resuming the run or `adaptive-eval regrade` retries.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, GraderError
from adaptive_eval.base.seeds import SEED_SPAN
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.failures import OF_AN_OPTION, Refusal
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, Notice, Prompt, Sampling
from adaptive_eval.graders.asked import NO_REPLY, AskedGrader, ReplyUse
from adaptive_eval.graders.pool import Grading
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import visible
from adaptive_eval.questions.types import Question


class GraderReply(NamedTuple):
    """A reply, or the error if there is none."""

    answer: Answer | None
    error: GraderError | None = None
    lost: bool = False
    """Whether the server may have generated a reply that did not arrive."""
    refused: bool = False
    """Whether the server refused the request, possibly because of one of its options."""


class AskingPool(Grading):
    """Grades answers by asking a server."""

    lasting = True

    def __init__(
        self, asked: AskedGrader, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost` bounds the cost of grading an answer."""
        self.lost, self._counted_lost = lost, 0
        self._asked, self._folder, self._keys = asked, folder, keys
        self.rubric = rubric
        self.at_once = asked.concurrency.in_flight * len(asked.host.replicas)
        self._slots = asyncio.Semaphore(self.at_once)
        self._endpoints: dict[bool, Endpoint] = {}
        """Endpoints, keyed by whether the server enforces the format of replies."""
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

    def _replies_cost(self, replies: Sequence[GraderReply], lost: Cost) -> tuple[Cost, ReplyUse]:
        """The cost of replies, counting lost ones by the worst-case cost `lost`, and the usage of the others."""
        usages = [
            ReplyUse(reply.answer.prompt_tokens, reply.answer.completion_tokens, reply.answer.latency)
            for reply in replies
            if reply.answer is not None
        ]
        used = reduce(Cost.plus, (self._asked.cost(*usage) for usage in usages), NO_COST)
        used = used.plus(self.lost_vote(lost).times(sum(reply.lost for reply in replies)))
        return used, reduce(ReplyUse.plus, usages, NO_REPLY)

    async def _ask(self, sent: Prompt, seed: int, retry_gate: Again | None) -> GraderReply:
        async with self._slots:
            return await self._sample(sent, seed, retry_gate)

    async def _sample(
        self, sent: Prompt, seed: int, retry_gate: Again | None, *, structured: bool = False
    ) -> GraderReply:
        """Request one reply; the caller holds a slot."""
        seed %= SEED_SPAN
        may_retry = None if retry_gate is None else partial(self._may_retry, retry_gate)
        try:
            endpoint = self._endpoint(structured=structured)
            (reply,) = await endpoint.sample(sent, range(seed, seed + 1), may_retry)
        except EndpointError as error:
            failure = GraderError(f"the {self._asked.kind} did not reply: {error}")
            refused = isinstance(error, Refusal) and error.status in OF_AN_OPTION
            return GraderReply(None, failure, self._has_lost_reply(), refused)
        if "unanswered" in reply.signals:
            failure = GraderError(f"the {self._asked.kind} fails on this request every time: {reply.finish_reason}")
            return GraderReply(None, failure, self._has_lost_reply())
        return GraderReply(reply, None, "timed_out" in reply.signals and self._has_lost_reply())

    async def _may_retry(self, retry_gate: Again) -> bool:
        return not self._has_lost_reply() or await retry_gate()

    def _has_lost_reply(self) -> bool:
        """Whether a reply was lost that no retry has counted yet."""
        lost = sum(endpoint.stats.lost for endpoint in self._endpoints.values()) > self._counted_lost
        self._counted_lost += lost
        return lost

    def _endpoint(self, *, structured: bool) -> Endpoint:
        """The endpoint for this format of replies, opened on first use."""
        if structured not in self._endpoints:
            asked = self._asked
            self._endpoints[structured] = open_endpoint(
                asked.host,
                self._sampling(structured=structured),
                asked.concurrency,
                keys=self._keys,
                folder=self._folder,
            )
        return self._endpoints[structured]

    def _sampling(self, *, structured: bool) -> Sampling:
        """The sampling settings of replies."""
        return self._asked.sampling
