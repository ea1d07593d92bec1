"""The replicas of one model: choosing one for the next request, and limiting the requests in flight at each.

A request goes to the usable replica with the fewest in flight, and among equals to the one that was sent the fewest. A
replica is usable if it is healthy, not paused by a Retry-After, and below its window. The window starts at its ceiling.
It is halved when a request is refused (429), or when failures cluster: one connection in fifty breaks on a good day,
whatever the load. After a refusal it grows step by step with the answers; after failures by one with each answer, since
its size was not the cause. Latency is ignored, since a model server slows as it fills. A replica with only failures for
a while gets one request at a time, with pauses of at most `LONGEST_PAUSE`, so that its return is soon noticed. The
ceiling is the configured concurrency, or less if the server's load requires it (`load`). Without a usable replica,
requests wait in a queue.

One small task per replica notices its death long before the time limit of answers. It is idle while answers keep
arriving; otherwise it probes the replica every few seconds, and at once after a failed request. After `MISSES` probes
in a row without a sign of life (such as an answer), the replica is set aside: it is sent nothing but probes until it is
back, and its requests in flight are ended and sent elsewhere. Only if it accepts connections, is silent, and no other
replica could take its requests do they stay: the same server would get the same request again, and a slow one would
never finish anything. Each time a request is ended in this way, its next replica may miss twice as many probes. When
every replica has been set aside for longer than the model's patience, the model is given up. A model that has never
answered gets no patience if no server can be reached; a server that accepts connections but is silent may only be busy.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, Unavailable
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.types import ReplicaStats

RECENT = 32
TOGETHER = 8
"""Number of failures among a replica's last `RECENT` requests that counts as a cluster."""
ONLY_FAILURES = 8
"""Consecutive failures after which requests to a replica are separated by pauses."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
STEPS = 16
"""A window recovers its ceiling after about this many windows full of answers."""


class RequestWindow:
    """Limit on the requests in flight."""

    def __init__(self, configured: int) -> None:
        self.configured = configured
        self.ceiling = configured
        self.size = configured
        self.failures_in_a_row = 0
        self._answers = 0
        self._halved_at = -inf
        self._recent: deque[bool] = deque(maxlen=RECENT)
        """Failures among the last requests."""
        self._before_failures = 0
        """Size of the window before failures clustered."""

    def steer(self, ceiling: int) -> None:
        """Set the ceiling, at most the configured one; a window that refusals have shrunk still grows by itself."""
        whole = self.size == self.ceiling
        self.ceiling = max(1, min(self.configured, ceiling))
        self.size = self.ceiling if whole else min(self.size, self.ceiling)

    def on_refusal(self, sent_at: float, now: float) -> None:
        """Halve the window, once for all requests that were on their way when it was last halved."""
        if sent_at >= self._halved_at:
            self.size = max(1, self.size // 2)
            self._halved_at = now
            self._answers = 0
            self._before_failures = 0

    def on_failure(self, sent_at: float, now: float) -> None:
        """Halve the window if failures cluster."""
        self.failures_in_a_row += 1
        self._recent.append(True)
        if sum(self._recent) >= TOGETHER:
            before = max(self.size, self._before_failures)
            self.on_refusal(sent_at, now)
            self._before_failures = before

    @property
    def pause(self) -> float:
        """Seconds to wait before the next request if there are only failures."""
        beyond = self.failures_in_a_row - ONLY_FAILURES
        return 0.0 if beyond < 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(beyond, 8))

    def on_answer(self) -> None:
        """Grow by one if failures had shrunk the window, otherwise by one step per window full of answers."""
        self.failures_in_a_row = 0
        self._recent.append(False)
        if self.size < min(self.ceiling, self._before_failures):
            self.size += 1
        elif self.size < self.ceiling:
            self._answers += 1
            if self._answers >= self.size:
                self.size = min(self.ceiling, self.size + max(1, self.ceiling // STEPS))
                self._answers = 0


class Replica:
    """One server: its window, its load and its health."""

    def __init__(self, url: str, ceiling: int) -> None:
        self.url = url
        self.window = RequestWindow(ceiling)
        self.in_flight = 0
        self.sent = 0
        self.peak_in_flight = 0
        """Most requests in flight since the server's load was last read."""
        self.healthy = True
        self.wait_until = -inf
        self.apart = 0.0
        """Seconds between requests, while it is unclear whether the replica accepts any."""
        self.refusing = False
        """Whether the replica is believed to refuse everything."""
        self.trouble = ""
        """What is wrong, if it is dead or refuses everything."""
        self.answered_at = -inf
        self.alive_at = -inf
        """Time of its last sign of life."""
        self.awake_since = -inf
        """Time of the first sign of life after a silence of `SILENCE`."""
        self.idle_since, self.idle_until = inf, -inf
        """First and last time in a row that its readings showed it idle (`load`)."""
        self.counted_at = -inf
        """Last time at which the server counted every request in flight (`load`)."""
        self.missing: list[tuple[float, float]] = []
        """For each request that it does not count: earliest and latest time at which it was sent (`load`)."""
        self.reached = False
        """Whether a server is there: it has answered a probe or accepted its connection."""
        self.leases: dict[EndableBlock, int] = {}
        """The requests in flight, with how often each was ended before at a silent replica."""

    @property
    def fit(self) -> bool:
        """Whether the replica is healthy and does not refuse everything."""
        return self.healthy and not self.refusing

    def mark_alive(self, at: float) -> None:
        """Record a sign of life."""
        if at - self.alive_at > SILENCE:
            self.awake_since = at
        self.alive_at = max(self.alive_at, at)

    def interrupt(self, misses: float = inf) -> None:
        """End requests in flight here for which this many missed probes are enough."""
        for lease, ended in list(self.leases.items()):
            if misses >= MISSES * 2**ended:
                del self.leases[lease]
                why = f"{self.url} was found dead while a request was in flight"
                lease.end(Failure(FailureKind.REPLICA_LOST, why))


