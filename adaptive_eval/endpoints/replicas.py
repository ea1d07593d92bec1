"""The replicas of one model: which of them gets the next request, and how many each may have in flight.

A request goes to the replica with the fewest in flight among those that are usable: healthy, not told to wait by a
Retry-After, and below their window. The window starts at its ceiling, is halved when a request is refused (429) or its
connection fails, and grows step by step with the answers; it does not look at latency, since a model server slows as
it fills. The ceiling is the configured concurrency, or less where the server's own load says so (`load_watch`). Who
finds no usable replica waits in line.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from adaptive_eval.endpoints.types import ReplicaStats
from adaptive_eval.errors import Unavailable

STEPS = 16
"""A window regains its ceiling in about this many times the answers that fit into it."""


class Window:
    """How many requests may be in flight."""

    def __init__(self, configured: int) -> None:
        self.configured = configured
        self.ceiling = configured
        self.size = configured
        self._answers = 0
        self._halved_at = -float("inf")

    def steer(self, ceiling: int) -> None:
        """Set the ceiling, within the configured one; a window that refusals have made smaller grows on by itself."""
        whole = self.size == self.ceiling
        self.ceiling = max(1, min(self.configured, ceiling))
        self.size = self.ceiling if whole else min(self.size, self.ceiling)

    def refused(self, sent_at: float, now: float) -> None:
        """Halve, once for all the requests that were already on their way when it was last halved."""
        if sent_at >= self._halved_at:
            self.size = max(1, self.size // 2)
            self._halved_at = now
            self._answers = 0

    def answered(self) -> None:
        """Grow by one step for every windowful of answers."""
        if self.size < self.ceiling:
            self._answers += 1
            if self._answers >= self.size:
                self.size = min(self.ceiling, self.size + max(1, self.ceiling // STEPS))
                self._answers = 0


class Replica:
    """One server: its window, its load and its health."""

    def __init__(self, url: str, ceiling: int) -> None:
        self.url = url
        self.window = Window(ceiling)
        self.in_flight = 0
        self.most = 0
        """The most in flight since the load of the server was last read."""
        self.healthy = True
        self.wait_until = -float("inf")
        self.answered_at = -float("inf")
        self.leases: set[asyncio.Timeout] = set()
        """What holds the requests in flight; expired when the replica is found dead."""

    def usable(self, now: float) -> bool:
        return self.healthy and self.in_flight < self.window.size and now >= self.wait_until

    def take_place(self) -> None:
        """One more request is in flight."""
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)

    def interrupt(self) -> None:
        """End every request in flight here, so that it is sent elsewhere."""
        now = asyncio.get_running_loop().time()
        # emptied first: a lease may expire only once
        leases, self.leases = self.leases, set()
        for lease in leases:
            lease.reschedule(now)


class ReplicaSet:
    """All replicas of one model and the line of those who wait for one."""

    def __init__(self, urls: tuple[str, ...], ceiling: int, clock: Callable[[], float]) -> None:
        self.replicas = tuple(Replica(url, ceiling) for url in urls)
        self._clock = clock
        self._waiting: deque[tuple[asyncio.Future[Replica], Replica | None]] = deque()
        self._gone: str | None = None

    async def acquire(self, avoid: Replica | None = None) -> Replica:
        """A place at a replica, at another one than `avoid` if there is a choice; give it back with `release`."""
        if self._gone is not None:
            raise Unavailable(self._gone)
        if not self._waiting and (replica := self._choose(avoid)) is not None:
            replica.take_place()
            return replica
        place: asyncio.Future[Replica] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, avoid))
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.release(place.result())
            raise

    def release(self, replica: Replica) -> None:
        """Give a place back."""
        replica.in_flight -= 1
        if self._waiting:
            self.hand_out()

    def hand_out(self) -> None:
        """Give free places to those who wait; called whenever a replica may have become usable."""
        while self._waiting:
            place, avoid = self._waiting[0]
            if place.done():
                self._waiting.popleft()
                continue
            replica = self._choose(avoid)
            if replica is None:
                return
            self._waiting.popleft()
            replica.take_place()
            place.set_result(replica)

    def pause(self, replica: Replica, seconds: float) -> None:
        """Send nothing to a replica for so long."""
        until = self._clock() + seconds
        if until > replica.wait_until:
            replica.wait_until = until
            # a little later, since a timer may fire just before its time
            asyncio.get_running_loop().call_later(seconds + 0.001, self.hand_out)

    def give_up(self, reason: str) -> None:
        """The model is gone for good: everyone who waits is told, and everyone who comes."""
        self._gone = reason
        while self._waiting:
            place, _ = self._waiting.popleft()
            if not place.done():
                place.set_exception(Unavailable(reason))

    @property
    def stats(self) -> tuple[ReplicaStats, ...]:
        return tuple(
            ReplicaStats(replica.url, replica.healthy, replica.in_flight, replica.window.size)
            for replica in self.replicas
        )

    def _choose(self, avoid: Replica | None) -> Replica | None:
        now = self._clock()
        usable = [replica for replica in self.replicas if replica.usable(now)]
        if len(usable) > 1 and avoid is not None:
            usable = [replica for replica in usable if replica is not avoid]
        return min(usable, key=lambda replica: replica.in_flight, default=None)
