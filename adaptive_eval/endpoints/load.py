"""Reads the load of servers, and limits by it how many requests are in flight at each.

There is one small task per server, however many models it serves. A reading is one request for `/metrics` on a
connection of its own, bounded in time and size (`client`); there is none while nothing is in flight. Until the first
reading, windows are small enough for most servers. While windows double, and the server counts what it was sent or is
idle, readings are frequent, so that a short run is not over before its windows are open. Without `/metrics`, or if it
keeps failing, windows are as large as configured; a server without it is not asked again.

A server that computes R sequences at once while W wait has too many requests if W > R/4, and too few if nothing waits
although its window is full. In between, a few waiting requests keep its slots busy while answers are on their way back.
A server that has not answered yet may be warming up, and keeps its windows. A change needs two readings in a row:

    shrink    windows to (requests in flight) * (R + R/8) / (R + W), by half at most
    grow      windows by 1/8, then 1/4, 1/2, 1, 1 ... of their size, as long as nothing waits; by 1 from the beginning

The step is a share of the requests in flight, so that the number of sequences per request, and of other clients, need
not be known: each client takes its part, and other clients' requests are load like any other. Since it depends on
requests in flight rather than the window, it stays the same while long answers delay the effect of a smaller window.

Readings are believed as long as the load follows. If requests were withdrawn and the load has not fallen by a quarter
of their share, others cause it, or the reading is wrong. Then fewer requests gain nothing, and steering stops for
`DOUBT_SECONDS`.

The load is read from the Prometheus text of `/metrics`: vLLM has gauges of running and waiting sequences for each
engine; llama-server has them for its slots. The gauges that a router passes on from several servers are summed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from math import ceil, inf, isfinite
from typing import NamedTuple

from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.replicas import Replica, ReplicaSet
from adaptive_eval.endpoints.sharing import SharedTime

_GAUGE = re.compile(
    rb"^(?:vllm:num_requests_(running|waiting)|llamacpp:requests_(processing|deferred))(?:\{[^\n]*\})?[ \t]+(\S+)",
    re.MULTILINE,
)


class ServerLoad(NamedTuple):
    """Numbers of sequences that a server computes and that wait."""

    running: float
    waiting: float

    @property
    def inside(self) -> float:
        """Sequences that the server has, running or waiting."""
        return self.running + self.waiting


def parse_load(metrics: bytes) -> ServerLoad | None:
    """The load, summed over engines; None if either gauge is missing or not a number."""
    sums: dict[bool, float] = {}
    for match in _GAUGE.finditer(metrics):
        runs = match[1] == b"running" or match[2] == b"processing"
        try:
            value = float(match[3])
        except ValueError:
            return None
        if not (isfinite(value) and value >= 0.0):
            return None
        sums[runs] = sums.get(runs, 0.0) + value
    return ServerLoad(sums[True], sums[False]) if len(sums) == 2 else None


DEEP = 1 / 4
"""Share of the running sequences that may wait."""
MARGIN = 1 / 8
"""Share that should wait after a window was shrunk."""
FIRST_STEP = 1 / 8
LARGEST_STEP = 1.0
MOST_AT_ONCE = 1 / 2
SHOWS = 1 / 2
"""When this share of the requests is left, the load must have followed."""
DOUBT_SECONDS = 300.0


class Steering:
    """The rule by which requests to one server are steered."""

    def __init__(self) -> None:
        self._said = 0
        """What the last reading suggested: to grow (1), to shrink (-1), or neither."""
        self._step = LARGEST_STEP
        self._before: tuple[float, float] | None = None
        """Requests in flight and sequences at the server when windows were first shrunk."""
        self._doubted_until = -float("inf")

    @property
    def doubling(self) -> bool:
        """Whether windows grow at the fastest rate, because nothing waits."""
        return self._step == LARGEST_STEP

    def read(self, load: ServerLoad, in_flight: int, full: bool, now: float) -> float | None:
        """Factor for full windows after a reading: of their size (growth), or of their requests in flight (below 1).

        None if readings are not believed, so that windows become as large as configured.
        """
        if load.waiting:
            self._step = FIRST_STEP
        if not full or now < self._doubted_until:
            return 1.0
        # a single waiting request is no queue, and a server that computes nothing is about to start
        too_many = load.waiting > max(1.0, DEEP * load.running) and load.running
        said, before = 1 if not load.waiting else -1 if too_many else 0, self._said
        self._said = said if said != before else 0
        if said >= 0:
            self._before = None
        if said == 0 or said != before:
            return 1.0
        return self._grow() if said > 0 else self._shrink(load, in_flight, now)

    def _grow(self) -> float:
        step = self._step
        self._step = min(LARGEST_STEP, 2 * step)
        return 1.0 + step

    def _shrink(self, load: ServerLoad, in_flight: int, now: float) -> float | None:
        asked, was_inside = self._before = self._before or (in_flight, load.inside)
        left = in_flight / asked
        if left <= SHOWS:
            self._before = (in_flight, load.inside)
            if load.inside > was_inside * (1.0 - (1.0 - left) / 4):
                self._before, self._doubted_until = None, now + DOUBT_SECONDS
                return None
        return max(MOST_AT_ONCE, load.running * (1.0 + MARGIN) / load.inside)


READ_EVERY = 1.0
QUICKLY = 1 / 4
"""Factor for the interval while windows double, and until the first reading."""
SLOWEST = 60.0
MISSES = 5
"""Readings that may fail in a row before windows stop being limited: an overloaded server may answer slowly."""
COUNTED = 3 / 4
"""Share of the requests in flight that one server shows if it counts them all, since some may hang or be on their way.
One of several behind an address counts half or fewer."""
NOTHINGS = 20
"""Readings of zero allowed before the first other one; after more, the server is known not to count."""
FIRST_WINDOW = 32
"""Answers in flight before the first reading; then a window doubles as long as nothing waits."""
ABSENCES = 2
"""Number of such statuses in a row, since a single one may be an accident."""
ABSENT = frozenset({400, 401, 403, 404, 405, 501})
"""Statuses of a server without `/metrics` for us: llama-server sends 501 without --metrics, as a router 400."""

Fetch = Callable[[str], Awaitable[tuple[int, bytes]]]
"""Requests `/metrics` from the server of a base URL: status and body; raises `Failure`."""


class _Window(NamedTuple):
    """One model's window at a server."""

    replica: Replica
    replicas: ReplicaSet
    """The queue of requests for a place in the window."""
    fetch: Fetch

    def steer(self, ceiling: int) -> None:
        if ceiling != self.replica.window.ceiling:
            self.replica.window.steer(ceiling)
            self.replicas.hand_out()


