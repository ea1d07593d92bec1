"""Who reads the load of servers and sizes their windows by it.

One small task per server, whatever the number of models that are asked there: a reading is one request for `/metrics`
on a connection of its own, bounded in time and size (`client`), and none is made while nothing is in flight. Until
the first reading a window is small enough for most servers. As long as windows double, and the server counts what it
was sent or has nothing to do, readings follow each other quickly: a short run must not be over before its windows are
open. Without `/metrics`, or where it fails again and again, windows are as large as configured; a server that does
not have it is not asked again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import NamedTuple

from adaptive_eval.endpoints.failures import Failure
from adaptive_eval.endpoints.load import Load, load_in
from adaptive_eval.endpoints.replicas import Replica, ReplicaSet
from adaptive_eval.endpoints.steering import Steering

READ_EVERY = 1.0
QUICKLY = 1 / 4
"""As much of it while windows double, and until the first reading."""
SLOWEST = 60.0
MISSES = 5
"""Readings that may fail in a row before a window is no longer held to what they said: a server may be slow to tell
just because it has too much to do."""
NOTHINGS = 20
"""Readings of nothing at all, before the first of something, that a server may give: it has not yet got what was sent,
or has already done it. If it goes on it does not count."""
BEFORE_THE_FIRST = 32
"""Answers in flight before anything is known; from there on a window doubles as long as nothing waits."""
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
    """There is nothing to read."""


class _Server:
    """One server, and the windows of everyone who asks it."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.windows: list[_Window] = []
        self._url = url
        self._clock = clock
        self._steering = Steering()
        self._known = False
        self._opening = True
        """Windows are far from what they could be, as far as is known."""
        self._nothings = 0
        self._misses = 0
        self._task = asyncio.create_task(self._watch())

    def add(self, window: _Window, size: int) -> None:
        if not self._task.done():
            window.steer(size)
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
                if any(window.replica.most and window.replica.healthy for window in self.windows):
                    await self._look()
        except _Absent:
            pass
        finally:
            self._let_go()

    async def _look(self) -> None:
        load = await self._read()
        if load is not None and (self._known or load.inside):
            self._known, self._misses = True, 0
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

    async def _read(self) -> Load | None:
        try:
            status, body = await self.windows[0].fetch(self._url)
        except Failure:
            return None
        if status in ABSENT:
            raise _Absent
        return load_in(body) if status == 200 else None

    def _act(self, load: Load) -> None:
        full = [window for window in self.windows if window.replica.most >= window.replica.window.ceiling]
        in_flight = sum(window.replica.most for window in self.windows)
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
        elif move.factor < 1.0:
            for window in full:
                window.steer(min(window.replica.window.ceiling, ceil(window.replica.most * move.factor)))
        for window in self.windows:
            window.replica.most = window.replica.in_flight

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
