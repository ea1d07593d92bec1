"""Reads the load of servers, and sizes by it how many requests are in flight at each.

One small task per server, whatever the number of models that are asked there: a reading is one request for `/metrics`
on a connection of its own, bounded in time and size (`client`), and none is made while nothing is in flight. Until
the first reading a window is small enough for most servers. As long as windows double, and the server counts what it
was sent or has nothing to do, readings follow each other quickly: a short run must not be over before its windows are
open. Without `/metrics`, or where it fails again and again, windows are as large as configured; a server that does
not have it is not asked again.

A server that computes R sequences at once while W wait is asked too much for where W > R/4, and for too little where
nothing waits although a window is what limits. In between, a few that wait keep its places taken while an answer is on
its way back. One that has not answered yet may be warming up, and keeps its windows. What is to be done must be said by
two readings in a row:

    shrink    windows to (requests in flight) * (R + R/8) / (R + W), by half at most
    grow      windows by 1/8, then 1/4, 1/2, 1, 1 ... of their size, as long as nothing waits; by 1 from the beginning

The step is a share of what is in flight, so it needs not be known how many sequences a request is, nor how many
clients the server has: each takes its part, and what others ask for is load like any other. Since it goes by what is
in flight and not by the window, it says the same while long answers keep a smaller window from taking effect.

A reading is believed as long as it follows: where requests were taken away and the load has not fallen by a quarter of
their share, then it is not made by them (many others ask the same server), or it is wrong. Then nothing is gained by
staying away, and the windows are left alone for `DOUBT_SECONDS`.

The load is in the Prometheus text of `/metrics`: vLLM has a gauge of the sequences that it computes and one of those
that wait, for each engine; llama-server has the same of its slots. A router that passes on the gauges of several
servers says their sum.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from math import ceil, inf, isfinite
from typing import NamedTuple

from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.replicas import Replica, ReplicaSet

_GAUGE = re.compile(
    rb"^(?:vllm:num_requests_(running|waiting)|llamacpp:requests_(processing|deferred))(?:\{[^\n]*\})?[ \t]+(\S+)",
    re.MULTILINE,
)


class ServerLoad(NamedTuple):
    """Sequences that a server computes, and those that wait until it can."""

    running: float
    waiting: float

    @property
    def inside(self) -> float:
        """Requests that the server has, running and waiting."""
        return self.running + self.waiting


def load_in(metrics: bytes) -> ServerLoad | None:
    """The load, summed over engines; None where either gauge is missing or is no count."""
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
"""Share that is to wait after a window was made smaller."""
FIRST_STEP = 1 / 8
LARGEST_STEP = 1.0
MOST_AT_ONCE = 1 / 2
SHOWS = 1 / 2
"""When this share of the requests is left, it shows whether the load follows."""
DOUBT_SECONDS = 300.0


class LoadAdvice(Enum):
    """The change that one reading suggests."""

    GROW = auto()
    STAY = auto()
    SHRINK = auto()


class WindowChange(NamedTuple):
    """New size of full windows: `factor` times their size (growth) or their requests in flight (below 1)."""

    factor: float = 1.0
    let_go: bool = False
    """The readings are not to be believed: as large as configured."""


STAY = WindowChange()


class Steering:
    """The rule by which requests to one server are steered."""

    def __init__(self) -> None:
        self._said = LoadAdvice.STAY
        self._step = LARGEST_STEP
        self._before: tuple[float, float] | None = None
        """Requests in flight and sequences at the server when the windows were first made smaller."""
        self._doubted_until = -float("inf")

    @property
    def doubling(self) -> bool:
        """Whether windows grow as fast as they can, since nothing waits."""
        return self._step == LARGEST_STEP

    def read(self, load: ServerLoad, in_flight: int, full: bool, now: float) -> WindowChange:
        """Decide after a reading, with so many requests in flight; nothing changes if no window is `full`."""
        if load.waiting:
            self._step = FIRST_STEP
        if not full or now < self._doubted_until:
            return STAY
        saying = _saying(load)
        again, self._said = saying is self._said, saying
        if saying is not LoadAdvice.SHRINK:
            self._before = None
        if saying is LoadAdvice.STAY or not again:
            return STAY
        self._said = LoadAdvice.STAY
        return self._grow() if saying is LoadAdvice.GROW else self._shrink(load, in_flight, now)

    def _grow(self) -> WindowChange:
        step = self._step
        self._step = min(LARGEST_STEP, 2 * step)
        return WindowChange(1.0 + step)

    def _shrink(self, load: ServerLoad, in_flight: int, now: float) -> WindowChange:
        asked, was_inside = self._before = self._before or (in_flight, load.inside)
        left = in_flight / asked
        if left <= SHOWS:
            self._before = (in_flight, load.inside)
            if load.inside > was_inside * (1.0 - (1.0 - left) / 4):
                self._before, self._doubted_until = None, now + DOUBT_SECONDS
                return WindowChange(let_go=True)
        return WindowChange(max(MOST_AT_ONCE, load.running * (1.0 + MARGIN) / load.inside))


def _saying(load: ServerLoad) -> LoadAdvice:
    if not load.waiting:
        return LoadAdvice.GROW
    # one that waits is no queue, and a server that computes nothing is about to begin
    return LoadAdvice.SHRINK if load.waiting > max(1.0, DEEP * load.running) and load.running else LoadAdvice.STAY


READ_EVERY = 1.0
QUICKLY = 1 / 4
"""As much of it while windows double, and until the first reading."""
SLOWEST = 60.0
MISSES = 5
"""Readings that may fail in a row before a window is no longer held to what they said: a server may be slow to tell
just because it has too much to do."""
COUNTED = 3 / 4
"""Share of the requests in flight that a server counts once if it counts them all: some of them may hang, or be on
their way. One of several behind an address counts half of them or fewer."""
NOTHINGS = 20
"""Readings of nothing at all, before the first of something, that a server may give: it has not yet got what was sent,
or has already done it. If it goes on it does not count."""
BEFORE_THE_FIRST = 32
"""Answers in flight before anything is known; from there on a window doubles as long as nothing waits."""
ABSENCES = 2
"""Times in a row that it must say so: one may not be meant."""
ABSENT = frozenset({400, 401, 403, 404, 405, 501})
"""What a server says that has no `/metrics`, or not for us: llama-server 501 without --metrics, as a router 400."""

Fetch = Callable[[str], Awaitable[tuple[int, bytes]]]
"""Asks the server of a base URL for `/metrics`: status and body; raises `Failure`."""


class _Window(NamedTuple):
    """One model's window at a server."""

    replica: Replica
    replicas: ReplicaSet
    """Where requests wait for a place in it."""
    fetch: Fetch

    def steer(self, ceiling: int) -> None:
        if ceiling != self.replica.window.ceiling:
            self.replica.window.steer(ceiling)
            self.replicas.hand_out()


