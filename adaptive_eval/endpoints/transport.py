"""A transport that stays fast with thousands of requests in flight: one connection is one slot.

httpx2's own pool walks over every connection when a request starts and when it ends, so its cost per request grows
with the requests in flight. Here a request takes an idle connection off a stack, or opens one; how many may be open
is decided by who asks (`replicas`), so there is no queue in which a time limit could run.

Most requests are an `exchange` of bytes (`posting`); a client of httpx2 over this transport does the same where proxies
or plug-ins need one. CPU per request of 0.6 kB and answer of 0.9 kB, side by side on a busy machine, in times of the
first (`benchmarks/throughput.md` has milliseconds, and whole runs; the last row was measured earlier, and stands here
by its ratio to the row above it):

    64 / 1,024 in flight                   CPU
    exchange                               1   / 1
    aiohttp                                4   / 4
    httpx2.AsyncClient over exchange       5   / 5
    httpx2.AsyncClient over its own pool   11  / 63
"""

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from typing import NamedTuple, cast
from weakref import WeakSet

import httpx2

from adaptive_eval.endpoints.http1 import Header, ResponseParser
from adaptive_eval.endpoints.open_files import OutOfFiles, are_out, is_spare
from adaptive_eval.endpoints.unpacking import Unpacked, without_packing
from adaptive_eval.endpoints.wire import MAX_BODY

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 60
STALE_SECONDS = 0.5
NOTICED_SECONDS = 0.1
"""An idle connection that was closed before the server saw a request breaks when word of that has come back: within as
long as it took to connect, and so much until it is noticed, together at most `STALE_SECONDS`."""
FRESH_SECONDS = 0.05
"""A connection that was idle for longer is looked at, whether the server has closed it meanwhile."""
HUNG_UP = getattr(select, "POLLRDHUP", 0)
"""Systems but Linux do not tell."""
FIRST_PIECES = 8
PAUSE_SECONDS = 0.1
"""The first pieces of a response are handed over as they come, later ones together: of a stream of tokens, to wake who
reads costs more CPU than all the rest."""

