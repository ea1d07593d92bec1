"""A small HTTP/1.1 server protocol: keep-alive, pipelined requests in order, chunked bodies, replies in timed parts.

`ServingSlots` limits the sequences computed at once, and queues the others, like `--max-num-seqs`.
"""

import asyncio
import re
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast


class SlotTicket:
    """The numbers of a request's waiting and running sequences."""

    __slots__ = ("running", "started", "waiting")

    def __init__(self, waiting: int, started: Callable[[], None]) -> None:
        self.waiting = waiting
        self.running: dict[int, asyncio.TimerHandle] = {}
        self.started = started


class ServingSlots:
    """Slots served first come, first served; a sequence keeps its slot until its answer is complete."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._line: deque[tuple[SlotTicket, float]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """Number of queued sequences."""
        return len(self._line)

    def resize(self, number: int) -> None:
        """Change the number of slots; sequences already running continue."""
        self._number = number
        self._fill()

    def enter(self, sequences: Sequence[float], started: Callable[[], None]) -> SlotTicket:
        """Queue a request's sequences, given by their seconds; `started` is called when the last of them begins."""
        ticket = SlotTicket(len(sequences), started)
        self._line.extend((ticket, seconds) for seconds in sequences)
        self._fill()
        return ticket

    def leave(self, ticket: SlotTicket) -> None:
        """Release the slots of a client that has disconnected."""
        self._line = deque(entry for entry in self._line if entry[0] is not ticket)
        self.running -= len(ticket.running)
        for timer in ticket.running.values():
            timer.cancel()
        ticket.running.clear()
        self._fill()

    def _fill(self) -> None:
        loop = asyncio.get_running_loop()
        while self._line and self.running < self._number:
            ticket, seconds = self._line.popleft()
            self.running += 1
            ticket.waiting -= 1
            ticket.running[ticket.waiting] = loop.call_later(seconds, self._end, ticket, ticket.waiting)
            if not ticket.waiting:
                ticket.started()

    def _end(self, ticket: SlotTicket, sequence: int) -> None:
        del ticket.running[sequence]
        self.running -= 1
        self._fill()


MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024

