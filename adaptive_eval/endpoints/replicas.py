"""The replicas of one model: which of them gets the next request, and how many each may have in flight.

A request goes to the replica with the fewest in flight, and of these to the one that was sent the fewest, among those
that are usable: healthy, not told to wait by a Retry-After, and below their window. The window starts at its ceiling,
and is halved when a request is refused (429), or when failures come together: one connection in fifty breaks on a good
day, and says nothing of the load. After a refusal it grows step by step with the answers, after failures by one with
each, since what failed was not its size. It does not look at latency, since a model server slows as it fills. A replica
of which nothing but failures has come for a while is asked by one request at a time, with pauses of at most
`LONGEST_PAUSE`, so that it is soon known to be back. The ceiling is the configured concurrency, or less where the
server's own load says so (`load`). Who finds no usable replica waits in line.

One small task per replica notices that it is dead, long before the time limit of its answers. It asks nothing while
answers keep coming; otherwise it probes the replica every few seconds, and at once when a request has failed there.
After `MISSES` probes in a row without a sign of life (an answer that comes meanwhile is one) the replica is set aside:
it is sent nothing, and probed on until it is back. Its requests in flight are ended, to be sent elsewhere. Only where
it takes connections, and is silent, and no other replica could have them, they stay: the same server would be asked for
the same once more, and one that is merely slow would never get anything done. Each time that a request was ended so,
the next replica may miss twice as many probes before it is ended again. When every replica is set aside for longer than
the model's patience, the model is given up. A model that has never answered gets no patience where nobody is there to
be reached; a server that takes connections, and is silent, may only be busy.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import NamedTuple

from adaptive_eval.endpoints.failures import Failure, Refusal
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.types import ReplicaStats
from adaptive_eval.errors import EndpointError, Unavailable

RECENT = 32
TOGETHER = 8
"""Failures among the `RECENT` last requests of a replica that come together."""
ONLY_FAILURES = 8
"""From so many failures in a row on a replica is asked with pauses."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
STEPS = 16
"""A window regains its ceiling in about this many times the answers that fit into it."""


class RequestWindow:
    """How many requests may be in flight."""

    def __init__(self, configured: int) -> None:
        self.configured = configured
        self.ceiling = configured
        self.size = configured
        self.failures_in_a_row = 0
        self._answers = 0
        self._halved_at = -inf
        self._recent: deque[bool] = deque(maxlen=RECENT)
        """Of the last requests those that failed."""
        self._before_failures = 0
        """What the window was before failures came together."""

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
            self._before_failures = 0

    def failed(self, sent_at: float, now: float) -> None:
        """Halve where failures come together."""
        self.failures_in_a_row += 1
        self._recent.append(True)
        if sum(self._recent) >= TOGETHER:
            before = max(self.size, self._before_failures)
            self.refused(sent_at, now)
            self._before_failures = before

    @property
    def pause(self) -> float:
        """Seconds to wait before the next request, where nothing but failures comes."""
        beyond = self.failures_in_a_row - ONLY_FAILURES
        return 0.0 if beyond < 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(beyond, 8))

    def answered(self) -> None:
        """Grow by one where failures had made it smaller, else by one step for every windowful of answers."""
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
        """The most in flight since the load of the server was last read."""
        self.healthy = True
        self.wait_until = -inf
        self.apart = 0.0
        """Seconds from one request to the next, while it is in doubt whether it accepts any."""
        self.refusing = False
        """Whether the replica is believed to refuse everything."""
        self.trouble = ""
        """What is wrong with it, where it is dead or refuses everything."""
        self.answered_at = -inf
        self.alive_at = -inf
        """When it last gave a sign of life."""
        self.awake_since = -inf
        """When the first one came after a silence of `SILENCE`."""
        self.idle_since, self.idle_until = inf, -inf
        """The first and the last of its readings in a row that say that it has nothing to do (`load`)."""
        self.missing: list[tuple[float, float]] = []
        """Of each request that it does not count: between which times it was sent (`load`)."""
        self.reached = False
        """There is a server: it has answered a probe, or taken the connection of one."""
        self.leases: dict[EndableBlock, int] = {}
        """What holds the requests in flight, and how often each of them was ended at a silent replica before."""

    @property
    def fit(self) -> bool:
        """Whether the replica is healthy and does not refuse everything."""
        return self.healthy and not self.refusing

    def is_usable(self, now: float) -> bool:
        return self.healthy and self.in_flight < self.window.size and now >= self.wait_until

    def take_place(self) -> None:
        """Count one more request in flight."""
        self.in_flight += 1
        self.sent += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)

    def spoke(self, at: float) -> None:
        """The replica gave a sign of life at this time."""
        if at - self.alive_at > SILENCE:
            self.awake_since = at
        self.alive_at = max(self.alive_at, at)

    def interrupt(self, misses: float = inf) -> None:
        """End the requests in flight here to which so many probes without a sign of life are enough."""
        for lease, ended in list(self.leases.items()):
            if misses >= MISSES * 2**ended:
                del self.leases[lease]
                lease.end()


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
            self._take_place(replica)
            place.set_result(replica)

    def _take_place(self, replica: Replica) -> None:
        replica.take_place()
        if replica.apart:
            self.pause(replica, replica.apart)

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
        self._tell_all(lambda: Unavailable(reason))

    def refuse(self, refusal: Refusal) -> None:
        """Every replica refuses everything: everyone who waits is told; who comes may find out anew."""
        self._tell_all(refusal.again)

    def _tell_all(self, error: Callable[[], EndpointError]) -> None:
        while self._waiting:
            place, _ = self._waiting.popleft()
            if not place.done():
                place.set_exception(error())

    def elsewhere(self, replica: Replica) -> bool:
        """Whether another one can take what this one has."""
        return any(other.fit for other in self.replicas if other is not replica)

    @property
    def stats(self) -> tuple[ReplicaStats, ...]:
        return tuple(
            ReplicaStats(one.url, one.fit, one.in_flight, one.window.size, one.trouble) for one in self.replicas
        )

    def _choose(self, avoid: Replica | None) -> Replica | None:
        now = self._clock()
        usable = [replica for replica in self.replicas if replica.is_usable(now)]
        if len(usable) > 1 and avoid is not None:
            usable = [replica for replica in usable if replica is not avoid]
        return min(usable, key=lambda replica: (replica.in_flight, replica.sent), default=None)


