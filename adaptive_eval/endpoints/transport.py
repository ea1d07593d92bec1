"""A transport that stays fast with thousands of requests in flight: one connection is one slot.

httpx2's own pool walks over every connection when a request starts and when it ends, so its cost per request grows with
the requests in flight. Here a request takes an idle connection off a stack, or opens one; the caller limits their
number (`replicas`), so there is no queue in which a time limit could run.

Most requests are an `exchange` of bytes (`DirectPoster`), since httpx2's objects and client cost more CPU than all the
rest of a request. Only if a proxy leads to the URL, or a plug-in signs requests, a client of httpx2 over this transport
sends them (`ClientPoster`). CPU per request of 0.6 kB and answer of 0.9 kB, side by side on a busy machine, relative to
the first row (`benchmarks/throughput.md` has milliseconds, and whole runs; the last row was measured earlier, relative
to the one above):

    64 / 1,024 in flight                   CPU
    exchange                               1   / 1
    aiohttp                                4   / 4
    httpx2.AsyncClient over exchange       5   / 5
    httpx2.AsyncClient over its own pool   11  / 63
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import NamedTuple
from weakref import WeakSet

import httpx2

from adaptive_eval.endpoints.connection import Connection, refusal_reason
from adaptive_eval.endpoints.http1 import Header, too_long
from adaptive_eval.endpoints.open_files import OutOfFiles, is_out_of_files, is_spare
from adaptive_eval.endpoints.wire import MAX_BODY

CONNECT_SECONDS = 10.0
FRESH_SECONDS = 0.05
"""After being idle for longer, a connection is checked for having been closed by the server."""

Origin = tuple[str, str, int]


class _Arriving(httpx2.AsyncByteStream):
    """A body that is still arriving; its connection is free once it is read to the end."""

    def __init__(self, connection: Connection, release: Callable[[], None]) -> None:
        self._connection = connection
        self._release = release

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._connection.body()

    async def aclose(self) -> None:
        self._release()


class Incoming(NamedTuple):
    """A response: its head and its unpacked body."""

    status: int
    headers: Sequence[Header]
    body: bytes
    """The whole body, if it arrived with the head, as most answers do."""
    rest: httpx2.AsyncByteStream | None = None
    """The rest of the body otherwise; its reader must close it."""

    async def read(self) -> bytes:
        """The whole body."""
        if self.rest is None:
            return self.body
        try:
            return b"".join([part async for part in self.rest])
        finally:
            await self.rest.aclose()


MOST_BYTES = "adaptive_eval.most_bytes"
"""Request extension that lowers the client's limit on the size of the body."""


_all_transports: "WeakSet[SlotTransport]" = WeakSet()


class SlotTransport(httpx2.AsyncBaseTransport):
    """Connections by origin: a stack of idle ones, and a busy one for each request in flight.

    Of a request's time-outs it applies `connect` alone.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] = httpx2.create_ssl_context, max_body: int = MAX_BODY) -> None:
        self._tls = tls  # created at the first https URL, since reading a trust store takes time
        self._max_body = max_body
        self._idle: dict[Origin, list[Connection]] = {}
        _all_transports.add(self)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send an httpx2 request."""
        timeout = request.extensions.get("timeout", {})
        most = request.extensions.get(MOST_BYTES, self._max_body)
        payload = b"%b\r\n%b" % (request_head(request), await request.aread())
        came = await self.exchange(url_origin(request.url), payload, most, timeout.get("connect"))
        if came.rest is None:
            return httpx2.Response(came.status, headers=came.headers, content=came.body)
        return httpx2.Response(came.status, headers=came.headers, stream=came.rest)

    async def exchange(self, origin: Origin, payload: bytes, most: int, connect: float | None) -> Incoming:
        """Send a request as it is, after at most `connect` seconds; the body of the response may have `most` bytes."""
        while True:
            connection = self._take(origin) or await self._connect(origin, connect)
            try:
                parser = await connection.ask(payload, most)
                break
            except httpx2.ReadError:
                if not connection.stale:
                    raise
        rest: httpx2.AsyncByteStream | None = None
        body = b""
        if parser.complete:
            body = connection.take_body()
            self._release(origin, connection)
        else:
            rest = _Arriving(connection, lambda: self._release(origin, connection))
        if parser.packed:
            packed = httpx2.Response(parser.status, headers=parser.headers, stream=rest or httpx2.ByteStream(body))
            return Incoming(parser.status, unpacked_headers(parser.headers), b"", Unpacked(packed, most))
        return Incoming(parser.status, parser.headers, body, rest)

    async def aclose(self) -> None:
        """Close all idle connections; a busy one ends with its request."""
        self.close_idle()

    def close_idle(self) -> None:
        """Close all unused connections."""
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
            if is_out_of_files(error):
                raise _out_of_files(origin) from error
            raise httpx2.ConnectError(f"no connection to {host}:{port}: {refusal_reason(error)}") from error
        connection.connect_seconds = loop.time() - began
        if connection.open and is_spare(connection.descriptor):
            connection.abort()
            raise _out_of_files(origin)
        return connection


