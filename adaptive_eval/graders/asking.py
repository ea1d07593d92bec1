"""Common base of grading by judges and verifiers, which ask a server about each answer.

If no reply can be had (the server is gone, the request is refused), that is a grader error: the answer is stored
without a grade, and the next start of the run, or `adaptive-eval regrade`, asks again.
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
    """A reply, or the reason why there is none."""

    answer: Answer | None
    error: GraderError | None = None
    lost: bool = False
    """Whether a reply may have been generated that did not arrive."""
    refused: bool = False
    """Whether the server refused the request, maybe for one of its options."""


class AskingPool(Grading):
    """Grades answers by asking a server."""

    lasting = True

    def __init__(
        self, asked: AskedGrader, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost` is the most that the grade of an answer may cost."""
        self.lost, self._asked_again = lost, 0
        self._asked, self._folder, self._keys = asked, folder, keys
        self.rubric = rubric
        self.at_once = asked.concurrency.in_flight * len(asked.host.replicas)
        self._slots = asyncio.Semaphore(self.at_once)
        self._endpoints: dict[bool, Endpoint] = {}
        """Endpoints by whether the server enforces the format of replies."""
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
        """The cost of replies, counting lost ones by the worst-case cost `lost`, and the usage of those that came."""
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
        """Request one reply; the caller holds a slot."""
        seed %= SEED_SPAN
        may_repeat = None if again is None else partial(self._may_repeat, again)
        try:
            endpoint = self._endpoint(structured=structured)
            (reply,) = await endpoint.sample(sent, range(seed, seed + 1), may_repeat)
        except EndpointError as error:
            said = GraderError(f"the {self._asked.kind} cannot be asked: {error}")
            refused = isinstance(error, Refusal) and error.status in OF_AN_OPTION
            return GraderReply(None, said, self._has_lost_reply(), refused)
        if "unanswered" in reply.signals:
            said = GraderError(f"the {self._asked.kind} fails on this request every time: {reply.finish_reason}")
            return GraderReply(None, said, self._has_lost_reply())
        return GraderReply(reply, None, "timed_out" in reply.signals and self._has_lost_reply())

    async def _may_repeat(self, again: Again) -> bool:
        return not self._has_lost_reply() or await again()

    def _has_lost_reply(self) -> bool:
        """Whether a reply was lost for good, so that no retry has counted it."""
        lost = sum(endpoint.stats.lost for endpoint in self._endpoints.values()) > self._asked_again
        self._asked_again += lost
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