class ReplicaSet:
    """All replicas of one model, and the queue of requests for a place."""

    def __init__(self, urls: tuple[str, ...], ceiling: int, clock: Callable[[], float]) -> None:
        self.replicas = tuple(Replica(url, ceiling) for url in urls)
        self._clock = clock
        self._waiting: deque[tuple[asyncio.Future[Replica], Replica | None]] = deque()
        self._gone: str | None = None

    async def acquire(self, avoid: Replica | None = None) -> Replica:
        """Wait for a place at a replica, other than `avoid` if possible; return it with `release`."""
        if self._gone is not None:
            raise Unavailable(self._gone)
        if not self._waiting and (replica := self._choose(avoid)) is not None:
            self._take_place(replica)
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
        """Return a place."""
        replica.in_flight -= 1
        if self._waiting:
            self.hand_out()

    def hand_out(self) -> None:
        """Give free places to waiting requests; called whenever a replica may have become usable."""
        while self._waiting:
            place, avoid = self._waiting[0]
            if place.done():
                self._waiting.popleft()
                continue
            replica = self._choose(avoid)
            if replica is None:
                return
            self._waiting.popleft()
            self._take_place(replica)
            place.set_result(replica)

    def _take_place(self, replica: Replica) -> None:
        replica.in_flight += 1
        replica.sent += 1
        replica.peak_in_flight = max(replica.peak_in_flight, replica.in_flight)
        if replica.apart:
            self.pause(replica, replica.apart)

    def pause(self, replica: Replica, seconds: float) -> None:
        """Send nothing to a replica for this long."""
        until = self._clock() + seconds
        if until > replica.wait_until:
            replica.wait_until = until
            # slightly later, since a timer may fire just before its time
            asyncio.get_running_loop().call_later(seconds + 0.001, self.hand_out)

    def give_up(self, reason: str) -> None:
        """Fail all waiting and future requests: the model is gone for good."""
        self._gone = reason
        self._fail_waiting(lambda: Unavailable(reason))

    def refuse(self, refusal: Refusal) -> None:
        """Fail all waiting requests because every replica refuses; future ones may try again."""
        self._fail_waiting(refusal.copy)

    def _fail_waiting(self, error: Callable[[], EndpointError]) -> None:
        while self._waiting:
            place, _ = self._waiting.popleft()
            if not place.done():
                place.set_exception(error())

    def has_alternative(self, replica: Replica) -> bool:
        """Whether another replica can take this one's requests."""
        return any(other.fit for other in self.replicas if other is not replica)

    @property
    def places(self) -> int:
        """Number of requests that may be in flight."""
        return sum(replica.window.size for replica in self.replicas)

    @property
    def has_room(self) -> bool:
        """Whether a place is free that no request waits for."""
        return not self._waiting and self._choose(None) is not None

    @property
    def stats(self) -> tuple[ReplicaStats, ...]:
        return tuple(
            ReplicaStats(one.url, one.fit, one.in_flight, one.window.size, one.trouble) for one in self.replicas
        )

    def _choose(self, avoid: Replica | None) -> Replica | None:
        now = self._clock()
        usable = [
            replica
            for replica in self.replicas
            if replica.healthy and replica.in_flight < replica.window.size and now >= replica.wait_until
        ]
        if len(usable) > 1 and avoid is not None:
            usable = [replica for replica in usable if replica is not avoid]
        return min(usable, key=lambda replica: (replica.in_flight, replica.sent), default=None)