PROBE_EVERY = 5.0
PROBE_AGAIN = 1.0
"""Seconds to the next probe after one without a sign of life, and least distance of two probes."""
PROBE_SLOWEST = 2.0
"""Soon enough to ask within seconds after a storm, and little to ask of a server that is down for hours."""
MISSES = 3
SILENCE = 3 * PROBE_EVERY
"""A server that has something to do, and gives no sign of life for longer, has been silent."""


class ProbeTrouble(NamedTuple):
    """Why a probe was no sign of life."""

    why: str
    silent: bool = False
    """The connection was made, and no answer came."""


Probe = Callable[[str], Awaitable[ProbeTrouble | None]]
"""Asks a replica for a sign of life: None, or what was wrong; raises `Failure` where that cannot be found out."""


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
        """A request failed there: probe soon."""
        self._suspicions[replica.url].set()

    def unreachable(self, replica: Replica) -> None:
        """No connection can be made: send nothing more there until a probe comes through."""
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
        """Give the model up if its watch has failed: nobody may wait for a replica that nobody watches."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._set.give_up(f"the health check broke: {error!r}")

    async def _watch(self, replica: Replica) -> None:
        suspicion = self._suspicions[replica.url]
        misses = 0
        while True:
            if not misses:
                await _wait_for_event(suspicion, PROBE_EVERY)
                heard = replica.alive_at
            if not (misses or suspicion.is_set() or self._needs_probe(replica)):
                continue
            suspicion.clear()
            try:
                trouble = await self._probe(replica.url)
            except Failure:  # nothing is known of it now
                await asyncio.sleep(PROBE_AGAIN)
                continue
            replica.reached |= trouble is None or trouble.silent
            if trouble is None:
                replica.spoke(self._clock())
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
        """Whether requests are in flight and no answer has come for a while."""
        return replica.in_flight > 0 and self._clock() - replica.answered_at >= PROBE_EVERY

    def refuses(self, replica: Replica, why: str) -> None:
        """A replica refuses everything: it is of as little use as a dead one, but what it has in flight goes on."""
        replica.refusing = True
        self._miss(replica, why)

    def accepts(self, replica: Replica) -> None:
        """A replica does not refuse everything."""
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
        if not trouble.silent or self._set.elsewhere(replica):
            replica.interrupt(misses)
        self._miss(replica, trouble.why)

    def _miss(self, replica: Replica, trouble: str) -> None:
        """Go on without this one; give the model up where none is left for too long."""
        replica.trouble = trouble
        if all(other.refusing for other in self._set.replicas):
            return  # whoever asks is told, and finds out when that is over
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


async def _wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
