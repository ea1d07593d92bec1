"""aiohttp connections with additional limits.

aiohttp has no setting for these: refuse a response whose framing is longer than its body, report a fault in the middle
of a body at once, close a connection on unrequested bytes, and distinguish a request on a connection that the server
had already closed from a lost one.
"""

import asyncio
import socket
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

KEEP_ALIVE_SECONDS = 60
STALE_SECONDS = 0.5
NOTICE_SECONDS = 0.1
"""A request on an idle connection that the server had already closed fails within the time it took to connect plus
this, together at most `STALE_SECONDS`."""
MAX_FRAMING_BYTES = 64 * 1024
"""Maximum bytes of a response besides its body: head, interim responses, chunk sizes, trailers. Each byte of the body
allows one more."""
PARSE_CHUNK_BYTES = MAX_FRAMING_BYTES // 4
"""Bytes parsed between two checks of the limits."""


class StaleConnection(aiohttp.ServerDisconnectedError):
    """The server closed an idle connection before it received the request."""


class GuardedConnection(ResponseHandler):
    """A connection that carries one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.connect_seconds = 0.0
        """Upper bound of a round trip to the server."""
        self._requests = 0
        self._request_started_at = 0.0
        self._received = 0
        """Bytes of the response parsed so far."""
        self._unparsed = b""
        """Bytes that arrived while reading was paused."""
        self._answered = True
        """Whether the head of the response has arrived."""

    def set_response_params(self, **options: Any) -> None:
        """Begin the next request."""
        self._requests += 1
        self._request_started_at = self._loop.time()
        self._received, self._answered, self._payload = 0, False, None
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, unless they were not requested or too many are framing."""
        if not data:  # aiohttp resumes with its buffered bytes
            super().data_received(b"")
        self._unparsed += data
        while self._unparsed and not self._reading_paused:
            chunk, self._unparsed = self._unparsed[:PARSE_CHUNK_BYTES], self._unparsed[PARSE_CHUNK_BYTES:]
            if self._answered and (self._payload is None or self._payload.is_eof()):
                self._abort()  # such as a 408 before the server closes an idle connection
                return
            self._received += len(chunk)
            super().data_received(chunk)
            if self._received > MAX_FRAMING_BYTES + 2 * self._body_bytes():
                self.set_exception(HttpProcessingError(message="its framing is longer than its body"))
                self._abort()

    def _body_bytes(self) -> int:
        body = self._payload
        return 0 if body is None or body is aiohttp.EMPTY_PAYLOAD else body.total_raw_bytes

    def feed_data(self, data: tuple[Any, Any], size: int = 0) -> None:
        """Accept the head of a response, unless the request already has one."""
        if self._answered:
            self._abort()
        else:
            self._answered = not 100 <= data[0].code < 200
            super().feed_data(data, size)

    def _abort(self) -> None:
        self._unparsed = b""
        self.force_close()
        if self.transport is not None:
            self.transport.abort()

    @property
    def should_close(self) -> bool:
        """Whether it can carry no other request."""
        return super().should_close or bool(self._unparsed)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Fail the request and the reader of its body; nothing after the first fault can be trusted."""
        if self.exception() is not None:
            return
        body = self._payload
        super().set_exception(StaleConnection() if self._is_stale() else exc, *cause)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(exc, *cause)

    def _is_stale(self) -> bool:
        seconds = min(self.connect_seconds + NOTICE_SECONDS, STALE_SECONDS)
        return self._requests > 1 and not self._received and self._loop.time() < self._request_started_at + seconds


class Connector(aiohttp.TCPConnector):
    """Opens connections without a limit, and keeps idle ones."""

    def __init__(self) -> None:
        super().__init__(limit=0, resolver=aiohttp.ThreadedResolver(), socket_factory=_open_socket)
        self._factory = partial(GuardedConnection, loop=self._loop)  # type: ignore[assignment]

    async def connect(self, *arguments: Any, **options: Any) -> Any:
        """Take an idle connection, or open one and record how long that took."""
        started = self._loop.time()
        connection = await super().connect(*arguments, **options)
        protocol = connection.protocol
        if isinstance(protocol, GuardedConnection) and not protocol.connect_seconds:
            protocol.connect_seconds = self._loop.time() - started
        return connection


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    """Open a socket with keep-alive: routers drop a connection that is silent for minutes, as during a long answer."""
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        # macOS and Windows use other names; there the system's defaults apply
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)
    return sock
