"""Checks by tiny requests whether servers answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from adaptive_eval.base.errors import EndpointError, Rejected
from adaptive_eval.endpoints.answers import ResponseOrigin
from adaptive_eval.endpoints.client import PROBE_SECONDS, Caller
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal
from adaptive_eval.endpoints.sender import ReplyReader
from adaptive_eval.endpoints.servers import IdentifiedServers
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.types import EndpointConfig, Message, Prompt, ReplicaHealth

CHECK_SECONDS = 60.0
"""A server that has not sent a byte in this time is unfit for a run."""
_TINY_CHAT = Prompt(messages=(Message("user", "Say OK."),))
_TINY_TEXT = Prompt(text="Say OK.")


def tiny_prompt(config: EndpointConfig) -> Prompt:
    """A prompt that needs only a tiny answer."""
    return _TINY_CHAT if config.api == "chat" else _TINY_TEXT


class ServerCheck:
    """Asks the servers of one model for tiny answers."""

    def __init__(
        self,
        caller: Caller,
        servers: IdentifiedServers,
        replies: ReplyReader,
        prompt: Prompt,
        body: Mapping[str, object],
        sleep: Callable[[float], Awaitable[None]],
        settings: EndpointSettings,
    ) -> None:
        """`prompt` and `body` belong to a tiny request."""
        self._caller = caller
        self._servers = servers
        self._replies = replies
        self._prompt = prompt
        self._body = body
        self._sleep = sleep
        self._pause = 2.0 * settings.backoff

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
                    await self._sleep(self._pause)
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
        server = await self._servers.identify(url)
        reply = await self._caller.ask(url, self._body)
        self._replies.answers(reply, self._prompt, range(1), ResponseOrigin(url, reply.latency, None, 1))
        return ReplicaHealth(url, True, "it answers", server.served, reply.latency, server.notices)
