"""Clocks of a run: the time it was active, and the time it has held its servers."""

import time
from collections.abc import Sequence

from adaptive_eval.scheduler.ledger import at_least_elapsed
from adaptive_eval.scheduler.server_times import ServerTimes
from adaptive_eval.scheduler.state import SpentByModel
from adaptive_eval.store import Event, HeldTime, RunReader
from adaptive_eval.store.spending import HeldServers
from adaptive_eval.supply.idle_servers import IdleServers
from adaptive_eval.supply.types import Lane, Supply


class RunMeter:
    """The clocks of a run, over all its starts."""

    def __init__(self, lanes: Sequence[Lane], supply: Supply, reader: RunReader, removed_gpu_seconds: float) -> None:
        """`removed_gpu_seconds`: of models that were taken out of the run."""
        self._lanes, self.launched = lanes, frozenset(supply.launched)
        self._removed_gpu_seconds = removed_gpu_seconds
        self._elapsed_before = at_least_elapsed(reader)
        self._started: float | None = None
        self.times = ServerTimes(lanes, self.launched, reader.held_times(), supply.batched)
        self.idle = IdleServers([lane.name for lane in lanes], supply)

    def start(self) -> None:
        """Start the clock unless it runs; called when something is asked or graded."""
        self._started = self._started or time.monotonic()

    def stop(self) -> None:
        """Stop the clock: nothing more is asked."""
        self._elapsed_before, self._started = self.elapsed(), None

    def hear(self, event: Event) -> None:
        """Note the start or end of a server."""
        self.times.hear(event)
        self.idle.hear(event)

    def elapsed(self) -> float:
        """Seconds the run has been active."""
        since = 0.0 if self._started is None else time.monotonic() - self._started
        return self._elapsed_before + since

    def held_times(self) -> Sequence[HeldTime | None]:
        """How long each model has held its servers; None if it held none."""
        held = self.times.held_times()
        return [held.get(lane.name) for lane in self._lanes]

    def servers(self) -> HeldServers:
        """How long each model has held its servers, and whose servers the run starts."""
        return HeldServers(self.held_times(), self.launched)

    def gpu_seconds(self, spent: SpentByModel, in_flight: Sequence[int]) -> float:
        """GPU seconds under a cap.

        Servers that the run starts count for as long as they were held. Others count for the time of their requests;
        requests in flight, and lost ones, count at their worst.
        """
        owed = (
            count * lane.samples_per_request * lane.price.worst.gpu_seconds
            for lane, count in zip(self._lanes, in_flight, strict=True)
        )
        each = zip(spent.usages, owed, spent.lost_gpu_seconds, strict=True)
        requests = [usage.gpu_seconds + flying + lost for usage, flying, lost in each]
        return self._removed_gpu_seconds + self.servers().gpu_seconds(requests)
