"""Whether a server can be asked, found out on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from adaptive_eval.endpoints.failures import REFUSED_PAUSE, Failure, FailureKind, Refusal
from adaptive_eval.endpoints.types import ReplicaHealth
from adaptive_eval.errors import EndpointError

NOT_SENT = frozenset({FailureKind.UNREACHABLE, FailureKind.OUT_OF_FILES})
"""Failures of which a server knows nothing."""
CHECK_SECONDS = 60.0
"""A server that has not said a word in this time is not fit for a run."""


async def check_server(
    url: str, ask: Callable[[str], Awaitable[ReplicaHealth]], sleep: Callable[[float], Awaitable[None]]
) -> ReplicaHealth:
    """Ask a server once, or twice if it refuses or fails: one such answer alone says little.

    A server that cannot be reached is not asked twice: a run does not wait for it either.
    """
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            try:
                return await ask(url)
            except (Refusal, Failure) as error:
                if isinstance(error, Failure) and error.kind in NOT_SENT:
                    raise
                await sleep(REFUSED_PAUSE)
                found = await ask(url)
                return replace(found, detail=f"{found.detail}, asked again after: {error}")
    except TimeoutError:
        return ReplicaHealth(url, False, f"no answer within {CHECK_SECONDS:g} s")
    except EndpointError as error:
        return ReplicaHealth(url, False, str(error))
