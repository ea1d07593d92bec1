"""Replies of simulated servers in timed parts, and the slots of a server for generating them."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from aiohttp import web

JSON = "application/json"
EVENTS = "text/event-stream"


@dataclass(slots=True, eq=False)
class SlotTicket:
    """The waiting and running sequences of a request."""

    waiting: int
    started: Callable[[], None]
    running: dict[int, asyncio.TimerHandle] = field(default_factory=dict)


class ServingSlots:
    """Slots in order of arrival; a sequence holds its slot until its answer is complete."""

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
        """Queue a request's sequences, given their seconds; `started` is called when the last of them starts."""
        ticket = SlotTicket(len(sequences), started)
        self._line.extend((ticket, seconds) for seconds in sequences)
        self._fill()
        return ticket

    def leave(self, ticket: SlotTicket) -> None:
        """Remove a request's sequences from the slots and the queue."""
        if not (ticket.waiting or ticket.running):
            return
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


@dataclass(frozen=True, slots=True)
class ApiReply:
    """A response whose body is sent in parts, each after a number of seconds; without `ends` it never completes.

    A reply with `sequences` (their durations in seconds) starts when there are slots for all of them.
    """

    parts: tuple[tuple[float, bytes], ...]
    status: int = 200
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    ends: bool = True
    reset_after: float | None = None
    """Seconds after which to reset the connection instead."""
    sequences: tuple[float, ...] = ()


def whole_reply(body: bytes, status: int = 200, kind: str = JSON, headers: Mapping[str, str] | None = None) -> ApiReply:
    """A complete response that is sent at once."""
    return ApiReply(((0.0, body),), status, kind, headers or {})


def json_reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> ApiReply:
    """A complete response in JSON."""
    return whole_reply(orjson.dumps(body), status, headers=headers)


async def send_reply(request: web.BaseRequest, reply: ApiReply, slots: ServingSlots | None) -> web.StreamResponse:
    """Send the parts of a reply when they are due; a disconnect releases the slots."""
    started = asyncio.Event()
    ticket = None if slots is None else slots.enter(reply.sequences, started.set)
    try:
        if reply.sequences and ticket is not None:
            await started.wait()
        return await _send_parts(request, reply)
    finally:
        if slots is not None and ticket is not None:
            slots.leave(ticket)


async def _send_parts(request: web.BaseRequest, reply: ApiReply) -> web.StreamResponse:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    if reply.reset_after is not None:
        await asyncio.sleep(reply.reset_after)
        if (transport := request.transport) is not None:
            # without linger time the kernel closes the connection with a reset
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()
        raise ConnectionResetError
    headers = {"Content-Type": reply.kind, **reply.headers}
    streamed = web.StreamResponse(status=reply.status, headers=headers)
    for seconds, data in reply.parts:
        if seconds > 0.0:
            await asyncio.sleep(begun + seconds - loop.time())
        if reply.kind != EVENTS:
            return web.Response(status=reply.status, headers=headers, body=data)
        await streamed.prepare(request)
        await streamed.write(data)
    if not reply.ends:
        await asyncio.Event().wait()
    return streamed
