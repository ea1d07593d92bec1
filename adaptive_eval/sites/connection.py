"""Connections from the head to a site, each for one message in bytes at a time, and its reply.

A call of Ray takes many times the CPU. A site listens on its node's address, and only to those who know a secret that
is sent by a call of Ray.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from hmac import compare_digest

CONNECT_SECONDS = 5.0
SECRET_BYTES = 32
LENGTH_BYTES = 8
BROKEN = (OSError, asyncio.IncompleteReadError)

SiteAddress = tuple[str, int, bytes]
"""Host, port and secret."""


async def listen(host: str, respond: Callable[[bytes], Awaitable[bytes]]) -> tuple[asyncio.Server, SiteAddress]:
    """Reply to messages from now on."""
    secret = secrets.token_bytes(SECRET_BYTES)

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(*BROKEN):
            known = compare_digest(await reader.readexactly(SECRET_BYTES), secret)
            while known:
                _send(writer, await respond(await _receive(reader)))

    server = await asyncio.start_server(converse, host)
    return server, (host, server.sockets[0].getsockname()[1], secret)


class SiteConnections:
    """The head's ends of the connections to a site."""

    def __init__(self, address: SiteAddress) -> None:
        self._address = address
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def add(self) -> None:
        """Make a further connection; raises `OSError`."""
        host, port, secret = self._address
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
        writer.write(secret)
        self._idle.append((reader, writer))

    async def exchange(self, message: bytes) -> bytes:
        """Send a message, and return its reply; raises one of `BROKEN`."""
        if not self._idle:
            await self.add()
        reader, writer = self._idle.pop()
        try:
            _send(writer, message)
            reply = await _receive(reader)
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return reply

    def close(self) -> None:
        """Close all connections that wait for no reply."""
        while self._idle:
            self._idle.pop()[1].close()


def _send(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(len(message).to_bytes(LENGTH_BYTES) + message)


async def _receive(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES)))
