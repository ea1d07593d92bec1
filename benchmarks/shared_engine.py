"""Simulated servers that are faster the fewer sequences they have, as GPUs are.

A trial's time is given for a server with all slots in use. With fewer sequences each is faster, as decoding is bound by
memory: with n of s slots in use by (1 + gain) / (1 + gain n / s). All sequences share one speed, so a server has its
own time, in which trials last as long as given; wall time is the integral of 1 over the speed.
"""

import math

import numpy as np

from adaptive_eval.study.servers import Engine, TrialLoad, place_trials
from scorio.moments import FloatArray


class SharedEngine(Engine):
    """The servers of one model: their slots, and their own time."""

    def __init__(self, gain: float, slots: int, now: float = 0.0) -> None:
        super().__init__(slots, now)
        self.gain = gain
        self._since, self._own = now, now
        """The moment up to which everything is settled, in wall time and own time."""
        self._served: list[tuple[TrialLoad, FloatArray, FloatArray]] = []
        """Loads that end after that, with their beginnings and ends in own time."""

    def serve(self, load: TrialLoad, now: float) -> None:
        """Place each trial in the slot that is free first."""
        self._settle(now)
        entry = next((served for served in self._served if served[0] is load), None)
        if entry is None:
            past = np.where(np.isfinite(load.begins), -math.inf, math.inf)  # it began earlier, in another turn
            entry = (load, past, past.copy())
            self._served.append(entry)
        _, begins, ends = entry
        coming = np.isposinf(begins)
        begins[coming], ends[coming] = place_trials(self._free, load.seconds[coming], self._own)
        self._update_wall_times()

    def waiting(self, now: float) -> int:
        """Number of trials that have not begun by then."""
        waiting = (load for load, _, _ in self._served if load.end > now and not load.parked)
        return sum(int(np.count_nonzero(load.begins > now)) for load in waiting)

    def withdraw(self, now: float) -> list[TrialLoad]:
        """Take back trials that have not begun; returns their loads."""
        self._settle(now)
        engine_time, withdrawn = self._own, list[TrialLoad]()
        running = [ends[(begins <= engine_time) & (ends > engine_time)] for _, begins, ends in self._served]
        busy = np.sort(np.concatenate([np.zeros(0), *running])).tolist()
        self._free = [engine_time] * (self._slots - len(busy)) + busy
        for load, begins, ends in self._served:
            if (ahead := begins > engine_time).any():
                for times in (load.begins, load.ends, begins, ends):
                    times[ahead] = math.inf
                withdrawn.append(load)
        self.over = now
        self._update_wall_times()
        return withdrawn

    def _settle(self, now: float) -> None:
        """Fix everything before `now`."""
        if now > self._since:
            engine_times, wall = self._course()
            beyond = max(now - float(wall[-1]), 0.0) * (1.0 + self.gain)
            self._own, self._since = float(np.interp(now, wall, engine_times)) + beyond, now
        self._served = [entry for entry in self._served if entry[0].end > now]

    def _update_wall_times(self) -> None:
        """Update the wall times of the loads' trials that are still open."""
        engine_times, wall = self._course()
        for load, begins, ends in self._served:
            times = load.begins, load.ends
            for on_wall, mine in zip(times, (begins, ends), strict=True):
                ahead = (mine > self._own) | ~np.isfinite(on_wall)
                on_wall[ahead] = np.where(np.isinf(mine[ahead]), math.inf, np.interp(mine[ahead], engine_times, wall))
            load.set_times(*times, float(load.ends.max(initial=self._since)))
        for load, _, _ in self._served:
            self.over = max(self.over, float(load.ends[np.isfinite(load.ends)].max(initial=0.0)))

    def _course(self) -> tuple[FloatArray, FloatArray]:
        """Own time and wall time at every beginning and end from the settled moment on."""
        begins = np.sort(np.concatenate([np.zeros(0), *(entry[1] for entry in self._served)]))
        ends = np.sort(np.concatenate([np.zeros(0), *(entry[2] for entry in self._served)]))
        begins, ends = begins[begins < math.inf], ends[ends < math.inf]
        points = np.unique(np.concatenate([[self._own], begins[begins > self._own], ends[ends > self._own]]))
        running = np.searchsorted(begins, points, "right") - np.searchsorted(ends, points, "right")
        speed = (1.0 + self.gain) / (1.0 + self.gain * running / self._slots)
        wall = self._since + np.concatenate([[0.0], np.cumsum(np.diff(points) / speed[:-1])])
        return points, wall
