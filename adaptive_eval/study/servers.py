"""Simulated servers in simulated time: slots, first come first served, and models that take turns on the same slots.

Nothing waits in real time. A trial takes as long as on a server with all slots in use, also with fewer.

If models share places, a place serves one model until everything issued for it has ended. Then, after a swap, it serves
the next model in a circle that has trials waiting and is served nowhere; or else, as a further replica, one with more
trials waiting than its servers take at a time. These are the turns of a run (`supplies.pool`).
"""

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray


class TrialLoad:
    """Trials of one model, in the order of issue; their ends are infinite until they are served."""

    __slots__ = ("_in_order", "begins", "end", "ends", "model", "parked", "seconds")

    def __init__(self, model: int, seconds: FloatArray) -> None:
        self.model = model
        self.seconds = seconds
        self.begins = np.full(len(seconds), math.inf)
        self.ends = self.begins.copy()
        self.end = math.inf
        """When the last of them ends, if nothing more is issued."""
        self.parked = False
        """Whether trials that have not begun are held back."""
        self._in_order: tuple[list[float], list[int]] | None = None

    def set_times(self, begins: FloatArray, ends: FloatArray, end: float) -> None:
        """Set when the trials begin and end, as far as is known."""
        self.begins, self.ends, self.end, self._in_order = begins, ends, end, None

    @property
    def in_order(self) -> tuple[list[float], list[int]]:
        """The ends in rising order, and the number of each one's trial."""
        if self._in_order is None:
            order = np.argsort(self.ends, kind="stable")
            self._in_order = self.ends[order].tolist(), order.tolist()
        return self._in_order


class Swap(NamedTuple):
    """A model's swap onto a host: when it began, and how many seconds nothing was served."""

    model: int
    at: float
    seconds: float
    place: tuple[int, int] = (0, 0)
    """The first model of the host, and the number of the place there."""


class Engine:
    """The servers of one model: their slots, free to whoever comes first."""

    def __init__(self, slots: int, now: float = 0.0) -> None:
        self.over = now
        """When everything that has begun will have ended."""
        self._slots = slots
        self._free = [now] * slots
        """When each slot is free, sorted."""
        self._loads: list[TrialLoad] = []
        """Loads that have not ended."""

    def serve(self, load: TrialLoad, now: float) -> None:
        """Place each trial in the slot that is free first."""
        self._loads = [queued for queued in self._loads if queued.end > now or queued is load]
        self._loads += [load] * (load not in self._loads)
        not_begun = np.isposinf(load.begins)  # others began earlier, in another turn
        load.begins[not_begun], load.ends[not_begun] = place_trials(self._free, load.seconds[not_begun], now)
        self._note_times(load, now)

    def waiting(self, now: float) -> int:
        """Number of trials that have not begun by then."""
        waiting = (load for load in self._loads if load.end > now and not load.parked)
        return sum(int(np.count_nonzero(load.begins > now)) for load in waiting)

    def widen(self, slots: int, now: float) -> None:
        """Add slots: trials that have not begun are placed again, in their order."""
        self._slots += slots
        for load in self.withdraw(now):
            if not load.parked:
                self.serve(load, now)

    def withdraw(self, now: float) -> list[TrialLoad]:
        """Take back trials that have not begun; returns their loads."""
        self._loads = [queued for queued in self._loads if queued.end > now]
        running = [load.ends[(load.begins <= now) & (load.ends > now)] for load in self._loads]
        busy = np.sort(np.concatenate([np.zeros(0), *running])).tolist()
        self._free = [now] * (self._slots - len(busy)) + busy
        withdrawn = [load for load in self._loads if (load.begins > now).any()]
        self.over = now
        for load in self._loads:
            load.ends[load.begins > now] = load.begins[load.begins > now] = math.inf
            self._note_times(load, now)
        return withdrawn

    def narrow(self, slots: int) -> None:
        """Remove the slots that are free first, once everything has begun."""
        self._slots -= slots
        del self._free[:slots]

    def _note_times(self, load: TrialLoad, now: float) -> None:
        load.set_times(load.begins, load.ends, float(load.ends.max(initial=now)))
        begun = np.isfinite(load.begins)
        self.over = max(self.over, float(load.ends[begun].max(initial=0.0)))


def place_trials(free: list[float], seconds: FloatArray, now: float) -> tuple[FloatArray, FloatArray]:
    """When trials begin and end in slots that become `free` at these times, sorted, which are updated."""
    idle = min(bisect_right(free, now), len(seconds))
    begins = [now] * idle
    free[:idle] = (now + seconds[:idle]).tolist()
    free.sort()
    for took in seconds[idle:].tolist():
        begins.append(free[0])
        heapq.heapreplace(free, free[0] + took)
    free.sort()
    begun = np.array(begins)
    return begun, begun + seconds


@dataclass(slots=True)
class _SimulatedPlace:
    """A place that serves one model at a time."""

    model: int | None = None
    ready: float = 0.0
    """When its latest swap is over."""
    served_before: frozenset[int] = frozenset()
    """The models that were served there before."""
    joins: bool = False
    """Whether it is becoming a further replica of its model."""


