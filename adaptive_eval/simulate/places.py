"""A server that computes so many sequences at once, and lets the others wait in line, as `--max-num-seqs` has it."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence


class Ticket:
    """One request: how many of its sequences wait, and those that run."""

    __slots__ = ("running", "started", "waiting")

    def __init__(self, waiting: int, started: Callable[[], None]) -> None:
        self.waiting = waiting
        self.running: dict[int, asyncio.TimerHandle] = {}
        self.started = started


class Places:
    """First come, first served; a sequence keeps its place as long as its answer takes."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._line: deque[tuple[Ticket, float]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """Sequences in line."""
        return len(self._line)

    def resize(self, number: int) -> None:
        """Another number of places; what runs beyond it runs to its end."""
        self._number = number
        self._fill()

    def enter(self, sequences: Sequence[float], started: Callable[[], None]) -> Ticket:
        """Put a request's sequences in line, by their seconds; `started` is called when the last of them begins."""
        ticket = Ticket(len(sequences), started)
        self._line.extend((ticket, seconds) for seconds in sequences)
        self._fill()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Whoever asked is gone: give its places to others."""
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

    def _end(self, ticket: Ticket, sequence: int) -> None:
        del ticket.running[sequence]
        self.running -= 1
        self._fill()