class _Absent(Exception):
    """The server has no metrics."""


class _Server:
    """One server, and the windows of everyone who asks it."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.windows: list[_Window] = []
        self._url = url
        self._clock = clock
        self._steering = Steering()
        self._known = False
        self._missing: list[tuple[float, float]] = []
        """Readings between which one more request was in flight here than at the server, and has been since."""
        self._read_at = -inf
        self._counts = False
        """It has counted most requests that were in flight here: what it does not count it does not have."""
        self._opening = True
        """Windows are far from what they could be, as far as is known."""
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
                # what is done with a reading says nothing of a server that nobody asks
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
        """Keep when requests were sent that the server does not count, for whoever waits for them (`overdue`)."""
        missing, before = in_flight - int(load.inside), self._read_at
        self._read_at = self._clock()
        del self._missing[max(0, missing) :]
        if load.inside > COUNTED * in_flight:
            self._missing += [(before, self._read_at)] * (missing - len(self._missing))

    def _note_idle(self, load: ServerLoad) -> None:
        """Keep since when the server says that it has nothing to do, for whoever waits for it (`overdue`)."""
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
        return load_in(body) if status == 200 else None

    def _act(self, load: ServerLoad) -> None:
        full = [window for window in self.windows if window.replica.peak_in_flight >= window.replica.window.ceiling]
        in_flight = sum(window.replica.peak_in_flight for window in self.windows)
        move = self._steering.read(load, in_flight, bool(full), self._clock())
        narrow = any(window.replica.window.ceiling < window.replica.window.configured for window in full)
        counted = load.running >= in_flight or not load.inside
        self._opening = narrow and self._steering.doubling and counted
        if move.let_go:
            self._let_go()
        elif move.factor > 1.0:
            sizes = grown([window.replica.window.ceiling for window in full], move.factor - 1.0)
            for window, size in zip(full, sizes, strict=True):
                window.steer(size)
        elif move.factor < 1.0 and any(window.replica.answered_at > -inf for window in self.windows):
            for window in full:
                window.steer(min(window.replica.window.ceiling, ceil(window.replica.peak_in_flight * move.factor)))
        for window in self.windows:
            window.replica.peak_in_flight = window.replica.in_flight

    def _let_go(self) -> None:
        for window in self.windows:
            window.steer(window.replica.window.configured)


def grown(ceilings: Sequence[int], by: float) -> list[int]:
    """Ceilings that are larger by this share together, and by 1 at least; the smallest first."""
    left = max(1, round(by * sum(ceilings)))
    sizes = list(ceilings)
    for at in sorted(range(len(sizes)), key=ceilings.__getitem__):
        more = min(left, max(1, round(by * ceilings[at])))
        sizes[at] += more
        left -= more
    return sizes


class LoadWatch:
    """Watches the servers of a run: all models that are asked at one server are steered together."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def join(self, replicas: ReplicaSet, fetch: Fetch, answers: int) -> None:
        """Size the windows of these replicas from now on, where a request asks for so many; needs a running loop."""
        clock = asyncio.get_running_loop().time
        for replica in replicas.replicas:
            if replica.url not in self._servers:
                self._servers[replica.url] = _Server(replica.url, clock)
            self._servers[replica.url].add(_Window(replica, replicas, fetch), BEFORE_THE_FIRST // answers)

    async def leave(self, replicas: ReplicaSet) -> None:
        """Leave these windows alone; a server that nobody asks any more is not read."""
        for replica in replicas.replicas:
            server = self._servers.get(replica.url)
            if server is None:
                continue
            server.windows = [window for window in server.windows if window.replica is not replica]
            if not server.windows:
                await self._servers.pop(replica.url).close()
