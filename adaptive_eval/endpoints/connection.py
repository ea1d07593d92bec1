"""One connection to a server: it carries one request at a time, and knows when it can carry another."""

import asyncio
import os
import re
import select
import socket
from collections.abc import AsyncIterator
from typing import cast

import httpx2

from adaptive_eval.endpoints.http1 import ResponseParser

KEEP_ALIVE_SECONDS = 60
STALE_SECONDS = 0.5
NOTICED_SECONDS = 0.1
"""A request on an idle connection that the server had already closed fails as soon as word of that arrives: within the
time it took to connect plus this, together at most `STALE_SECONDS`."""
HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Only Linux reports this event."""
FIRST_PIECES = 8
PAUSE_SECONDS = 0.1
"""The first pieces of a response are handed over at once, later ones together: waking the reader costs most CPU."""


class Connection(asyncio.Protocol):
    """One connection that carries one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._pieces = 0
        self._sent_at = 0.0
        self._parser: ResponseParser | None = None
        self._chunks: list[bytes] = []
        self.connect_seconds = 0.0
        """Upper bound of a round trip to the server."""
        self.used = False
        """Whether it has carried a request before this one."""
        self.used_at = 0.0
        """When it last became idle, by a clock that does not depend on the event loop."""
        self.open = False

    # -- called by the transport ---------------------------------------------------------------------------------

    async def ask(self, payload: bytes, max_body: int) -> ResponseParser:
        """Send a request and wait for the head of the response."""
        assert self._transport is not None
        self._chunks = []
        self._pieces = 0
        parser = self._parser = ResponseParser(self._chunks.append, max_body)
        self._transport.write(payload)
        self._sent_at = self._loop.time()
        try:
            while not parser.begun:
                await self._more()
        except BaseException:
            self.abort()
            raise
        return parser

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body until the response is complete."""
        assert self._parser is not None
        while True:
            if self._chunks:
                yield self.take_body()
            elif self._parser.complete:
                return
            else:
                try:
                    await self._more()
                except BaseException:
                    self.abort()
                    raise

    def take_body(self) -> bytes:
        """Take the part of the body that has arrived since the last call."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

    @property
    def stale(self) -> bool:
        """Whether the server closed the idle connection while the request was on its way."""
        heard = self._parser is None or self._parser.status
        within = min(self.connect_seconds + NOTICED_SECONDS, STALE_SECONDS)
        return self.used and not heard and self._loop.time() < self._sent_at + within

    @property
    def closed_by_server(self) -> bool:
        """Whether the server has closed it, even if the event loop does not know yet."""
        if not HUNG_UP:
            return False
        poll = select.poll()
        poll.register(self.descriptor, HUNG_UP)
        return bool(poll.poll(0))

    @property
    def descriptor(self) -> int:
        """The file descriptor of the connection."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def reusable(self) -> bool:
        return self.open and self._parser is not None and self._parser.complete and self._parser.reusable

    def abort(self) -> None:
        """Close the connection at once."""
        self.open = False
        self._cancel_pause()
        if self._transport is not None:
            self._transport.abort()

    def _more(self) -> asyncio.Future[None]:
        """A future for the next bytes or the end; the connection is aborted if waiting for it fails."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self, error: Exception | None = None) -> None:
        self._error = self._error or error  # nothing after a fault can be trusted
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)

    def _cancel_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    # -- called by the event loop --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # the transports of uvloop descend from no class of asyncio
        self._transport = cast(asyncio.WriteTransport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self.open = True

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or parser.complete:
            # unrequested bytes, such as a 408 before the server closes an idle connection
            self.abort()
            return
        try:
            complete = parser.feed(data)
        except httpx2.RemoteProtocolError as error:
            self._wake(error)
            return
        if complete:
            self._cancel_pause()
            self._wake()
        elif parser.begun:
            self._hand_over()

    def _hand_over(self) -> None:
        self._pieces += 1
        if self._pieces <= FIRST_PIECES:
            self._wake()
        elif self._pause is None:
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._cancel_pause()
        if self._parser is None or self._parser.complete:
            return
        if exc is None and self._parser.feed_eof():
            self._wake()
        else:
            why = "" if exc is None else f" ({exc})"
            self._wake(httpx2.ReadError(f"the server closed the connection before it answered{why}"))


def _keep_alive(sock: socket.socket) -> None:
    """Probe a silent connection: routers drop one that is quiet for minutes, as during a long answer."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        # macOS and Windows use other names; there the system's defaults apply
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)


def refusal_reason(error: Exception) -> str:
    """The system's reason for a failed connection, without asyncio's description of the call and the address."""
    codes = dict.fromkeys(re.findall(r"\[Errno (\d+)\] Connect call failed", str(error)))
    said = ", ".join(os.strerror(int(code)) for code in codes) or re.sub(r"\[Errno -?\d+\] ", "", str(error))
    return said or "it was closed at once"  # such as by a server of http that is asked by https
