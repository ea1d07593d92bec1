"""The HTTP/1.1 server of this program: for the pages of monitor and labels, and for simulated models.

Strangers can reach a page, so all resources that a client can occupy are bounded: connections, the length of a head,
its time, and unsent data. Each connection has its own task, so a slow client delays only itself.
"""

import asyncio
import re
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

MAX_CONNECTIONS = 128
MAX_HEAD = 16 * 1024
MAX_BODY = 64 * 1024 * 1024
"""Bytes of a body where bodies are read at all."""
HEAD_SECONDS = 20.0
"""Timeout for a complete head once the connection is ready for it, and so for idle connections."""
SEND_SECONDS = 60.0
"""Timeout for a client to take one response or part of one, apart from what the system buffers."""
BACKLOG = 4096
TURNS_OF_ACCEPTING = 3
"""Turns of the event loop until an accepted connection is known to its protocol."""

_REQUEST_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.([01])")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_LENGTH = re.compile("[0-9]{1,18}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_NO_REQUEST_LINE = "the request line is not METHOD /PATH HTTP/1.1"


class HttpRequest(NamedTuple):
    """One request."""

    method: str
    target: str
    """The path and the query, as they were sent."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Header fields by names in lower case."""
    keeps: bool = True
    """Whether the connection stays open for another request."""
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path as it was sent."""
        return self.target.partition("?")[0]

    @property
    def parts(self) -> tuple[str, ...]:
        """The decoded parts of the path between the slashes; none is used as a path of the file system."""
        return tuple(unquote(part) for part in urlsplit(f"//host{self.target}").path[1:].split("/"))

    @property
    def query(self) -> Mapping[str, str]:
        """The decoded query."""
        return dict(parse_qsl(urlsplit(f"//host{self.target}").query))

    @property
    def host(self) -> str:
        """The host name or address that it was sent to, in lower case, without brackets; "" if it is neither."""
        found = _HOST.fullmatch(self.headers.get("host", ""))
        return "" if found is None else found[1].strip("[]").lower()


class HttpResponse(NamedTuple):
    """A complete response."""

    status: int = 200
    body: bytes = b""
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = MappingProxyType({})

    def encode(self, *, keeps: bool = True, with_body: bool = True) -> bytes:
        """The bytes to send; `keeps` is whether the connection stays open."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.status != 304:  # whose headers describe another response
            lines += [f"Content-Type: {self.kind}", f"Content-Length: {len(self.body)}"]
        lines += [] if keeps else ["Connection: close"]
        head = "\r\n".join([*lines, "\r\n"]).encode("latin-1")
        return head + self.body if with_body else head


class MalformedRequest(Exception):
    """A request that is refused; the connection is closed after the response."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status


Parts = AsyncGenerator[bytes, None]
Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
PartsHandler = Callable[[HttpRequest], Parts]
"""Yields a response in parts, head included; `ConnectionResetError` breaks the connection."""


def parse_head(head: bytes) -> HttpRequest:
    """Parse the head of a request, up to its empty line; raises `MalformedRequest`."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    asked = _REQUEST_LINE.fullmatch(first)
    if asked is None:
        raise MalformedRequest(400, _NO_REQUEST_LINE)
    headers: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise MalformedRequest(400, "a header field is not NAME: VALUE")
        name = found[1].lower()
        if name == "host" and name in headers:
            raise MalformedRequest(400, "there are two Host fields")
        headers[name] = found[2]
    keeps = asked[3] == "1" and headers.get("connection", "").lower() != "close"
    return HttpRequest(asked[1], asked[2], headers, keeps)