PROBE_EVERY = 5.0
PROBE_AGAIN = 1.0
"""Seconds between probes after one without a sign of life, and least distance of two probes."""
PROBE_SLOWEST = 2.0
"""Seconds between probes of a server that stays down."""
MISSES = 3
SILENCE = 3 * PROBE_EVERY
"""Seconds without a sign of life after which a busy server counts as silent."""


class ProbeTrouble(NamedTuple):
    """Why a probe saw no sign of life."""

    why: str
    silent: bool = False
    """Whether a connection was made, without an answer."""


Probe = Callable[[str], Awaitable[ProbeTrouble | None]]
"""Probes a replica: None for a sign of life, else what was wrong; raises `Failure` if its state is unknown."""


class HealthWatch:
    """Watches the replicas of one model."""

    def __init__(self, replicas: ReplicaSet, probe: Probe, patience: float, clock: Callable[[], float]) -> None:
        self._set = replicas
        self._probe = probe
        self._patience = patience
        self._clock = clock
        self._suspicions = {replica.url: asyncio.Event() for replica in replicas.replicas}
        self._giving_up: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to watch, if not done yet; needs a running loop."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._watch(replica)) for replica in self._set.replicas]
            for task in self._tasks:
                task.add_done_callback(self._ended)

    def suspect(self, replica: Replica) -> None:
        """Probe soon, since a request failed there."""
        self._suspicions[replica.url].set()

    def mark_unreachable(self, replica: Replica) -> None:
        """Send nothing to a replica until a probe succeeds, since no connection can be made."""
        replica.healthy = False
        self.suspect(replica)

    async def close(self) -> None:
        """Stop watching."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._giving_up is not None:
            self._giving_up.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Give the model up if a watch failed, so that no request waits for an unwatched replica."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._set.give_up(f"the health check broke: {error!r}")

    async def _watch(self, replica: Replica) -> None:
        suspicion = self._suspicions[replica.url]
        misses = 0
        while True:
            if not misses:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PROBE_EVERY):
                        await suspicion.wait()
                heard = replica.alive_at
            if not (misses or suspicion.is_set() or self._needs_probe(replica)):
                continue
            suspicion.clear()
            try:
                trouble = await self._probe(replica.url)
            except Failure:  # its state is unknown now
                suspicion.set()
                await asyncio.sleep(PROBE_AGAIN)
                continue
            replica.reached |= trouble is None or trouble.silent
            if trouble is None:
                replica.mark_alive(self._clock())
            if trouble is None or replica.alive_at > heard:
                misses = 0
                self._well(replica)
            else:
                misses += 1
                if misses >= MISSES:
                    self._lost(replica, trouble, misses)
            heard = replica.alive_at
            await asyncio.sleep(min(PROBE_SLOWEST, PROBE_AGAIN * max(1, misses - MISSES)))

    def _needs_probe(self, replica: Replica) -> bool:
        """Whether requests are in flight without an answer for a while."""
        return replica.in_flight > 0 and self._clock() - replica.answered_at >= PROBE_EVERY

    def mark_refusing(self, replica: Replica, why: str) -> None:
        """Stop using a replica that refuses everything, but let its requests in flight go on."""
        replica.refusing = True
        self._miss(replica, why)

    def mark_accepting(self, replica: Replica) -> None:
        """Use a replica again that does not refuse everything."""
        replica.refusing = False
        self._well(replica)

    def _well(self, replica: Replica) -> None:
        if not replica.refusing:
            replica.trouble = ""
        if self._giving_up is not None and not self._none_left:
            self._giving_up.cancel()
            self._giving_up = None
        replica.healthy = True
        self._set.hand_out()

    def _lost(self, replica: Replica, trouble: ProbeTrouble, misses: int) -> None:
        replica.healthy = False
        if not trouble.silent or self._set.has_alternative(replica):
            replica.interrupt(misses)
        self._miss(replica, trouble.why)

    def _miss(self, replica: Replica, trouble: str) -> None:
        """Count a missed probe; set the replica aside, and give the model up if none is left for too long."""
        replica.trouble = trouble
        if all(other.refusing for other in self._set.replicas):
            return  # each new request gets the refusal, and detects its end
        if self._none_left and self._giving_up is None:
            known = any(other.reached or other.answered_at > -inf for other in self._set.replicas)
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(self._patience if known else 0.0, self._give_up)

    @property
    def _none_left(self) -> bool:
        return all(replica.trouble for replica in self._set.replicas)

    def _give_up(self) -> None:
        first, *others = sorted(self._set.replicas, key=lambda replica: replica.url)
        if others:
            causes = "; ".join(f"{one.url}: {one.trouble}" for one in (first, *others))
            self._set.give_up(f"all of its servers are lost: {causes}")
        else:
            self._set.give_up(f"its server at {first.url} is lost: {first.trouble}")
        for replica in self._set.replicas:
            replica.interrupt()