_BEGINNING = re.compile(rb"[A-Z]{1,16}(?: |\Z)")
"""A method, or the part of one that has arrived."""

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 413: "Content Too Large"}
_REASONS |= {429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ApiReply:
    """The parts of a reply, each with the seconds after which it is sent; without `ends` the rest never comes.

    A reply made of `sequences` (the seconds that each takes) begins once there are places for them all.
    """

    parts: tuple[tuple[float, bytes], ...]
    ends: bool = True
    reset_after: float | None = None
    """Seconds after which to break the connection instead."""
    sequences: tuple[float, ...] = ()


class MalformedRequest(Exception):
    """A request that cannot be read; the connection is closed after a 400 (or 413)."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status


NO_REQUEST_LINE = "the request line is not METHOD PATH HTTP/1.1"

Handler = Callable[[ApiRequest], ApiReply]


def whole_response(status: int, body: bytes, headers: str = "", kind: str = "application/json") -> bytes:
    """A whole response."""
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}\r\nContent-Type: {kind}\r\n{headers}"
    return b"%bContent-Length: %d\r\n\r\n%b" % (head.encode(), len(body), body)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
ONE_WRITE_SECONDS = 0.01
"""Parts this close in time are sent together, as by a busy server."""


def in_few_writes(parts: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """The parts merged into fewer, none sent early: parts within one write's time are sent with the last of them."""
    since = at = 0.0
    held: list[bytes] = []
    for due, data in parts:
        if held and due - since >= ONE_WRITE_SECONDS:
            yield at, b"".join(held)
            held = []
        if not held:
            since = due
        at = due
        held.append(data)
    yield at, b"".join(held)


def _dechunk(data: bytes, at: int) -> tuple[bytes, int] | None:
    """The body of a chunked request and its end; None if it is incomplete."""
    pieces: list[bytes] = []
    total = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        try:
            size = int(data[at:end].partition(b";")[0], 16)
        except ValueError:
            raise MalformedRequest(400, "a chunk size is not a number") from None
        total += size
        if size < 0 or total > MAX_BODY:
            raise MalformedRequest(413, f"the body is longer than {MAX_BODY} bytes")
        at = end + 2
        if size == 0:
            end = data.find(b"\r\n", at)
            return None if end < 0 else (b"".join(pieces), end + 2)
        if len(data) < at + size + 2:
            return None
        pieces.append(data[at : at + size])
        at += size + 2


def parse_request(data: bytes) -> tuple[ApiRequest, int] | None:
    """The first request in the bytes and its end; None if it is incomplete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if not _BEGINNING.match(data):
            raise MalformedRequest(400, NO_REQUEST_LINE)
        if len(data) > MAX_HEAD:
            raise MalformedRequest(400, "the head is too long")
        return None
    first, *lines = data[:end].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise MalformedRequest(400, NO_REQUEST_LINE)
    length = 0
    chunked = False
    for line in lines:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            if not value.strip().isdigit():
                raise MalformedRequest(400, "content-length is not a number")
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = value.strip().lower() == b"chunked"
    if length > MAX_BODY:
        raise MalformedRequest(413, f"the body is longer than {MAX_BODY} bytes")
    at = end + 4
    if chunked:
        whole = _dechunk(data, at)
        if whole is None:
            return None
        body, at = whole
    else:
        if len(data) < at + length:
            return None
        body = data[at : at + length]
        at += length
    path = words[1].partition(b"?")[0].decode("latin-1")
    return ApiRequest(words[0].decode("latin-1"), path, body), at


class ServerProtocol(asyncio.Protocol):
    """One connection: reads a request, sends its reply, then looks at the next."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        connections: set["ServerProtocol"],
        places: ServingSlots | None = None,
    ) -> None:
        self._loop = loop
        self._handler = handler
        self._connections = connections
        self._places = places
        self._ticket: SlotTicket | None = None
        self._buffer = bytearray()
        self._busy = False
        self._timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # the transports of uvloop descend from no class of asyncio
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._places is not None and self._ticket is not None:
            self._places.leave(self._ticket)
        for timer in self._timers:
            timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._busy:
            self._next()
        elif len(self._buffer) > MAX_BODY + MAX_HEAD:
            self.abort()

    def abort(self) -> None:
        """Break the connection: with no time to linger, the kernel sends a reset instead of a proper end."""
        linger = struct.pack("ii", 1, 0)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()

    def _next(self) -> None:
        while self._buffer and not self._busy:
            try:
                parsed = parse_request(bytes(self._buffer))
            except MalformedRequest as error:
                self._transport.write(whole_response(error.status, str(error).encode(), "Connection: close\r\n"))
                self._transport.close()
                return
            if parsed is None:
                return
            request, end = parsed
            del self._buffer[:end]
            self._send(self._handler(request))

    def _send(self, reply: ApiReply) -> None:
        if self._places is None or not reply.sequences:
            self._begin(reply)
        else:
            self._busy = True
            self._ticket = self._places.enter(reply.sequences, partial(self._begin_late, reply))

    def _begin_late(self, reply: ApiReply) -> None:
        self._begin(reply)
        if not self._busy:
            self._next()

    def _begin(self, reply: ApiReply) -> None:
        if reply.reset_after is not None:
            self._busy = True
            self._timers = [self._loop.call_later(reply.reset_after, self.abort)]
            return
        now = [data for seconds, data in reply.parts if seconds <= 0.0]
        later = reply.parts[len(now) :]
        if now:
            self._transport.write(b"".join(now))
        self._busy = bool(later) or not reply.ends
        self._timers = [self._loop.call_later(seconds, self._transport.write, data) for seconds, data in later[:-1]]
        if later:
            seconds, data = later[-1]
            self._timers.append(self._loop.call_later(seconds, self._last, data, reply.ends))

    def _last(self, data: bytes, ends: bool) -> None:
        self._transport.write(data)
        self._timers = []
        self._busy = not ends
        if ends:
            self._next()
