"""Sockets on which this program listens: for the page and the simulated models."""

import asyncio
from contextlib import suppress

TURNS_OF_ACCEPTING = 3
"""Turns of the event loop until an accepted connection is known to its protocol."""


async def close_listener(listener: asyncio.Server) -> None:
    """Serve accepted connections, then stop listening: asyncio never closes one accepted by a closed listener."""
    for taking in listener.sockets:
        with suppress(RuntimeError):  # uvloop has its own readers
            asyncio.get_running_loop().remove_reader(taking.fileno())
    for _ in range(TURNS_OF_ACCEPTING):
        await asyncio.sleep(0)
    listener.close()
