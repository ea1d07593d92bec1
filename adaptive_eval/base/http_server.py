"""aiohttp's HTTP server for the pages of monitor and labels, and for simulated models.

Strangers can reach a page, so the resources of a client are limited: connections, the length and time of a head, and
unsent data. A connection beyond the limit closes the connection with the oldest last request, so that no client can
lock out others.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import cast

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.http_exceptions import LineTooLong

MAX_CONNECTIONS = 128
"""Maximum connections to a page."""
MAX_BODY = 64 * 1024 * 1024
"""Maximum bytes of a body, if bodies are read."""
HEAD_SECONDS = 20.0
"""Timeout for receiving a head, and so for idle connections to a page."""
SEND_SECONDS = 60.0
"""Timeout for a client to read a piece of a page, apart from the system's buffers."""
HANDLER_SECONDS = 5.0
"""Timeout for requests to end after their connections are closed."""
PIECE = 64 * 1024
"""Bytes of a page to write at a time, which bounds the unsent data of a client that reads nothing."""
BACKLOG = 4096
ACCEPT_TURNS = 3
"""Iterations of the event loop until a protocol knows of its accepted connection."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
PageHandler = Callable[[web.BaseRequest], Awaitable[web.Response]]


class RefusingConnection(web.RequestHandler):
    """A connection that refuses malformed requests without a log entry, and ignores disconnects."""

    def __init__(self, server: "HttpServer", idle: float = 3600.0) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, keepalive_timeout=idle, lingering_time=0.0)
        self._headers = server.headers

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc
        if isinstance(exc, HttpProcessingError | web.RequestPayloadError):
            status = 431 if isinstance(exc, LineTooLong) else 400
            response: web.StreamResponse = web.Response(status=status, text=f"{message or exc}\n")
            response.force_close()
        else:
            response = super().handle_error(request, status, exc, message)
        response.headers.update(self._headers)
        return response


class HttpServer(web.Server):
    """Serves `respond` until it is closed, and cancels it if the client disconnects. Errors have `headers`."""

    def __init__(self, respond: Handler, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.headers = headers
        made = partial(web.BaseRequest, loop=asyncio.get_running_loop(), client_max_size=MAX_BODY)
        super().__init__(respond, request_factory=made, handler_cancellation=True)

    def __call__(self) -> web.RequestHandler:
        return RefusingConnection(self)

    async def listen(self, host: str, port: int) -> int:
        """Accept connections, and return the port; raises `OSError` if it is not available."""
        self._listener = await asyncio.get_running_loop().create_server(self, host, port, backlog=BACKLOG)
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and abort every connection."""
        await close_listener(self._listener)
        for connection in self.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)  # the loop closes them and cancels their requests
        await self.shutdown(HANDLER_SECONDS)


class PageServer(HttpServer):
    """A public server: `answer` handles requests with these methods, and every response has `headers`."""

    def __init__(
        self, answer: PageHandler, headers: Mapping[str, str], methods: Collection[str] = ("GET", "HEAD")
    ) -> None:
        super().__init__(self._respond, {"Server": "adaptive-eval", **headers})
        self._answer = answer
        self._methods = methods
        self._by_last_request: dict[asyncio.BaseProtocol, asyncio.Transport] = {}

    def __call__(self) -> web.RequestHandler:
        return _PageConnection(self)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._by_last_request) >= MAX_CONNECTIONS:
            self._by_last_request.pop(next(iter(self._by_last_request))).abort()
        self._by_last_request[handler] = transport

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._by_last_request.pop(handler, None)

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        if (transport := self._by_last_request.pop(request.protocol, None)) is None:
            raise ConnectionResetError  # it was closed because of the limit
        self._by_last_request[request.protocol] = transport
        if request.method not in self._methods:
            allowed = ", ".join(self._methods)
            response = web.Response(status=405, text=f"only {allowed} are served\n", headers={"Allow": allowed})
        elif request.body_exists:
            response = web.Response(status=413, text="a request may have no body\n")
            response.force_close()
        else:
            response = await self._answer(request)
        if isinstance(response.body, bytes):
            response.headers["Content-Length"] = str(len(response.body))
            response.body = _pieces(response.body)
        for name, value in self.headers.items():
            response.headers.setdefault(name, value)
        return response


class _PageConnection(RefusingConnection):
    """A connection that is aborted if the client stops reading."""

    def __init__(self, server: PageServer) -> None:
        super().__init__(server, HEAD_SECONDS)
        self._cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # so a response is complete when the buffer is empty; uvloop's transports do not derive from asyncio's
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=0)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        assert self.transport is not None
        self._cut = asyncio.get_running_loop().call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_timer()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._cut is not None:
            self._cut.cancel()


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


async def close_listener(listener: asyncio.Server) -> None:
    """Serve accepted connections, then stop listening: asyncio never closes those accepted by a closed listener."""
    for listening in listener.sockets:
        with suppress(RuntimeError):  # uvloop has its own readers
            asyncio.get_running_loop().remove_reader(listening.fileno())
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)
    listener.close()
