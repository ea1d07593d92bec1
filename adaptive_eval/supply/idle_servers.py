"""Servers that have nothing to do before answers of other models are there: they are stopped meanwhile.

A server is paid for by the hour, busy or not. An idle server is kept for as long as its last start took, and is then
stopped: so waiting and starting never cost more than twice the better of the two. If a batch is waited for that is
expected later than the server could be started again, the server is stopped at once. It is started again when its model
is asked again.
"""

import time
from collections.abc import Callable, Sequence

from adaptive_eval.store import Event, ServerLaunched
from adaptive_eval.supply.types import Supply

LEAST_SECONDS = 30.0
"""Answers that are asked directly are waited for this long, however soon the server could be started again."""


class IdleServers:
    """Since when each model has waited for nothing but answers of others, and how long its server took to start."""

    def __init__(self, names: Sequence[str], supply: Supply, clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._supply, self._clock = names, supply, clock
        self._start_seconds = dict.fromkeys(names, 0.0)
        """Seconds that the last start of each server took."""
        self._idle_since: dict[str, float] = {}

    def hear(self, event: Event) -> None:
        """Note how long a server took to start."""
        if isinstance(event, ServerLaunched):
            self._start_seconds[event.model] = event.seconds
            self._idle_since.pop(event.model, None)

    def is_idle_for_long(self, model: int, awaited: Sequence[int]) -> bool:
        """Whether a model has waited for others longer than its server takes to start.

        `awaited` are the models whose answers it waits for; none, if it has something to do itself.
        """
        name, now = self._names[model], self._clock()
        if not awaited:
            self._idle_since.pop(name, None)
            return False
        waited, start = now - self._idle_since.setdefault(name, now), self._start_seconds[name]
        pending = self._pending(awaited)
        if not pending:
            return waited >= max(start, LEAST_SECONDS)
        expected = (self._supply.expected_wait(one) for one in pending)
        return waited >= start or any(seconds is not None and seconds > start for seconds in expected)

    def awaited_batches(self, awaited: Sequence[int]) -> tuple[str, ...]:
        """The names of those among the awaited models that have a batch under way."""
        return tuple(self._names[model] for model in self._pending(awaited))

    def _pending(self, awaited: Sequence[int]) -> list[int]:
        return [model for model in awaited if self._supply.is_pending(model)]
