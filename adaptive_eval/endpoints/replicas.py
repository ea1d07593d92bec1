"""The replicas of one model: choosing one for each attempt, probing them, and giving up the model.

An attempt goes to the replica with the fewest requests in flight; ties go to the replica that was sent the fewest. If
no replica can take it, it waits in a queue. When a replica is suspended, its attempts are ended and sent to another. If
it accepts connections but is silent, and no other replica can take them, they stay: the same server would get the same
requests again, and a slow one would never finish. Each time a request is ended in this way, its next replica may miss
twice as many probes.

When every replica has been suspended for longer than `retry_for`, the model is given up. A model that has never
answered is given up at once if no server can be reached; a server that accepts connections but is silent may be busy.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any

from adaptive_eval.base.errors import EndpointError, Unavailable
from adaptive_eval.endpoints.context import EndpointContext
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.load import parse_load
from adaptive_eval.endpoints.replica import Replica
from adaptive_eval.endpoints.traffic import Attempt
from adaptive_eval.endpoints.types import ReplicaStats

Tasks = dict[Replica, asyncio.Task[None]]


class ReplicaSet:
    """All replicas of one model, the attempts in flight there, and the queue of waiting attempts."""

    def __init__(self, context: EndpointContext) -> None:
        limits, settings = context.limits, context.settings
        self.replicas = tuple(
            Replica(url, limits.in_flight, settings, limits.samples_per_request) for url in context.config.replicas
        )
        self._caller, self._shared_time, self._clock = context.caller, context.shared_time, context.clock
        self._patience, self._probe_misses = limits.retry_for, settings.probe_misses
        self.attempts: dict[Attempt, None] = {}
        """Attempts in flight, in the order of sending."""
        self._waiting: deque[tuple[asyncio.Future[Replica], Replica | None]] = deque()
        self._given_up_reason: str | None = None
        self._lost_since: float | None = None
        """When the last replica was suspended."""
        self._probes: Tasks = {}
        self._readings: Tasks = {}

    # -- places --------------------------------------------------------------------------------------------------

    async def acquire(self, avoid: Replica | None = None) -> Replica:
        """Wait for a place at a replica, if possible not `avoid`; the caller must `release` it."""
        if self._given_up_reason is not None:
            raise Unavailable(self._given_up_reason)
        if not self._waiting and (replica := self._choose(avoid)) is not None:
            replica.send(self._clock())
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
        replica.take_back()
        self.assign_places()

    def assign_places(self) -> None:
        """Assign free places to waiting attempts; called at each tick, and when a replica may have become usable."""
        while self._waiting:
            place, avoid = self._waiting[0]
            if not place.done():
                replica = self._choose(avoid)
                if replica is None:
                    return
                replica.send(self._clock())
                place.set_result(replica)
            self._waiting.popleft()

    def _choose(self, avoid: Replica | None) -> Replica | None:
        now = self._clock()
        usable = [replica for replica in self.replicas if replica.can_take(now)]
        if len(usable) > 1 and avoid is not None:
            usable = [replica for replica in usable if replica is not avoid]
        return min(usable, key=lambda replica: (replica.in_flight, replica.sent), default=None)

    @property
    def has_room(self) -> bool:
        """Whether a place is free and no attempt waits."""
        return not self._waiting and self._choose(None) is not None

    @property
    def stats(self) -> tuple[ReplicaStats, ...]:
        return tuple(replica.stats for replica in self.replicas)

    @property
    def all_refuse(self) -> bool:
        """Whether every replica is assumed to refuse everything."""
        return all(replica.refuses for replica in self.replicas)

    def has_alternative(self, replica: Replica) -> bool:
        """Whether another replica can take this one's requests."""
        return any(other.is_usable for other in self.replicas if other is not replica)

    # -- health --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Probe replicas and read their load if due; give up the model if no replica is available for too long."""
        for replica in self.replicas:
            if replica not in self._probes and replica.needs_probe(now):
                self._start(self._probes, replica, self._probe_once(replica))
            if replica not in self._readings and replica.needs_reading(now):
                self._start(self._readings, replica, self._read_once(replica))
        self.assign_places()
        if self.all_refuse or not all(replica.trouble for replica in self.replicas):
            self._lost_since = None  # if all refuse, each new request gets the refusal, or detects its end
            return
        self._lost_since = now if self._lost_since is None else self._lost_since
        is_known = any(replica.reached or replica.answered_at > -inf for replica in self.replicas)
        if self._given_up_reason is None and now - self._lost_since >= (self._patience if is_known else 0.0):
            details = "; ".join(f"{replica.url}: {replica.trouble}" for replica in self.replicas)
            is_only = len(self.replicas) == 1
            self.give_up(
                f"its server at {self.replicas[0].url} is lost: {self.replicas[0].trouble}"
                if is_only
                else f"all of its servers are lost: {details}"
            )

    def _start(self, tasks: Tasks, replica: Replica, check: Coroutine[Any, Any, None]) -> None:
        """Start a check of a replica; if the check crashes, the model is given up, so that no request waits forever."""

        def on_done(task: asyncio.Task[None]) -> None:
            del tasks[replica]
            if not task.cancelled() and (error := task.exception()) is not None:
                self.give_up(f"its health check broke: {error!r}")

        tasks[replica] = asyncio.create_task(check)
        tasks[replica].add_done_callback(on_done)

    async def _probe_once(self, replica: Replica) -> None:
        replica.start_probe()
        trouble = await self._caller.probe(replica.url)
        misses = replica.on_probe(trouble, self._clock())
        if misses and trouble is not None and (not trouble.is_silent or self.has_alternative(replica)):
            self._interrupt(replica, misses)
        self.assign_places()

    async def _read_once(self, replica: Replica) -> None:
        in_flight = self._shared_time.in_flight(replica.url)
        try:
            load = parse_load(await self._caller.fetch_outside_api(replica.url, "/metrics"))
        except Failure:
            load = None
        replica.on_load(load, min(in_flight, self._shared_time.in_flight(replica.url)), self._clock())
        self.assign_places()

    def _interrupt(self, replica: Replica, misses: float = inf) -> None:
        """End attempts in flight at a replica, if this many missed probes are enough for them."""
        message = f"{replica.url} was found dead while a request was in flight"
        for attempt in self.attempts:
            if attempt.replica is replica and misses >= self._probe_misses * 2**attempt.request.interruptions:
                attempt.end(Failure(FailureKind.REPLICA_LOST, message))

    def give_up(self, reason: str) -> None:
        """Fail all waiting, running and future attempts: the model is gone for good."""
        self._given_up_reason = reason
        self.fail_waiting(lambda: Unavailable(reason))
        for replica in self.replicas:
            self._interrupt(replica)

    def fail_waiting(self, error: Callable[[], EndpointError]) -> None:
        """Fail all waiting attempts, each with an error of its own; future ones may try again."""
        while self._waiting:
            place, _ = self._waiting.popleft()
            if not place.done():
                place.set_exception(error())

    async def close(self) -> None:
        """End all probes and readings."""
        tasks = [*self._probes.values(), *self._readings.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