class SimulatedHost:
    """Places that serve one of several models at a time, or a single model."""

    def __init__(
        self,
        models: Sequence[int],
        slots: int,
        swap_seconds: float = 0.0,
        *,
        places: int = 1,
        engine: Callable[[int, float], Engine] = Engine,
        wake_seconds: float | None = None,
    ) -> None:
        """`wake_seconds` replaces the swap of a model that sleeps where it was served before. A single model is there
        after `swap_seconds`."""
        self.models = tuple(models)
        self.swaps: list[Swap] = []
        self.loads: list[TrialLoad] = []
        """Everything that was issued."""
        self._slots, self._engine = slots, engine
        self._swap_seconds = swap_seconds
        self._wake_seconds = swap_seconds if wake_seconds is None else wake_seconds
        self._places = [_SimulatedPlace() for _ in range(places)]
        self._engines: dict[int, Engine] = {}
        """Engines of the models being served."""
        if len(self.models) == 1:
            self._places[0].model = self.models[0]
            self._engines[self.models[0]] = engine(slots, swap_seconds)
        self._issued = 0.0
        self._waiting: dict[int, deque[TrialLoad]] = {}
        """Loads to be served in each model's next turn."""
        self._paused: set[int] = set()
        """Paused models, of which nothing begins."""

    def issue(self, load: TrialLoad, now: float) -> None:
        """Serve a model's trials in its current turn, or queue them for the next."""
        self.loads.append(load)
        if load.model in self._paused:
            load.parked = True
        else:
            self._serve(load, now)

    def _serve(self, load: TrialLoad, now: float) -> None:
        self._issued = now
        if (engine := self._engines.get(load.model)) is not None:
            engine.serve(load, now)
        else:
            self._waiting.setdefault(load.model, deque()).append(load)

    def pause(self, model: int, now: float, *, paused: bool) -> None:
        """Pause or resume the trials of a model that have not begun."""
        if paused == (model in self._paused):
            return
        loads = [load for load in self.loads if load.model == model and load.parked != paused and load.end > now]
        for load in loads:
            load.parked = paused
        if not paused:
            self._paused.remove(model)
            for load in loads:
                self._serve(load, now)
            return
        self._paused.add(model)
        self._waiting.pop(model, None)
        if (engine := self._engines.get(model)) is not None:
            engine.withdraw(now)

    def due(self) -> float:
        """When the next swap begins, or a further replica is ready; infinite if nothing waits."""
        if len(self._places) == 1 and not self._waiting:
            return math.inf
        return min(at for at, _ in map(self._next, self._places))

    def swap(self) -> None:
        """Begin the due swap and serve what waits for it, or add the ready replica."""
        place = min(self._places, key=lambda place: self._next(place)[0])
        at, model = self._next(place)
        if place.joins:
            place.joins = False
            if model in self._engines:
                self._engines[model].widen(self._slots, at)
            else:  # the model has left its other place meanwhile
                self._begin(model, at)
            return
        self._leave(place, at)
        seconds = self._wake_seconds if model in place.served_before else self._swap_seconds
        place.model, place.ready, place.served_before = model, at + seconds, place.served_before | {model}
        self.swaps.append(Swap(model, at, seconds, (self.models[0], self._places.index(place))))
        if model in self._engines:
            place.joins = True
            return
        self._begin(model, place.ready)

    def _begin(self, model: int, now: float) -> None:
        """Start serving a model and its waiting loads."""
        engine = self._engines[model] = self._engine(self._slots, now)
        for load in self._waiting.pop(model, ()):
            engine.serve(load, now)

    def _leave(self, place: _SimulatedPlace, now: float) -> None:
        """Stop serving the model at this place."""
        if place.model is None:
            return
        if any(other is not place and other.model == place.model and not other.joins for other in self._places):
            self._engines[place.model].narrow(self._slots)
        else:
            del self._engines[place.model]

    def _next(self, place: _SimulatedPlace) -> tuple[float, int]:
        """When something is due at a place, and for which model; infinite if nothing is."""
        if place.joins:
            assert place.model is not None
            return place.ready, place.model
        idle, after = 0.0, -1
        if place.model is not None:
            idle, after = self._engines[place.model].over, self.models.index(place.model)
        at = max(idle, place.ready, self._issued)
        circle = (*self.models[after + 1 :], *self.models[: after + 1])
        for model in circle:
            if model in self._waiting:
                return at, model
        crowded = (model for model in circle if model != place.model and self._is_crowded(model, at))
        return next(((at, model) for model in crowded), (math.inf, -1))

    def _is_crowded(self, model: int, now: float) -> bool:
        """Whether more trials wait than a further server takes at a time, beside those being loaded."""
        engine = self._engines.get(model)
        if engine is None:
            return False
        joining = sum(place.model == model and place.ready > now for place in self._places)
        return engine.waiting(now) >= (joining + 1) * self._slots