def _out_of_files(origin: Origin) -> OutOfFiles:
    """The error for a lack of open files; it also frees those of idle connections, of all transports."""
    for transport in _all_transports:
        transport.close_idle()
    return OutOfFiles(f"no connection to {origin[1]}:{origin[2]}: this machine has no open file left for it")


def request_head(request: httpx2.Request, without: bytes = b"") -> bytes:
    """The lines of a request's head, but not the header `without` (in lower case) or the final empty line."""
    lines = [b"%b: %b" % pair for pair in request.headers.raw if pair[0].lower() != without]
    return b"\r\n".join([b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path), *lines, b""])


def url_origin(url: httpx2.URL) -> Origin:
    """Scheme, host and port of a URL."""
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


class Unpacked(httpx2.AsyncByteStream):
    """The decompressed body of a response, up to `most` bytes; servers may compress unasked."""

    def __init__(self, response: httpx2.Response, most: int, release: Callable[[], None] = lambda: None) -> None:
        self._response = response
        self._most = most
        self._release = release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        # httpx2 unpacks in pieces of a MiB, however small the compressed ones are
        async with aclosing(self._response.aiter_bytes()) as parts:
            async for part in parts:
                size += len(part)
                if size > self._most:
                    raise too_long()
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()
        self._release()


def unpacked_headers(headers: Sequence[Header]) -> list[Header]:
    """The headers of a response after its body was decompressed."""
    return [pair for pair in headers if pair[0].lower() not in (b"content-encoding", b"content-length")]


# -- requests that differ only in their bodies -------------------------------------------------------------------


def httpx_timeouts(limit: float) -> dict[str, float | None]:
    """httpx timeouts of one request, so that a failed connection is reported before a missing answer."""
    return {"connect": min(CONNECT_SECONDS, limit / 2), "read": None, "write": None, "pool": None}


class DirectPoster:
    """Sends request bodies over connections of our own."""

    def __init__(self, transport: SlotTransport, request: httpx2.Request, limit: float) -> None:
        """`request` is a sample of those to be sent; each may take `limit` seconds."""
        self._transport = transport
        self._origin = url_origin(request.url)
        self._head = request_head(request, without=b"content-length")
        self._connect = httpx_timeouts(limit)["connect"]

    def post(self, content: bytes, most: int) -> Awaitable[Incoming]:
        """Send a body after the constant head; at most `most` bytes of the response are read."""
        payload = b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(content), content)
        return self._transport.exchange(self._origin, payload, most, self._connect)


class ClientPoster:
    """Sends request bodies through a client of httpx2."""

    def __init__(self, client: httpx2.AsyncClient, request: httpx2.Request, limit: float) -> None:
        """`request` is a sample of those to be sent; each may take `limit` seconds."""
        self._client = client
        self._like = request
        self._timeout = httpx_timeouts(limit)

    async def post(self, content: bytes, most: int) -> Incoming:
        """Build a request that differs only in its body, and send it."""
        like = self._like
        headers = [pair for pair in like.headers.raw if pair[0].lower() != b"content-length"]
        extensions = {"timeout": self._timeout, MOST_BYTES: most}
        request = httpx2.Request(like.method, like.url, headers=headers, content=content, extensions=extensions)
        return incoming_response(await self._client.send(request, stream=True))


Poster = DirectPoster | ClientPoster
"""Sends request bodies to one URL, of whose responses at most so many bytes are read."""


def incoming_response(response: httpx2.Response) -> Incoming:
    """A client's response, over any of our transports, which have unpacked it."""
    whole = response.is_stream_consumed
    rest = None if whole else Unpacked(response, MAX_BODY)
    return Incoming(response.status_code, response.headers.raw, response.content if whole else b"", rest)