class HttpServer:
    """Serves `respond` until it is closed; refusals carry `headers`.

    With `strangers` as clients, connections and their time are bounded, and requests may have no body.
    """

    def __init__(self, respond: PartsHandler, headers: Mapping[str, str] | None = None, *, strangers: bool) -> None:
        self._respond = respond
        self._headers = headers or {}
        self._strangers = strangers
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], None] = {}
        """Connections without a complete head yet, longest silence first."""

    async def listen(self, host: str, port: int) -> int:
        """Accept connections, and return the port; raises `OSError` if it is not available."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: _Connection(self._begin), host, port, backlog=BACKLOG)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and break every connection."""
        await close_listener(self._listener)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # so that the connections are really gone when this returns

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
        is_full = self._strangers and len(self._tasks) >= MAX_CONNECTIONS and not self._drop_silent()
        task = asyncio.get_running_loop().create_task(self._run_connection(reader, writer, is_full))

        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._silent.pop(task, None)
            writer.transport.abort()  # complete responses are with the system, and the rest is of no use

        self._tasks.add(task)
        self._silent[task] = None
        task.add_done_callback(end)
        return task

    def _drop_silent(self) -> bool:
        """Close the connection with the longest silence, so that nobody can shut others out by opening many."""
        if (oldest := next(iter(self._silent), None)) is None:
            return False
        del self._silent[oldest]
        self._tasks.discard(oldest)
        oldest.cancel()
        return True

    async def _run_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_full: bool) -> None:
        try:
            if is_full:
                await self._refuse(writer, 503, f"more than {MAX_CONNECTIONS} connections")
            else:
                await self._serve_connection(reader, writer)
        except ConnectionResetError:
            _send_reset(writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other."""
        task = asyncio.current_task()
        assert task is not None
        writer.transport.set_write_buffer_limits(high=0)  # `drain` then waits until nothing is left here
        keeps = True
        while keeps:
            self._silent.setdefault(task)
            try:
                async with asyncio.timeout(HEAD_SECONDS if self._strangers else None):
                    request = parse_head(await _read_head(reader))
                request = await self._with_body(request, reader)
            except asyncio.LimitOverrunError:
                await self._refuse(writer, 431, f"the head is longer than {MAX_HEAD} bytes")
                return
            except MalformedRequest as error:
                await self._refuse(writer, error.status, str(error))
                return
            finally:
                self._silent.pop(task, None)
            async with aclosing(self._respond(request)) as parts:
                async for part in parts:
                    await _send(writer, part)
            keeps = request.keeps

    async def _with_body(self, request: HttpRequest, reader: asyncio.StreamReader) -> HttpRequest:
        """The request with its body; raises `MalformedRequest` if that is too long or cannot be read."""
        length, most = request.headers.get("content-length", "0"), 0 if self._strangers else MAX_BODY
        if "transfer-encoding" in request.headers:
            return request._replace(body=await _read_chunks(reader, most))
        if not _LENGTH.fullmatch(length):
            raise MalformedRequest(400, "content-length is not a number")
        _check_length(int(length), most)
        return request if length == "0" else request._replace(body=await reader.readexactly(int(length)))

    async def _refuse(self, writer: asyncio.StreamWriter, status: int, what: str) -> None:
        response = HttpResponse(status, f"{what}\n".encode(), headers=self._headers)
        await _send(writer, response.encode(keeps=False))


class _Connection(asyncio.StreamReaderProtocol):
    """Runs the task of a connection, and cancels it when the client is gone."""

    def __init__(self, begin: Callable[[asyncio.StreamReader, asyncio.StreamWriter], asyncio.Task[None]]) -> None:
        self._reader = asyncio.StreamReader(limit=MAX_HEAD)
        super().__init__(self._reader)
        self._begin_task = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # the transports of uvloop descend from no class of asyncio
        writer = asyncio.StreamWriter(
            cast(asyncio.Transport, transport), self, self._reader, asyncio.get_running_loop()
        )
        self._serving = self._begin_task(self._reader, writer)

    def eof_received(self) -> bool:
        super().eof_received()
        return False  # which closes the connection

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._serving.cancel()


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    # a client that speaks TLS waits for a word before it says more
    first = await reader.readexactly(1)
    if not first.isupper():
        raise MalformedRequest(400, _NO_REQUEST_LINE)
    return first + await reader.readuntil(b"\r\n\r\n")


async def _read_chunks(reader: asyncio.StreamReader, most: int) -> bytes:
    """Read a chunked body of at most so many bytes."""
    chunks: list[bytes] = []
    total = 0
    while True:
        size = (await reader.readuntil(b"\r\n")).removesuffix(b"\r\n").partition(b";")[0]
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", size):
            raise MalformedRequest(400, "a chunk size is not a number")
        total += int(size, 16)
        _check_length(total, most)
        chunks.append((await reader.readexactly(int(size, 16) + 2))[:-2])
        if not chunks[-1]:
            return b"".join(chunks)


def _check_length(length: int, most: int) -> None:
    if length > most:
        allowed = f"the body is longer than {most} bytes" if most else "a request may have no body"
        raise MalformedRequest(413, allowed)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    if writer.transport.get_write_buffer_size():
        async with asyncio.timeout(SEND_SECONDS):
            await writer.drain()


def _send_reset(writer: asyncio.StreamWriter) -> None:
    """Have the kernel end the connection with a reset, by leaving it no time to linger."""
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def close_listener(listener: asyncio.Server) -> None:
    """Serve accepted connections, then stop listening: asyncio never closes one accepted by a closed listener."""
    for taking in listener.sockets:
        with suppress(RuntimeError):  # uvloop has its own readers
            asyncio.get_running_loop().remove_reader(taking.fileno())
    for _ in range(TURNS_OF_ACCEPTING):
        await asyncio.sleep(0)
    listener.close()


def page_server(answer: Handler, headers: Mapping[str, str], methods: Collection[str] = ("GET", "HEAD")) -> HttpServer:
    """Build the server of a page; every response carries `headers`."""
    known = ", ".join(methods)

    async def respond(request: HttpRequest) -> Parts:
        response = HttpResponse(405, f"only {known} are served\n".encode(), headers={"Allow": known})
        if request.method in methods:
            response = await answer(request)
        response = response._replace(headers={**headers, **response.headers})
        yield response.encode(keeps=request.keeps, with_body=request.method != "HEAD")

    return HttpServer(respond, headers, strangers=True)