class _Absent(Exception):
    """The server has no metrics."""


class _Server:
    """One server, and the windows of all models that are asked there."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.windows: list[_Window] = []
        self._url = url
        self._clock = clock
        self._steering = Steering()
        self._known = False
        self._missing: list[tuple[float, float]] = []
        """For each request missing at the server: the two readings between which it was sent."""
        self._read_at = -inf
        self._counts = False
        """Whether it has counted most requests in flight here, so that requests it does not count have been lost."""
        self._opening = True
        """Whether windows are probably far below what they could be."""
        self._nothings = 0
        self._absences = 0
        self._misses = 0
        self._task = asyncio.create_task(self._watch())

    def add(self, window: _Window, size: int) -> None:
        if not self._task.done():
            window.steer(size)
            window.replica.missing = self._missing
            self.windows.append(window)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        try:
            await self._look()
            while True:
                every = READ_EVERY * QUICKLY if self._opening else READ_EVERY
                await asyncio.sleep(min(SLOWEST, every * 2.0**self._misses))
                # readings say nothing about a server that is not being asked
                if any(window.replica.peak_in_flight and window.replica.healthy for window in self.windows):
                    await self._look()
        except _Absent:
            pass
        finally:
            self._let_go()

    async def _look(self) -> None:
        before = self._in_flight
        load = await self._read()
        if load is not None:
            self._note_missing(load, min(before, self._in_flight))
        if load is not None and (self._known or load.inside):
            self._known, self._misses = True, 0
            self._note_idle(load)
            if load.inside or any(window.replica.in_flight for window in self.windows):
                self._act(load)
            return
        if load is not None and self._nothings < NOTHINGS:
            self._nothings += 1
            return
        self._misses += 1
        self._opening = False
        if self._misses >= MISSES or not self._known:
            self._let_go()

    @property
    def _in_flight(self) -> int:
        return sum(window.replica.in_flight for window in self.windows)

    def _note_missing(self, load: ServerLoad, in_flight: int) -> None:
        """Record when requests were sent that the server does not count, or that it counts all (for `overdue`)."""
        missing, before = in_flight - int(load.inside), self._read_at
        self._read_at = self._clock()
        del self._missing[max(0, missing) :]
        if missing <= 0:
            for window in self.windows:
                window.replica.counted_at = self._read_at
        if load.inside > COUNTED * in_flight:
            self._missing += [(before, self._read_at)] * (missing - len(self._missing))

    def _note_idle(self, load: ServerLoad) -> None:
        """Record since when the server reports that it is idle (for `overdue`)."""
        in_flight = self._in_flight
        self._counts |= 0.0 < COUNTED * in_flight <= load.inside
        for replica in (window.replica for window in self.windows):
            if load.inside or not self._counts:
                replica.idle_since = inf
            else:
                replica.idle_until = self._clock()
                replica.idle_since = min(replica.idle_since, replica.idle_until)

    async def _read(self) -> ServerLoad | None:
        try:
            status, body = await self.windows[0].fetch(self._url)
        except Failure:
            return None
        self._absences = self._absences + 1 if status in ABSENT else 0
        if self._absences >= ABSENCES:
            raise _Absent
        return parse_load(body) if status == 200 else None

    def _act(self, load: ServerLoad) -> None:
        full = [window for window in self.windows if window.replica.peak_in_flight >= window.replica.window.ceiling]
        in_flight = sum(window.replica.peak_in_flight for window in self.windows)
        factor = self._steering.read(load, in_flight, bool(full), self._clock())
        narrow = any(window.replica.window.ceiling < window.replica.window.configured for window in full)
        counted = load.running >= in_flight or not load.inside
        self._opening = narrow and self._steering.doubling and counted
        if factor is None:
            self._let_go()
        elif factor > 1.0:
            sizes = grow_ceilings([window.replica.window.ceiling for window in full], factor - 1.0)
            for window, size in zip(full, sizes, strict=True):
                window.steer(size)
        elif factor < 1.0 and any(window.replica.answered_at > -inf for window in self.windows):
            for window in full:
                window.steer(min(window.replica.window.ceiling, ceil(window.replica.peak_in_flight * factor)))
        for window in self.windows:
            window.replica.peak_in_flight = window.replica.in_flight

    def _let_go(self) -> None:
        for window in self.windows:
            window.steer(window.replica.window.configured)


def grow_ceilings(ceilings: Sequence[int], by: float) -> list[int]:
    """Ceilings larger by this share in sum, and by at least 1 in all; the smallest grow first."""
    left = max(1, round(by * sum(ceilings)))
    sizes = list(ceilings)
    for at in sorted(range(len(sizes)), key=ceilings.__getitem__):
        more = min(left, max(1, round(by * ceilings[at])))
        sizes[at] += more
        left -= more
    return sizes


class LoadWatch:
    """Watches the servers of a run; all models at one server are steered together, and share its time."""

    def __init__(self) -> None:
        self.shared_time = SharedTime()
        self._servers: dict[str, _Server] = {}

    def join(self, replicas: ReplicaSet, fetch: Fetch, answers: int) -> None:
        """Size the windows of these replicas, whose requests ask for `answers` each; needs a running loop."""
        clock = asyncio.get_running_loop().time
        for replica in replicas.replicas:
            if replica.url not in self._servers:
                self._servers[replica.url] = _Server(replica.url, clock)
            self._servers[replica.url].add(_Window(replica, replicas, fetch), FIRST_WINDOW // answers)

    async def leave(self, replicas: ReplicaSet) -> None:
        """Stop sizing these windows; a server that no other model asks is no longer read."""
        for replica in replicas.replicas:
            server = self._servers.get(replica.url)
            if server is None:
                continue
            server.windows = [window for window in server.windows if window.replica is not replica]
            if not server.windows:
                await self._servers.pop(replica.url).close()
