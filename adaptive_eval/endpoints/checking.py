"""Checks by tiny requests whether servers answer."""

import asyncio
from dataclasses import replace

from adaptive_eval.base.errors import EndpointError, Rejected
from adaptive_eval.endpoints.answers import ResponseOrigin
from adaptive_eval.endpoints.client import PROBE_SECONDS
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal
from adaptive_eval.endpoints.sender import ReplyReader
from adaptive_eval.endpoints.types import ReplicaHealth

CHECK_SECONDS = 60.0
"""A server that has not sent a byte in this time is unfit for a run."""


class ServerCheck:
    """Asks the servers of one model for tiny answers."""

    def __init__(self, context: EndpointContext, replies: ReplyReader) -> None:
        self._context, self._replies = context, replies
        self._tiny = context.bodies.tiny()

    async def health(self, url: str) -> ReplicaHealth:
        """Ask a server once, or twice if it refuses or fails, since one such reply says little.

        A server that cannot be reached is not asked twice: a run would not wait for it either.
        """
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                try:
                    return await self._ask(url)
                except (Refusal, Failure) as error:
                    if isinstance(error, Failure) and error.kind is FailureKind.UNREACHABLE:
                        raise
                    await self._context.sleep(2.0 * self._context.settings.backoff)
                    health = await self._ask(url)
                    return replace(health, detail=f"{health.detail}, asked again after: {error}")
        except TimeoutError:
            return ReplicaHealth(url, False, f"no answer within {CHECK_SECONDS:g} s")
        except EndpointError as error:
            may_answer_later = isinstance(error, Failure) and error.kind is FailureKind.TIER_FULL
            return ReplicaHealth(url, may_answer_later, str(error), refuses=isinstance(error, Rejected))

    async def answers_now(self, url: str) -> bool:
        """Whether a server answers a tiny request at once."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._ask(url)
            return True
        except (TimeoutError, Failure, EndpointError):
            return False

    async def _ask(self, url: str) -> ReplicaHealth:
        context = self._context
        server = await context.servers.identify(url)
        reply = await context.caller.ask(url, self._tiny)
        prompt, origin = context.bodies.tiny_prompt, ResponseOrigin(url, reply.latency, None, 1)
        self._replies.answers(reply, prompt, range(1), origin)
        return ReplicaHealth(url, True, "it answers", reply.latency, server.notices)
