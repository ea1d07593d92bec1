"""Sockets on which this program serves: the page, the simulated models."""

import asyncio
from contextlib import suppress

TURNS_OF_ACCEPTING = 3
"""Of the event loop, until a connection that it has accepted is known to its protocol."""


async def close_listener(listener: asyncio.Server) -> None:
    """Let in who has been accepted, then stop listening: asyncio leaves a connection open for good that comes into a
    closed listener."""
    for taking in listener.sockets:
        with suppress(RuntimeError):  # uvloop has readers of its own
            asyncio.get_running_loop().remove_reader(taking.fileno())
    for _ in range(TURNS_OF_ACCEPTING):
        await asyncio.sleep(0)
    listener.close()
