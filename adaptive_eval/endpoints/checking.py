"""Whether a server can be asked, found out on demand."""

import asyncio
from collections.abc import Awaitable, Callable

from adaptive_eval.endpoints.failures import REFUSED_PAUSE, Refusal
from adaptive_eval.endpoints.types import ReplicaHealth
from adaptive_eval.errors import EndpointError

CHECK_SECONDS = 60.0
"""A server that has not said a word in this time is not fit for a run."""


async def checked(
    url: str, ask: Callable[[str], Awaitable[ReplicaHealth]], sleep: Callable[[float], Awaitable[None]]
) -> ReplicaHealth:
    """What comes of asking a server once, or twice where it refuses: one refusal alone may not be meant."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            try:
                return await ask(url)
            except Refusal:
                await sleep(REFUSED_PAUSE)
                return await ask(url)
    except TimeoutError:
        return ReplicaHealth(url, False, f"no answer within {CHECK_SECONDS:g} s")
    except EndpointError as error:
        return ReplicaHealth(url, False, str(error))
