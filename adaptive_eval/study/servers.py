"""Simulated servers in simulated time: slots, first come first served, and models that take turns on the same slots.

Nothing waits for real. What a trial takes is stated for a server whose slots are all in use. With fewer sequences each
is faster, as decoding is bound by memory: with n of s slots in use by (1 + gain) / (1 + gain n / s). All that
run at a time share one speed, so that a server has a time of its own in which trials last as long as they are stated
(`Engine`); the clock on the wall is the integral of 1 over the speed.

Where models share places, a place serves one of them until everything that was issued for it has ended; then comes the
next model for which something waits, after a swap, in a circle. A model that waits and finds no free place may be
brought up while the last answers of another one still run (`overlap`), where a place has memory for both.
"""

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray


class TrialLoad:
    """Trials of one model, in the order of their asks; they end at infinity until they are served."""

    __slots__ = ("_in_order", "begins", "end", "ends", "model", "seconds")

    def __init__(self, model: int, seconds: FloatArray) -> None:
        self.model = model
        self.seconds = seconds
        self.begins = np.full(len(seconds), math.inf)
        self.ends = self.begins.copy()
        self.end = math.inf
        """When the last of them has ended, if nothing more is issued."""
        self._in_order: tuple[list[float], list[int]] | None = None

    def lies(self, begins: FloatArray, ends: FloatArray, end: float) -> None:
        """Its trials begin and end then, as far as one knows now."""
        self.begins, self.ends, self.end, self._in_order = begins, ends, end, None

    @property
    def in_order(self) -> tuple[list[float], list[int]]:
        """The ends as they come, and which trial each is of."""
        if self._in_order is None:
            order = np.argsort(self.ends, kind="stable")
            self._in_order = self.ends[order].tolist(), order.tolist()
        return self._in_order


class Swap(NamedTuple):
    """A model that was brought onto a host: since when, and for how long nothing was served."""

    model: int
    at: float
    seconds: float


class Engine:
    """One server: its slots, and its own time."""

    def __init__(self, slots: int, gain: float = 0.0) -> None:
        self.gain = gain
        self.over = 0.0
        """When everything that has begun will have ended."""
        self.begun = 0.0
        """When the last of it begins: from then on slots are idle."""
        self._slots = slots
        self._free = [0.0] * slots
        """When each slot is free, in order, in own time."""
        self._since, self._own = 0.0, 0.0
        """A moment, on the wall and in own time, up to which all is settled."""
        self._loads: list[tuple[TrialLoad, FloatArray, FloatArray]] = []
        """What has not ended by then, with its beginnings and ends in own time."""

    def clear(self, now: float) -> None:
        """All slots are free from now on."""
        self._settle(now)
        self._loads = []
        self._free = [self._own] * self._slots

    def serve(self, load: TrialLoad, now: float) -> None:
        """Each trial in the slot that is free first: as many at once as are idle, the rest one after the other."""
        self._settle(now)
        begins, ends = self._placed(load.seconds)
        if self.gain == 0.0:  # what is served already stays where it lies
            load.lies(begins, ends, float(ends.max(initial=now)))
            self.over, self.begun = max(self.over, load.end), max(self.begun, float(begins.max(initial=0.0)))
            return
        self._loads.append((load, begins, ends))
        self._tell()

    def _placed(self, seconds: FloatArray) -> tuple[FloatArray, FloatArray]:
        free, now = self._free, self._own
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

    def _settle(self, now: float) -> None:
        """What lies before now stays as it is."""
        if self.gain == 0.0:
            self._since = self._own = now
        elif now > self._since:
            own, wall = self._course()
            beyond = max(now - float(wall[-1]), 0.0) * (1.0 + self.gain)
            self._own, self._since = float(np.interp(now, wall, own)) + beyond, now
        self._loads = [one for one in self._loads if one[0].end > now]

    def _tell(self) -> None:
        """Tell the loads when their trials begin and end on the wall, as far as that is still open."""
        own, wall = self._course()
        for load, begins, ends in self._loads:
            told = load.begins, load.ends
            for on_wall, mine in zip(told, (begins, ends), strict=True):
                ahead = mine > self._own if np.isfinite(on_wall).all() else np.ones(len(mine), bool)
                on_wall[ahead] = np.interp(mine[ahead], own, wall)
            load.lies(*told, float(load.ends.max(initial=self._since)))
        self.over = max([self.over, *(load.end for load, _, _ in self._loads)])
        self.begun = max([self.begun, *(float(load.begins.max(initial=0.0)) for load, _, _ in self._loads)])

    def _course(self) -> tuple[FloatArray, FloatArray]:
        """Own time and time on the wall at every beginning and end from the settled moment on."""
        begins = np.sort(np.concatenate([np.zeros(0), *(one[1] for one in self._loads)]))
        ends = np.sort(np.concatenate([np.zeros(0), *(one[2] for one in self._loads)]))
        points = np.unique(np.concatenate([[self._own], begins[begins > self._own], ends[ends > self._own]]))
        running = np.searchsorted(begins, points, "right") - np.searchsorted(ends, points, "right")
        speed = (1.0 + self.gain) / (1.0 + self.gain * running / self._slots)
        wall = self._since + np.concatenate([[0.0], np.cumsum(np.diff(points) / speed[:-1])])
        return points, wall


class SimulatedHost:
    """Places that serve one of their models each at a time; a lone model is there from the start."""

    def __init__(
        self,
        models: Sequence[int],
        slots: int,
        swap_seconds: float = 0.0,
        *,
        places: int = 1,
        gain: float = 0.0,
        overlap: bool = False,
    ) -> None:
        self.models = tuple(models)
        self.swaps: list[Swap] = []
        self.loads: list[TrialLoad] = []
        """All that was issued."""
        self._swap_seconds = swap_seconds
        self._overlap = overlap
        self._engines = [Engine(slots, gain) for _ in range(places)]
        self._at: list[int | None] = [None] * places
        """The model that each place serves."""
        if len(self.models) == 1:
            self._at[0] = self.models[0]
        self._issued = 0.0
        self._waiting: dict[int, deque[TrialLoad]] = {}
        """What is served at the next turn of each model."""

    def issue(self, load: TrialLoad, now: float) -> None:
        """Serve a model's trials in its turn of now, or let them wait for one."""
        self._issued = now
        self.loads.append(load)
        if load.model in self._at:
            self._engines[self._at.index(load.model)].serve(load, now)
        else:
            self._waiting.setdefault(load.model, deque()).append(load)

    def due(self) -> float:
        """When the next swap begins; infinity where nothing waits."""
        return max(self._idle(self._first()), self._issued) if self._waiting else math.inf

    def swap(self) -> None:
        """Begin the swap that is due, and serve what waits for it."""
        at, place = self.due(), self._first()
        served = self._waiting.pop(self._next(self._at[place]))
        self._at[place] = served[0].model
        self.swaps.append(Swap(served[0].model, at, self._swap_seconds))
        engine, begin = self._engines[place], at + self._swap_seconds
        engine.clear(begin)
        for load in served:
            engine.serve(load, begin)

    def _first(self) -> int:
        """The place that is idle first."""
        return min(range(len(self._engines)), key=self._idle)

    def _idle(self, place: int) -> float:
        engine = self._engines[place]
        return engine.begun if self._overlap else engine.over

    def _next(self, now: int | None) -> int:
        """The first model in the circle for which something waits."""
        after = -1 if now is None else self.models.index(now)
        circle = (*self.models[after + 1 :], *self.models[: after + 1])
        return next(model for model in circle if model in self._waiting)
