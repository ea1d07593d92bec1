"""A transport that stays fast with thousands of requests in flight: one connection is one slot.

httpx's own pool walks over every connection when a request starts and when it ends, so its cost per request grows
with the requests in flight. Here a request takes an idle connection off a stack, or opens one; how many may be open
is decided by who asks (`replicas`), so there is no queue in which a time limit could run: it starts when the bytes
are handed to the socket.

`SlotTransport` is an httpx transport, and requests for health and models go through `httpx.AsyncClient`. Answers are
asked for with `exchange`, one step below, since httpx's own values and client cost several times as much. CPU of one
core per request of 0.6 kB and answer of 0.9 kB (`benchmarks/throughput.md` has the peers and whole runs, too):

    64 / 1,024 in flight        ms of CPU
    exchange                    0.04 / 0.05
    aiohttp                     0.09 / 0.18
    httpx.AsyncClient on top    0.19 / 0.21
    httpx with its own pool     7.7  / not to be waited for
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import NamedTuple

import httpx

from adaptive_eval.endpoints.http1 import MAX_BODY, Header, ResponseParser

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 60
STALE_SECONDS = 0.5
"""An idle connection that breaks so soon after a request was sent had been closed before the server saw it."""

Origin = tuple[str, str, int]
Sink = Callable[[bytes], object]


class Exchange(NamedTuple):
    """One response."""

    status: int
    headers: list[Header]
    body: bytes
    """Empty where a sink took it."""
    sent_at: float
    latency: float


class Connection(asyncio.Protocol):
    """One connection that carries one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_body: int) -> None:
        self._loop = loop
        self._max_body = max_body
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sink: Sink | None = None
        self._heard_at = 0.0
        self._limit: float | None = None
        self._quiet: float | None = None
        self.parser = ResponseParser(self._body, max_body)
        self.chunks: list[bytes] = []
        self.used = False
        """Whether it has carried a request before the present one."""
        self.sent_at = 0.0
        self.open = False

    # -- what the transport asks for -----------------------------------------------------------------------------

    async def exchange(self, payload: bytes, limit: float | None, quiet: float | None, sink: Sink | None) -> float:
        """Send a request and wait for the whole response in `parser` and `chunks`; gives the seconds it took."""
        assert self._transport is not None
        self.parser = ResponseParser(self._body, self._max_body)
        self.chunks = []
        self._sink = sink
        self._quiet = quiet
        waiter = self._waiter = self._loop.create_future()
        self._transport.write(payload)
        self.sent_at = self._heard_at = self._loop.time()
        self._limit = limit
        self._arm()
        try:
            await waiter
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiter = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return self._loop.time() - self.sent_at

    @property
    def stale(self) -> bool:
        """Whether the server closed it while idle, just as the request was on its way."""
        return self.used and self.parser.status == 0 and self._loop.time() < self.sent_at + STALE_SECONDS

    @property
    def reusable(self) -> bool:
        return self.open and self.parser.reusable

    def abort(self) -> None:
        """Close at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # -- time limits ---------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Wake at the time limit, or when the stream has been quiet for too long, whichever is first."""
        limits = [] if self._limit is None else [self.sent_at + self._limit]
        if self._quiet is not None:
            limits.append(self._heard_at + self._quiet)
        if limits:
            self._timer = self._loop.call_at(min(limits), self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        if self._limit is not None and now >= self.sent_at + self._limit:
            self._fail(httpx.ReadTimeout(f"no answer within {self._limit:g} s of sending the request"))
        elif self._quiet is not None and now >= self._heard_at + self._quiet:
            self._fail(Stalled(f"the stream stopped: no byte for {self._quiet:g} s"))
        else:
            self._arm()

    # -- what the event loop calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        _keep_alive(transport.get_extra_info("socket"))
        self.open = True

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None:
            # nobody asked: a server that speaks out of turn, such as a 408 before it closes an idle connection
            self.abort()
            return
        if self._quiet is not None:
            self._heard_at = self._loop.time()
        try:
            complete = self.parser.feed(data)
        except Exception as error:
            # the parser's own errors, and those of the sink; the waiting request gets them
            self._fail(error)
            return
        if complete and not waiter.done():
            waiter.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if exc is None and self.parser.feed_eof():
            waiter.set_result(None)
        else:
            waiter.set_exception(httpx.ReadError(f"the server closed the connection before it answered ({exc})"))

    def _body(self, data: bytes) -> None:
        if self._sink is not None and self.parser.status == 200:
            self._sink(data)
        else:
            self.chunks.append(data)

    def _fail(self, error: BaseException) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class Stalled(httpx.ReadError):
    """A stream that stopped."""


class SlotTransport(httpx.AsyncBaseTransport):
    """Connections by origin: a stack of idle ones, and as many busy ones as there are requests in flight."""

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._idle: dict[Origin, list[Connection]] = {}
        self._ssl: ssl.SSLContext | None = None

    async def exchange(
        self,
        origin: Origin,
        payload: bytes,
        limit: float | None = None,
        quiet: float | None = None,
        sink: Sink | None = None,
    ) -> Exchange:
        """Send a request and read the whole response.

        `limit` is the seconds from sending to the last byte, `quiet` the seconds without a byte after which a stream
        counts as stopped; `sink` takes the bytes of a 200 body as they come.
        """
        while True:
            connection = self._take(origin) or await self._connect(origin)
            try:
                latency = await connection.exchange(payload, limit, quiet, sink)
                break
            except httpx.ReadError:
                if not connection.stale:
                    raise
        if connection.reusable:
            connection.used = True
            self._idle[origin].append(connection)
        else:
            connection.abort()
        parser = connection.parser
        body = b"".join(connection.chunks)
        return Exchange(parser.status, parser.headers, body, connection.sent_at, latency)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The interface of httpx; its read time-out becomes the limit on the whole answer."""
        lines = [b"%b: %b" % pair for pair in request.headers.raw]
        head = [b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path), *lines, b"", b""]
        limit = request.extensions.get("timeout", {}).get("read")
        payload = b"\r\n".join(head) + await request.aread()
        done = await self.exchange(origin_of(request.url), payload, limit)
        return httpx.Response(done.status, headers=done.headers, content=done.body)

    async def aclose(self) -> None:
        """Close every idle connection; a busy one ends with its request."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
            connections.clear()

    def _take(self, origin: Origin) -> Connection | None:
        idle = self._idle.setdefault(origin, [])
        while idle:
            connection = idle.pop()
            if connection.open:
                return connection
        return None

    async def _connect(self, origin: Origin) -> Connection:
        scheme, host, port = origin
        if scheme == "https" and self._ssl is None:
            self._ssl = httpx.create_ssl_context()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._max_body),
                    host,
                    port,
                    ssl=self._ssl if scheme == "https" else None,
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {host}:{port} within {CONNECT_SECONDS:g} s") from error
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(f"no connection to {host}:{port}: {error}") from error
        return connection


def _keep_alive(sock: socket.socket) -> None:
    """Probe a silent connection: routers forget one that is quiet for minutes, as it is while a long answer is made."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        # macOS and Windows know other names; there the system's own times hold
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)


def origin_of(url: httpx.URL) -> Origin:
    """Where the connections of a URL go."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