Origin = tuple[str, str, int]


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
        """What has come since, until the response is complete."""
        assert self._parser is not None
        while True:
            if self._chunks:
                yield self.taken()
            elif self._parser.complete:
                return
            else:
                try:
                    await self._more()
                except BaseException:
                    self.abort()
                    raise

    def taken(self) -> bytes:
        """What of the body has come and was not taken yet."""
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
        self._be_still()
        if self._transport is not None:
            self._transport.abort()

    def _more(self) -> asyncio.Future[None]:
        """Done with the next bytes, or at the end; who waits for it closes the connection where that fails."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        return self._waiter

    def _wake(self, error: Exception | None = None) -> None:
        self._error = error
        if self._waiter is None or self._waiter.done():
            return
        if error is None:
            self._waiter.set_result(None)
        else:
            self._waiter.set_exception(error)

    def _expire(self) -> None:
        """Nothing may have come for as long as is allowed."""
        assert self._silence is not None
        due = self._heard_at + self._silence
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._expire)
        else:
            self._wake(httpx2.ReadTimeout(f"the stream stopped: no byte for {self._silence:g} s"))

    def _be_still(self) -> None:
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
            self._be_still()
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
        self._be_still()
        if self._parser is None or self._parser.complete:
            return
        if exc is None and self._parser.feed_eof():
            self._wake()
        else:
            why = "" if exc is None else f" ({exc})"
            self._wake(httpx2.ReadError(f"the server closed the connection before it answered{why}"))


class _Arriving(httpx2.AsyncByteStream):
    """A body that is still on its way; its connection is free once it is read to the end."""

    def __init__(self, connection: Connection, release: Callable[[], None]) -> None:
        self._connection = connection
        self._release = release

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.body()

    async def aclose(self) -> None:
        self._release()


class Incoming(NamedTuple):
    """A response: its head, and its body, which nobody has to unpack."""

    status: int
    headers: Sequence[Header]
    body: bytes
    """All of it, where it came with the head, as most answers do."""
    rest: httpx2.AsyncByteStream | None = None
    """Else it comes here, and is closed by who reads it."""

    async def read(self) -> bytes:
        """The whole body."""
        if self.rest is None:
            return self.body
        try:
            return b"".join([part async for part in self.rest])
        finally:
            await self.rest.aclose()


MOST_BYTES = "adaptive_eval.most_bytes"
"""The extension of a request that bounds the body of its response further than its client does."""


_all_transports: "WeakSet[SlotTransport]" = WeakSet()


class SlotTransport(httpx2.AsyncBaseTransport):
    """Connections by origin: a stack of idle ones, and as many busy ones as there are requests in flight.

    Of the time-outs of a request, `connect` and `read` hold, the latter for the silence between two bytes.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context, max_body: int = MAX_BODY) -> None:
        self._tls = tls  # asked for at the first https URL, since reading a trust store takes its time
        self._max_body = max_body
        self._idle: dict[Origin, list[Connection]] = {}
        _all_transports.add(self)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of httpx2."""
        timeout = request.extensions.get("timeout", {})
        most = request.extensions.get(MOST_BYTES, self._max_body)
        payload = b"%b\r\n%b" % (head_of(request), await request.aread())
        came = await self.exchange(origin_of(request.url), payload, most, timeout.get("connect"), timeout.get("read"))
        if came.rest is None:
            return httpx2.Response(came.status, headers=came.headers, content=came.body)
        return httpx2.Response(came.status, headers=came.headers, stream=came.rest)

    async def exchange(
        self, origin: Origin, payload: bytes, most: int, connect: float | None, silence: float | None = None
    ) -> Incoming:
        """Send a request as it stands; its response has a body of `most` bytes at most.

        There are so many seconds to `connect`, and of `silence` between two bytes that come.
        """
        while True:
            connection = self._take(origin) or await self._connect(origin, connect)
            try:
                parser = await connection.ask(payload, most, silence)
                break
            except httpx2.ReadError:
                if not connection.stale:
                    raise
        rest: httpx2.AsyncByteStream | None = None
        body = b""
        if parser.complete:
            body = connection.taken()
            self._release(origin, connection)
        else:
            rest = _Arriving(connection, lambda: self._release(origin, connection))
        if parser.packed:
            packed = httpx2.Response(parser.status, headers=parser.headers, stream=rest or httpx2.ByteStream(body))
            return Incoming(parser.status, without_packing(parser.headers), b"", Unpacked(packed, most))
        return Incoming(parser.status, parser.headers, body, rest)

    async def aclose(self) -> None:
        """Close every idle connection; a busy one ends with its request."""
        self.close_idle()

    def close_idle(self) -> None:
        """Close what nobody uses now."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
            connections.clear()

    def _take(self, origin: Origin) -> Connection | None:
        idle = self._idle.setdefault(origin, [])
        while idle:
            connection = idle.pop()
            if connection.open and not (
                monotonic() > connection.used_at + FRESH_SECONDS and connection.closed_by_server
            ):
                return connection
            connection.abort()
        return None

    def _release(self, origin: Origin, connection: Connection) -> None:
        if connection.reusable:
            connection.used, connection.used_at = True, monotonic()
            self._idle[origin].append(connection)
        else:
            connection.abort()

    async def _connect(self, origin: Origin, seconds: float | None) -> Connection:
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop), host, port, ssl=self._tls() if scheme == "https" else None
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection to {host}:{port} within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:
            if are_out(error):
                raise _out_of_files(origin) from error
            raise httpx2.ConnectError(f"no connection to {host}:{port}: {error}") from error
        connection.connect_seconds = loop.time() - began
        if connection.open and is_spare(connection.descriptor):
            connection.abort()
            raise _out_of_files(origin)
        return connection


def _out_of_files(origin: Origin) -> OutOfFiles:
    """No connection for want of open files; those of idle connections, whosoever they are, are free from now on."""
    for transport in _all_transports:
        transport.close_idle()
    return OutOfFiles(f"no connection to {origin[1]}:{origin[2]}: this machine has no open file left for it")


def _keep_alive(sock: socket.socket) -> None:
    """Probe a silent connection: routers forget one that is quiet for minutes, as it is while a long answer is made."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        # macOS and Windows know other names; there the system's own times hold
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)


def head_of(request: httpx2.Request, without: bytes = b"") -> bytes:
    """The lines of a request's head, but for one header in lower case, and without the empty line that ends it."""
    lines = [b"%b: %b" % pair for pair in request.headers.raw if pair[0].lower() != without]
    return b"\r\n".join([b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path), *lines, b""])


def origin_of(url: httpx2.URL) -> Origin:
    """Where the connections of a URL go."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
