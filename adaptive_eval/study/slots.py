"""When runs ended that were decided already: the slots of all models of all runs as one array.

Each model has slots of its own, first come first served, as `study.servers` has them; here the next trial of every
model of every run takes its slot at once, so that a thousand queues take hardly longer than one.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.stack import IssuedRound
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.study.timed import ServiceTimes
from adaptive_eval.study.verdict_times import NO_VERDICTS, JudgeQueue, VerdictTimes
from scorio.moments import FloatArray, IntArray

MOST_SLOTS = 1 << 21
"""Slots of all models of all runs that are timed together: more would take memory, and no less time."""


class DecidedRun(NamedTuple):
    """The rounds of a run, its answers, and how long these take."""

    rounds: Sequence[IssuedRound]
    tape: Tape
    times: ServiceTimes


class TimeTaken(NamedTuple):
    """Seconds of a run, and of each of its models until its last answer."""

    seconds: float
    held: tuple[float, ...]
    unwanted: IntArray | None = None
    """(L, K): trials that idle slots were asked in vain."""


def times_taken(
    runs: Sequence[DecidedRun], slots: Sequence[int], verdicts: VerdictTimes = NO_VERDICTS
) -> list[TimeTaken]:
    """When each run ended, and each of its models: what `drive_in_time` finds where all models go in step, each on a
    host of its own with so many slots.

    A look is taken when a round and all before it are complete; each is of one round.
    """
    at_once = max(MOST_SLOTS // sum(slots), 1)
    parts = (runs[begin : begin + at_once] for begin in range(0, len(runs), at_once))
    return [one for part in parts for one in _Clock(part, slots, verdicts).times()]


class _Clock:
    """The time of every run, as its rounds come."""

    def __init__(self, runs: Sequence[DecidedRun], slots: Sequence[int], verdicts: VerdictTimes) -> None:
        self._runs = runs
        self._judges = [JudgeQueue(verdicts) for _ in runs]
        models = len(slots)
        total = np.array([sum((one.extra.sum(axis=1) for one in run.rounds), np.zeros(models)) for run in runs])
        self._queues = SlotQueues(np.tile(slots, len(runs)), total.ravel())
        self._coming = [deque(run.rounds) for run in runs]
        self._issued: list[IntArray] = [np.zeros((models, 1), dtype=np.int64) for _ in runs]
        self._now = np.zeros(len(runs))
        self._last = np.zeros((len(runs), models))
        self._ends: list[list[float]] = [[] for _ in runs]
        """When each round of each run is complete."""

    def times(self) -> list[TimeTaken]:
        for look in range(max((len(run.rounds) for run in self._runs), default=0)):
            while asking := [run for run, rounds in enumerate(self._coming) if rounds and rounds[0].looks <= look]:
                self._issue(asking)
            for run, ends in enumerate(self._ends):
                if look < len(ends):
                    self._now[run] = max(self._now[run], ends[look])
        return [TimeTaken(now, tuple(last)) for now, last in zip(self._now.tolist(), self._last.tolist(), strict=True)]

    def _issue(self, asking: Sequence[int]) -> None:
        """The next round of each of these runs."""
        sizes, seconds = np.zeros(self._last.shape, dtype=np.int64), list[FloatArray]()
        for run in asking:
            extra, (_, tape, times) = self._coming[run].popleft().extra, self._runs[run]
            trials = TrialArrays.of_round(np.broadcast_to(self._issued[run], extra.shape), extra)
            seconds.append(times.seconds(trials, tape.categories(trials)))
            sizes[run] = extra.sum(axis=1)
            self._issued[run] = self._issued[run] + extra
        now = np.repeat(self._now, sizes.shape[1])
        ends = self._queues.serve(sizes.ravel(), np.concatenate(seconds), now).reshape(sizes.shape)
        self._last = np.maximum(self._last, ends)
        for run, took in zip(asking, seconds, strict=True):
            judge, last = self._judges[run], float(ends[run].max())
            judged = judge.done(float(self._now[run]), took)
            self._ends[run].append(judge.after(last, judged) if (took > 0.0).any() else last)


class SlotQueues:
    """Queues side by side, each before slots of its own."""

    def __init__(self, slots: IntArray, trials: IntArray) -> None:
        """`trials` is how many each queue will have in all: where there are as many slots, nobody waits."""
        self._waits = slots < trials
        widest = int(slots[self._waits].max(initial=0))
        self._free = np.where(np.arange(widest) < slots[:, None], 0.0, math.inf)
        """(Q, S): when each slot is free."""

    def serve(self, sizes: IntArray, seconds: FloatArray, now: FloatArray) -> FloatArray:
        """Serve `sizes` (Q,) trials from `now` (Q,) on, each in the slot that is free first; when the last of each
        queue has ended, 0 where none was to be served. `seconds` are those of one queue after the other."""
        begins, ends = np.cumsum(sizes) - sizes, np.zeros(len(sizes))
        at_once = np.flatnonzero((sizes > 0) & ~self._waits)
        for queue in at_once.tolist():
            ends[queue] = now[queue] + seconds[begins[queue] : begins[queue] + sizes[queue]].max()
        queues = np.flatnonzero((sizes > 0) & self._waits)
        queues = queues[np.argsort(-sizes[queues], kind="stable")]
        if not len(queues):
            return ends
        free = np.maximum(self._free[queues], now[queues, None])
        over = np.zeros(len(queues))
        still = np.searchsorted(-sizes[queues], -np.arange(sizes.max()), side="left")
        took = _in_step(seconds, begins[queues], still)
        slots, row = free.ravel(), np.arange(len(queues)) * free.shape[1]
        done = 0
        for many in still.tolist():
            first = free[:many].argmin(axis=1)
            first += row[:many]
            end = slots[first]
            end += took[done : done + many]
            slots[first] = end
            np.maximum(over[:many], end, out=over[:many])
            done += many
        self._free[queues], ends[queues] = free, over
        return ends


def _in_step(seconds: FloatArray, begins: IntArray, still: IntArray) -> FloatArray:
    """Seconds of the first trials of all queues, then of the second ones, and so on: each step as many queues as still
    have one. `begins` is where those of each queue begin."""
    ends = np.cumsum(still)
    queue = np.arange(ends[-1]) - np.repeat(ends - still, still)
    return np.asarray(seconds[begins[queue] + np.repeat(np.arange(len(still)), still)])
