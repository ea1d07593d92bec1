"""Who notices that a replica is dead, long before the time limit of the answers that it owes.

One small task per replica. It asks nothing while answers keep coming; otherwise it probes the replica every few
seconds, and at once when a request has failed there. After `MISSES` probes in a row without a sign of life the
replica is set aside: its requests in flight are ended, to be sent elsewhere, and it is probed on until it is back.
When every replica is set aside for longer than the model's patience, the model is given up; a model that has never
answered at all gets no patience, unless its servers were known to be ready.
"""

import asyncio
from collections.abc import Awaitable, Callable

from adaptive_eval.endpoints.replicas import Replica, ReplicaSet

PROBE_EVERY = 5.0
PROBE_AGAIN = 1.0
"""Seconds to the next probe after one without a sign of life, and least distance of two probes."""
PROBE_SLOWEST = 15.0
MISSES = 3

Probe = Callable[[str], Awaitable[str | None]]
"""Asks a replica for a sign of life: None, or what was wrong."""


class HealthWatch:
    """Watches the replicas of one model."""

    def __init__(self, replicas: ReplicaSet, probe: Probe, patience: float, clock: Callable[[], float]) -> None:
        self._set = replicas
        self._probe = probe
        self._patience = patience
        self._clock = clock
        self._suspicions = {replica.url: asyncio.Event() for replica in replicas.replicas}
        self._dead: dict[str, str] = {}
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
        """Nobody may wait for a replica that nobody watches."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._set.give_up(f"the health check broke: {error!r}")

    async def _watch(self, replica: Replica) -> None:
        suspicion = self._suspicions[replica.url]
        misses = 0
        while True:
            if not misses:
                await _either(suspicion, PROBE_EVERY)
            if not (misses or suspicion.is_set() or self._worth_a_probe(replica)):
                continue
            suspicion.clear()
            trouble = await self._probe(replica.url)
            if trouble is None:
                misses = 0
                self._well(replica)
            else:
                misses += 1
                if misses >= MISSES:
                    self._lost(replica, trouble)
            await asyncio.sleep(min(PROBE_SLOWEST, PROBE_AGAIN * max(1, misses - MISSES)))

    def _worth_a_probe(self, replica: Replica) -> bool:
        """Something is owed and nothing has come for a while."""
        return replica.in_flight > 0 and self._clock() - replica.answered_at >= PROBE_EVERY

    def _well(self, replica: Replica) -> None:
        self._dead.pop(replica.url, None)
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        replica.healthy = True
        self._set.hand_out()

    def _lost(self, replica: Replica, trouble: str) -> None:
        replica.healthy = False
        self._dead[replica.url] = trouble
        replica.interrupt()
        if len(self._dead) == len(self._set.replicas) and self._giving_up is None:
            known = any(other.answered_at > -float("inf") for other in self._set.replicas)
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(self._patience if known else 0.0, self._give_up)

    def _give_up(self) -> None:
        causes = "; ".join(f"{url}: {trouble}" for url, trouble in sorted(self._dead.items()))
        self._set.give_up(f"no replica is left ({causes})")


async def _either(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
