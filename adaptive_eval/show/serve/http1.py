"""HTTP/1.1 for a page on this machine: requests without bodies, complete responses, and streams of events.

The simulator's server reads bodies, times its replies and trusts its clients; this one reads no body and trusts nobody.
All resources that a client can occupy are bounded: connections, the length of a head, its time, and unsent data. Each
connection has its own task, so a slow client delays only itself.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

from adaptive_eval.listeners import close_listener

MAX_CONNECTIONS = 128
MAX_HEAD = 16 * 1024
HEAD_SECONDS = 20.0
"""Timeout for a complete head once the connection is ready for it, and so for idle connections."""
SEND_SECONDS = 60.0
"""Timeout for a client to take one response or event, apart from what the system buffers."""

_REQUEST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")

Events = AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The head of a request; there is never a body."""

    method: str
    path: tuple[str, ...]
    """The decoded parts between the slashes; none is used as a path of the file system."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Header fields by names in lower case."""
    keeps: bool
    """Whether the connection stays open for another request."""


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A complete response, or the head of a stream of `events`."""

    status: int = 200
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Events | None = None


def requested_host(request: PageRequest) -> str:
    """The host name or address that a request was sent to, in lower case, without brackets; "" if it is neither."""
    found = _HOST.fullmatch(request.headers.get("host", ""))
    return "" if found is None else found[1].strip("[]").lower()


class MalformedHead(Exception):
    """A request that is refused; the connection is closed after the response."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status


Handler = Callable[[PageRequest], Awaitable[PageResponse]]


def parse_head(head: bytes) -> PageRequest:
    """Parse the head of a request, up to its empty line; raises `MalformedHead`."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    asked = _REQUEST_LINE.fullmatch(first)
    if asked is None:
        raise MalformedHead(400, "the request line is not METHOD /PATH HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise MalformedHead(400, "a header field is not NAME: VALUE")
        name = found[1].lower()
        if name == "host" and name in headers:
            raise MalformedHead(400, "there are two Host fields")
        headers[name] = found[2]
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise MalformedHead(413, "a request may have no body")
    parts = urlsplit(f"//host{asked[2]}")
    keeps = asked[3] == "1" and headers.get("connection", "").lower() != "close"
    path = tuple(unquote(part) for part in parts.path[1:].split("/"))
    return PageRequest(asked[1], path, dict(parse_qsl(parts.query)), headers, keeps)


class HttpServer:
    """Serves `handler` until it is closed; every response carries `headers`."""

    def __init__(
        self, handler: Handler, headers: Mapping[str, str], methods: Collection[str] = ("GET", "HEAD")
    ) -> None:
        """`methods` are those that `handler` supports."""
        self._handler = handler
        self._headers = headers
        self._methods = tuple(methods)
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], None] = {}
        """Connections without a complete head yet, longest silence first."""

    async def listen(self, host: str, port: int) -> int:
        """Accept connections, and return the port; raises `OSError` if it is not available."""
        self._listener = await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        await close_listener(self._listener)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
                if len(self._tasks) > MAX_CONNECTIONS and not self._drop_silent():
                    await self._send(writer, _text(503, f"more than {MAX_CONNECTIONS} connections"), "GET", False)
                else:
                    await self._serve_connection(reader, writer, task)
        finally:
            self._tasks.discard(task)
            self._silent.pop(task, None)
            writer.transport.abort()  # complete responses are with the system, and the rest is of no use

    def _drop_silent(self) -> bool:
        """Close the connection with the longest silence, so that nobody can shut others out by opening many."""
        if (oldest := next(iter(self._silent), None)) is None:
            return False
        del self._silent[oldest]
        oldest.cancel()
        return True

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]
    ) -> None:
        """Answer one request after the other."""
        writer.transport.set_write_buffer_limits(high=0)  # `drain` then waits until nothing is left here
        keeps = True
        while keeps:
            self._silent[task] = None
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    request = parse_head(await reader.readuntil(b"\r\n\r\n"))
            except asyncio.LimitOverrunError:
                await self._send(writer, _text(431, f"the head is longer than {MAX_HEAD} bytes"), "GET", False)
                return
            except MalformedHead as error:
                await self._send(writer, _text(error.status, str(error)), "GET", False)
                return
            finally:
                self._silent.pop(task, None)
            response = await self._answer(request)
            keeps = request.keeps and response.events is None
            await self._send(writer, response, request.method, keeps)
            if response.events is not None and request.method == "GET":
                await _stream(reader, writer, response.events)

    async def _answer(self, request: PageRequest) -> PageResponse:
        if request.method not in self._methods:
            known = ", ".join(self._methods)
            return PageResponse(405, f"only {known} are served\n".encode(), headers={"Allow": known})
        return await self._handler(request)

    async def _send(self, writer: asyncio.StreamWriter, response: PageResponse, method: str, keeps: bool) -> None:
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **response.headers}.items()]
        if response.status != 304:  # whose headers describe another response
            lines += [f"Content-Type: {response.kind}"]
            lines += [f"Content-Length: {len(response.body)}"] if response.events is None else []
        lines += [] if keeps else ["Connection: close"]
        head = "\r\n".join([*lines, "\r\n"]).encode("latin-1")
        writer.write(head if method == "HEAD" else head + response.body)
        async with asyncio.timeout(SEND_SECONDS):
            await writer.drain()


async def _stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, events: Events) -> None:
    """Send events until there are no more or the client is gone; anything else that it sends ends the stream too."""
    gone = asyncio.create_task(reader.read(1))
    sending = asyncio.create_task(_send_events(writer, events))
    try:
        await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (gone, sending):
            task.cancel()
        await asyncio.gather(gone, sending, return_exceptions=True)


async def _send_events(writer: asyncio.StreamWriter, events: Events) -> None:
    async with aclosing(events):
        async for event in events:
            writer.write(event)
            async with asyncio.timeout(SEND_SECONDS):
                await writer.drain()


def _text(status: int, what: str) -> PageResponse:
    return PageResponse(status, f"{what}\n".encode())
