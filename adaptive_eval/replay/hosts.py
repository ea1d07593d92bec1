"""Simulated servers in simulated time: slots, first come first served, and models that take turns on the same slots.

Nothing waits for real. A trial begins as soon as its model is served and a slot is free, so its end is known then.
Where several models share a host, one is served until everything that was issued for it has ended; then comes the next
one, after a swap, in a circle. So a round is served model by model, and the next one begins with the model that is
there.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from adaptive_eval.core.types import Outcome


class Trial:
    """One trial that was issued; it ends at infinity until it is served."""

    __slots__ = ("end", "outcome", "round", "seconds")

    def __init__(self, outcome: Outcome, round_: int, seconds: float) -> None:
        self.outcome = outcome
        self.round = round_
        self.seconds = seconds
        self.end = math.inf


class Swap(NamedTuple):
    """A model that was brought onto a host: since when, and for how long nothing was served."""

    model: int
    at: float
    seconds: float


class Host:
    """Slots that serve one of their models at a time; a lone model is there from the start."""

    def __init__(self, models: Sequence[int], slots: int, swap_seconds: float = 0.0) -> None:
        self.models = tuple(models)
        self.swaps: list[Swap] = []
        self.spans: dict[int, tuple[list[float], list[float]]] = {model: ([], []) for model in self.models}
        """When the trials of each model began and ended."""
        self._swap_seconds = swap_seconds
        self._loaded = self.models[0] if len(self.models) == 1 else None
        self._slots = slots
        self._free = [0.0] * slots
        self._over = 0.0
        """When everything that has begun will have ended."""
        self._issued = 0.0
        self._waiting: dict[int, deque[Trial]] = {}
        """What is served at the next turn of each model."""

    def issue(self, trial: Trial, now: float) -> bool:
        """Take a trial; whether it is served in its turn of now, or waits for one."""
        self._issued = now
        model = trial.outcome.model
        if model == self._loaded:
            self._serve(trial, now)
            return True
        self._waiting.setdefault(model, deque()).append(trial)
        return False

    def due(self) -> float:
        """When the next swap begins; infinity where nothing waits."""
        return max(self._over, self._issued) if self._waiting else math.inf

    def swap(self) -> Sequence[Trial]:
        """Begin the swap that is due; gives the trials that are served after it."""
        at = self.due()
        served = self._waiting.pop(self._next())
        self._loaded = served[0].outcome.model
        self.swaps.append(Swap(self._loaded, at, self._swap_seconds))
        begin = at + self._swap_seconds
        self._free = [begin] * self._slots
        for trial in served:
            self._serve(trial, begin)
        return served

    def _next(self) -> int:
        """The first model in the circle for which something waits."""
        after = -1 if self._loaded is None else self.models.index(self._loaded)
        circle = (*self.models[after + 1 :], *self.models[: after + 1])
        return next(model for model in circle if model in self._waiting)

    def _serve(self, trial: Trial, now: float) -> None:
        start = max(now, self._free[0])
        trial.end = start + trial.seconds
        heapq.heapreplace(self._free, trial.end)
        self._over = max(self._over, trial.end)
        starts, ends = self.spans[trial.outcome.model]
        starts.append(start)
        ends.append(trial.end)
