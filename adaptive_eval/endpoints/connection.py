"""Connections to servers: those of aiohttp, with limits of our own.

aiohttp has no setting for what is added here: a response whose framing outweighs its body is refused, a fault in the
middle of a body reaches its reader at once, bytes that nobody asked for end a connection, and a request that met a
connection which the server had already closed is told apart from one that was lost.
"""

import asyncio
import errno
import socket
from functools import partial
from typing import Any
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError

from adaptive_eval.endpoints.open_files import is_spare

KEEP_ALIVE_SECONDS = 60
STALE_SECONDS = 0.5
NOTICED_SECONDS = 0.1
"""A request on an idle connection that the server had already closed fails as soon as word of that arrives: within the
time it took to connect plus this, together at most `STALE_SECONDS`."""
FRAMING_BYTES = 64 * 1024
"""Bytes of a response that may be anything but its body: head, interim responses, sizes of chunks, trailers. Beyond
them there may be one for each byte of the body."""
PARSED_BYTES = 16 * 1024
"""Bytes that are parsed between two looks at what they were."""


class StaleConnection(aiohttp.ServerDisconnectedError):
    """The server closed the idle connection while the request was on its way."""


class GuardedConnection(ResponseHandler):
    """A connection that carries one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.connect_seconds = 0.0
        """Upper bound of a round trip to the server."""
        self._requests = 0
        self._asked_at = 0.0
        self._received = 0
        """Bytes of the response that were parsed so far."""
        self._unparsed = b""
        """Bytes that arrived while the reader of the body had enough."""
        self._answered = True
        """Whether the head of the response has arrived."""

    def set_response_params(self, **options: Any) -> None:
        """Begin the next request."""
        self._requests += 1
        self._asked_at = self._loop.time()
        self._received, self._answered, self._payload = 0, False, None
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless it was not asked for, or too much of it is framing."""
        if not data:  # aiohttp goes on with what it has kept
            super().data_received(b"")
        self._unparsed += data
        while self._unparsed and not self._reading_paused:
            part, self._unparsed = self._unparsed[:PARSED_BYTES], self._unparsed[PARSED_BYTES:]
            if self._answered and (self._payload is None or self._payload.is_eof()):
                self._cut()  # such as a 408 before the server closes an idle connection
                return
            self._received += len(part)
            super().data_received(part)
            if self._received > FRAMING_BYTES + 2 * self._body_bytes():
                self.set_exception(HttpProcessingError(message="its framing is longer than its body"))
                self._cut()

    def _body_bytes(self) -> int:
        body = self._payload
        return 0 if body is None or body is aiohttp.EMPTY_PAYLOAD else body.total_raw_bytes

    def feed_data(self, data: tuple[Any, Any], size: int = 0) -> None:
        """Take the head of a response, unless a request has one already."""
        if self._answered:
            self._cut()
        else:
            self._answered = not 100 <= data[0].code < 200
            super().feed_data(data, size)

    def _cut(self) -> None:
        self._unparsed = b""
        self.force_close()
        if self.transport is not None:
            self.transport.abort()

    @property
    def should_close(self) -> bool:
        """Whether it can carry no other request."""
        return super().should_close or bool(self._unparsed)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Fail the request, and whoever reads its body; nothing after the first fault can be trusted."""
        if self.exception() is not None:
            return
        body = self._payload
        super().set_exception(StaleConnection() if self._is_stale() else exc, *cause)
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(exc, *cause)

    def _is_stale(self) -> bool:
        within = min(self.connect_seconds + NOTICED_SECONDS, STALE_SECONDS)
        return self._requests > 1 and not self._received and self._loop.time() < self._asked_at + within


class Connector(aiohttp.TCPConnector):
    """Opens connections, as many as are asked for, and keeps idle ones."""

    def __init__(self) -> None:
        super().__init__(limit=0, resolver=aiohttp.ThreadedResolver(), socket_factory=_open_socket)
        self._factory = partial(GuardedConnection, loop=self._loop)  # type: ignore[assignment]
        _all_connectors.add(self)

    async def connect(self, *arguments: Any, **options: Any) -> Any:
        """Take an idle connection, or open one and note how long that took."""
        begun = self._loop.time()
        taken = await super().connect(*arguments, **options)
        connection = taken.protocol
        if isinstance(connection, GuardedConnection) and not connection.connect_seconds:
            connection.connect_seconds = self._loop.time() - begun
        return taken

    def close_idle(self) -> None:
        """Close all unused connections."""
        for idle in self._conns.values():
            for connection, _ in idle:
                connection.abort()


_all_connectors: "WeakSet[Connector]" = WeakSet()


def close_all_idle() -> None:
    """Close the unused connections of this process, whose files others need."""
    for connector in _all_connectors:
        connector.close_idle()


def _open_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that probes a silent connection: routers drop one that is quiet for minutes, as during a long answer."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    if is_spare(opened.fileno()):
        opened.close()
        raise OSError(errno.EMFILE, "the last open files are reserved")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        # macOS and Windows use other names; there the system's defaults apply
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS)
    return opened
