"""Servers that have nothing to do before answers of other models are there: they are stopped meanwhile.

A server is paid for by the hour, busy or not. It waits for as long as its last start took, and is stopped then: so
waiting and starting never cost more than twice of the better of the two. Where a batch is waited for that is expected
later than the server would be there again, it is stopped at once. It is started again when its model is asked again.
"""

import time
from collections.abc import Callable, Sequence

from adaptive_eval.scheduler.batched_lanes import BatchedLanes
from adaptive_eval.scheduler.types import Decider
from adaptive_eval.store import Event, ServerLaunched

LEAST_SECONDS = 30.0
"""Answers that are asked directly are waited for this long, however soon the server would be there again."""


class IdleServers:
    """Since when each model waits for nothing but answers of others, and how long its server took to start."""

    def __init__(
        self,
        names: Sequence[str],
        controller: Decider,
        batches: BatchedLanes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names, self._controller, self._batches, self._clock = names, controller, batches, clock
        self._start = dict.fromkeys(names, 0.0)
        """Seconds that the last start of each took."""
        self._since: dict[str, float] = {}

    def hear(self, event: Event) -> None:
        """A server is up."""
        if isinstance(event, ServerLaunched):
            self._start[event.model] = event.seconds
            self._since.pop(event.model, None)

    @property
    def awaited(self) -> tuple[str, ...]:
        """The models whose batches have to come back before anything further is decided."""
        return tuple(self._names[model] for model in self._pending())

    def long_enough(self, model: int, *, idle: bool) -> bool:
        """Whether a model that is `idle` now waits for others longer than its server takes to start."""
        name, now = self._names[model], self._clock()
        if not idle or not self._controller.awaited():
            self._since.pop(name, None)
            return False
        waited, pending = now - self._since.setdefault(name, now), self._pending()
        if not pending:
            return waited >= max(self._start[name], LEAST_SECONDS)
        expected = (self._batches.back_in(one) for one in pending)
        return waited >= self._start[name] or any(more is not None and more > self._start[name] for more in expected)

    def _pending(self) -> list[int]:
        return [model for model in self._controller.awaited() if self._batches.is_pending(model)]
