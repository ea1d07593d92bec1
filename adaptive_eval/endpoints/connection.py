"""One connection to a server: it carries one request at a time, and tells when it can carry another."""

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
"""An idle connection that was closed before the server saw a request breaks when word of that has come back: within as
long as it took to connect, and so much until it is noticed, together at most `STALE_SECONDS`."""
HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Systems but Linux do not tell."""
FIRST_PIECES = 8
PAUSE_SECONDS = 0.1
"""The first pieces of a response are handed over as they come, later ones together: of a stream of tokens, to wake who
reads costs more CPU than all the rest."""


class Connection(asyncio.Protocol):
    """One connection that carries one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.WriteTransport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._pieces = 0
        self._heard_at = 0.0
        self._sent_at = 0.0
        self._silence: float | None = None
        self._parser: ResponseParser | None = None
        self._chunks: list[bytes] = []
        self.connect_seconds = 0.0
        """What a message there and back takes at most."""
        self.used = False
        """Whether it has carried a request before the present one."""
        self.used_at = 0.0
        """When it was free again after that, by a clock that goes on while the event loop stands still."""
        self.open = False

    # -- what the transport asks for -----------------------------------------------------------------------------

    async def ask(self, payload: bytes, max_body: int, silence: float | None) -> ResponseParser:
        """Send a request and wait for the head of the response; `silence` is the seconds without a byte that end it."""
        assert self._transport is not None
        self._chunks = []
        self._pieces = 0
        parser = self._parser = ResponseParser(self._chunks.append, max_body)
        self._transport.write(payload)
        self._sent_at = self._heard_at = self._loop.time()
        self._silence = silence
        if silence is not None:
            self._timer = self._loop.call_at(self._heard_at + silence, self._expire)
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
        """Take the part of the body that has come since the last call."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

    @property
    def stale(self) -> bool:
        """Whether the server closed it while idle, just as the request was on its way."""
        heard = self._parser is None or self._parser.status
        within = min(self.connect_seconds + NOTICED_SECONDS, STALE_SECONDS)
        return self.used and not heard and self._loop.time() < self._sent_at + within

    @property
    def closed_by_server(self) -> bool:
        """Whether the server has closed it, though the event loop has not come to hear that."""
        if not HUNG_UP:
            return False
        poll = select.poll()
        poll.register(self.descriptor, HUNG_UP)
        return bool(poll.poll(0))

    @property
    def descriptor(self) -> int:
        """The number of its open file."""
        assert self._transport is not None
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def reusable(self) -> bool:
        return self.open and self._parser is not None and self._parser.complete and self._parser.reusable

    def abort(self) -> None:
        """Close the connection at once."""
        self.open = False
        self._cancel_timers()
        if self._transport is not None:
            self._transport.abort()

    def _more(self) -> asyncio.Future[None]:
        """Done with the next bytes, or at the end; who waits for it closes the connection where that fails."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self, error: Exception | None = None) -> None:
        self._error = self._error or error  # what comes after a fault means nothing
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)

    def _expire(self) -> None:
        """End the request if nothing has come for as long as is allowed."""
        assert self._silence is not None
        due = self._heard_at + self._silence
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._expire)
        else:
            self._wake(httpx2.ReadTimeout(f"the stream stopped: no byte for {self._silence:g} s"))

    def _cancel_timers(self) -> None:
        if self._timer is None and self._pause is None:
            return
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        self._timer = self._pause = None

    # -- what the event loop calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # the transports of uvloop descend from no class of asyncio
        self._transport = cast(asyncio.WriteTransport, transport)
        _keep_alive(transport.get_extra_info("socket"))
        self.open = True

    def data_received(self, data: bytes) -> None:
        parser = self._parser
        if parser is None or parser.complete:
            # nobody asked: a server that speaks out of turn, such as a 408 before it closes an idle connection
            self.abort()
            return
        if self._silence is not None:
            self._heard_at = self._loop.time()
        try:
            complete = parser.feed(data)
        except httpx2.RemoteProtocolError as error:
            self._wake(error)
            return
        if complete:
            self._cancel_timers()
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
        self._cancel_timers()
        if self._parser is None or self._parser.complete:
            return
        if exc is None and self._parser.feed_eof():
            self._wake()
        else:
            why = "" if exc is None else f" ({exc})"
            self._wake(httpx2.ReadError(f"the server closed the connection before it answered{why}"))


def _keep_alive(sock: socket.socket) -> None:
    """Probe a silent connection: routers forget one that is quiet for minutes, as it is while a long answer is made."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        # macOS and Windows know other names; there the system's own times hold
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)


def why_refused(error: Exception) -> str:
    """Why no connection was made, in the words of the system; asyncio names the call and the address as well."""
    codes = dict.fromkeys(re.findall(r"\[Errno (\d+)\] Connect call failed", str(error)))
    return ", ".join(os.strerror(int(code)) for code in codes) or re.sub(r"\[Errno -?\d+\] ", "", str(error))
