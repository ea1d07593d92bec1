"""A replay on simulated servers in simulated time: busy slots, and answers in their own order.

Nothing waits in real time. Each model has its own slots, unless it takes turns with others (`study.servers`). Decisions
depend on complete batches only, and after the first round not on times. So the controller gets a batch's outcomes
together as counts, at the end of its last trial: whole arrays take a tenth of the time.

The time of a judge's verdicts is left out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.core.types import NO_COST, Look, Outcome
from adaptive_eval.study.drive import CostTable, DrawnBatch
from adaptive_eval.study.servers import SimulatedHost, Swap, TrialLoad
from scorio.moments import FloatArray, IntArray


class ServedSpans(NamedTuple):
    """When a model's trials began and ended, in seconds."""

    start: FloatArray
    end: FloatArray

    @classmethod
    def of(cls, loads: Sequence[TrialLoad]) -> "ServedSpans":
        """The spans of all trials of these loads that have begun."""
        begun = np.concatenate([np.zeros(0), *(load.begins for load in loads)])
        ended = np.concatenate([np.zeros(0), *(load.ends for load in loads)])
        has_begun = np.isfinite(begun)
        return cls(begun[has_begun], ended[has_begun])

    def held_seconds(self, start: float, until: float, *, parks: bool) -> float:
        """Seconds until then for which the model's own server is held; it takes `start` seconds to come up.

        If the run `parks` models, the server is stopped while it is idle for longer than it takes to start again."""
        asked = (self.start < until) & (self.end > self.start)  # recorded answers take no time
        if not asked.any():
            return 0.0
        order = np.argsort(self.start[asked])
        since, ends = self.start[asked][order], np.maximum.accumulate(self.end[asked][order]).clip(max=until)
        stopped = np.maximum(since[1:] - ends[:-1] - start, 0.0).sum() if parks else 0.0
        return float(ends[-1] - since[0] - stopped + start)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Times of a replay: its end, each look, and each model's trials."""

    seconds: float
    looks: FloatArray
    served: tuple[ServedSpans, ...]
    asked: IntArray
    """(L, K): trials that servers were asked for, seen by a look or not."""
    swaps: tuple[Swap, ...]
    """Swaps of models that take turns, host by host."""
    parks: bool
    """Whether models in no open comparison are parked, and their servers stopped."""

    def held_seconds(self, start: float, until: float) -> FloatArray:
        """(L,): seconds until then for which each model's servers are held; a place serves a model until its next."""
        held = np.array([spans.held_seconds(start, until, parks=self.parks) for spans in self.served])
        held[[swap.model for swap in self.swaps]] = 0.0
        ends: dict[tuple[int, int], float] = {}
        for swap in sorted(self.swaps, key=attrgetter("at"), reverse=True):
            end = ends.get(swap.place, self.seconds)
            held[swap.model] += max(min(end, until) - swap.at, 0.0)
            ends[swap.place] = swap.at
        return held


ServiceTimes = Callable[[TrialArrays, IntArray], FloatArray]
"""Gives the seconds of each trial, from its category."""


class _BatchInFlight:
    """An issued batch: its load, and its outcomes.

    The controller is told all of it at once. The `opening`, whose times matter before it is complete, is told answer by
    answer from the end of the first batch on.
    """

    def __init__(
        self,
        batch: Batch,
        drawn: DrawnBatch,
        durations: FloatArray,
        recorded: IntArray | None,
        opening: list[TrialLoad] | None,
    ) -> None:
        """`durations` are the seconds of its answers; `recorded` ones (L, M, N) exist already; `opening` has the loads
        of the first round's batches, if servers are held: these set the clocks."""
        self.batch, self._takes, self._drawn, self._opening = batch, durations, drawn, opening
        self._recorded = np.zeros(batch.size, bool) if recorded is None else _is_recorded(recorded, drawn.trials)
        self.is_recorded = bool(self._recorded.all())
        """Whether the whole batch is recorded, and takes no time."""
        self.load = TrialLoad(batch.model, np.where(self._recorded, 0.0, durations))
        if opening is not None:
            opening.append(self.load)
        self._told = 0
        """Number of answers that were told."""

    @property
    def next(self) -> float:
        """When there is something to tell."""
        if self._opening is None:
            return self.load.end
        return self.load.in_order[0][self._until() - 1]

    def _until(self) -> int:
        """How many answers have arrived at the next report; reports begin once a batch of the opening is complete."""
        assert self._opening is not None
        if self._told:  # the first batch has ended
            return self._told + 1
        return max(bisect_left(self.load.in_order[0], min(load.end for load in self._opening)), 1)

    @property
    def is_complete(self) -> bool:
        """Whether the whole batch was told."""
        return self._told == self.batch.size

    def tell(self, controller: Controller, costs: CostTable | None) -> list[Look]:
        """Tell the controller what comes next."""
        if self._opening is not None:
            told, self._told = self._told, self._until()
            return controller.tell(self._outcomes(told, self._told, costs))
        self._told = self.batch.size
        return controller.tell_counts([(self.batch, self._drawn.counts)], costs, float(self._takes.sum()))

    @property
    def last(self) -> float:
        """When the last requested answer arrives, if nothing more begins."""
        return float(self.load.ends[np.isfinite(self.load.ends)].max(initial=0.0))

    def requested(self, categories: int) -> IntArray:
        """(K,): trials that servers were asked for."""
        begun = np.isfinite(self.load.begins) & ~self._recorded
        return np.bincount(self._drawn.categories[begun], minlength=categories)

    def before(self, cap: float, costs: CostTable | None) -> Iterator[Outcome]:
        """Outcomes that arrive before the cap, and were not told."""
        return self._outcomes(self._told, bisect_left(self.load.in_order[0], cap), costs)

    def _outcomes(self, start: int, end: int, costs: CostTable | None) -> Iterator[Outcome]:
        """The outcomes from one number to another, in the order of their ends."""
        values, which = (*self._drawn.trials, self._drawn.categories, self._takes), self.load.in_order[1][start:end]
        for model, question, trial, category, seconds in zip(*(value[which].tolist() for value in values), strict=True):
            cost = NO_COST if costs is None else costs[model][category]
            yield Outcome(model, question, trial, category, cost, seconds=seconds)


def _is_recorded(recorded: IntArray, trials: TrialArrays) -> NDArray[np.bool_]:
    """Mask of the trials that are recorded."""
    mask = trials.trial < recorded.shape[2]
    mask[mask] = recorded[tuple(column[mask] for column in trials)] >= 0
    return np.asarray(mask)


def drive_in_time(
    controller: Controller,
    tape: Tape,
    times: ServiceTimes,
    slots: int | Sequence[int],
    shared: Sequence[SimulatedHost] = (),
    costs: CostTable | None = None,
    recorded: IntArray | None = None,
) -> Timeline:
    """Run the controller with `slots` requests at a time for each model; a cap on wall time applies to simulated time.

    `shared` are hosts of models that take turns; every other model has a host of its own. Without `costs` trials are
    free. `recorded` trials (L, M, N), -1 for none, exist at once; clocks count their original seconds.
    """
    bench = controller.plan.bench
    width = (slots,) * bench.models if isinstance(slots, int) else tuple(slots)
    places = {model: host for host in shared for model in host.models}
    hosts = [places.get(model) or SimulatedHost((model,), model_slots) for model, model_slots in enumerate(width)]
    cap = controller.plan.budget.wall_seconds
    now, looks, opening = 0.0, list[float](), list[TrialLoad]()
    asking, flying, all_issued = (list[_BatchInFlight]() for _ in range(3))
    seen, rounds = -1, -1
    while controller.finished is None:
        if controller.taker.taken != seen:  # only looks pause models
            _pause(controller, hosts, now)
            seen = controller.taker.taken
        for batch in controller.ask_batches() if controller.rounds_issued != rounds else ():
            drawn = DrawnBatch.of(batch, tape)
            loads = opening if controller.plan.pace.dedicated_servers and batch.round_index == 0 else None
            asking.append(_BatchInFlight(batch, drawn, times(drawn.trials, drawn.categories), recorded, loads))
        rounds = controller.rounds_issued
        # recorded trials take no time, and are told before anything is asked
        stored = [each for each in asking if each.is_recorded]
        issued = stored if stored or any(each.is_recorded for each in flying) else asking
        asking = [each for each in asking if each not in issued]
        for each in issued:
            if each.is_recorded:  # no server has to be there
                at_once = np.full(each.batch.size, now)
                each.load.set_times(at_once, at_once, now)
            else:
                hosts[each.batch.model].issue(each.load, now)
        flying += issued
        all_issued += issued
        due = _next_due(flying, shared)
        now = max(now, due.next)
        if cap is not None and now >= cap:
            controller.tell(outcome for batch in flying for outcome in batch.before(cap, costs))
            controller.tick(cap)
            now = cap
            break
        looks += [now] * len(due.tell(controller, costs))
        if due.is_complete:
            flying.remove(due)
    _pause(controller, hosts, now)
    if cap is None or now < cap:
        now = max([now, *(batch.last for batch in flying)])
    served = tuple(
        ServedSpans.of([load for load in host.loads if load.model == model]) for model, host in enumerate(hosts)
    )
    swaps = tuple(swap for host in shared for swap in host.swaps if swap.at < now)
    of_servers = np.zeros((bench.models, bench.categories), dtype=np.int64)
    for served_batch in all_issued:
        of_servers[served_batch.batch.model] += served_batch.requested(bench.categories)
    return Timeline(now, np.array(looks), served, of_servers, swaps, controller.plan.pace.dedicated_servers)


def _next_due(flying: Sequence[_BatchInFlight], shared: Sequence[SimulatedHost]) -> _BatchInFlight:
    """The first batch with something to tell, after all swaps that begin earlier."""
    while True:
        first = min(flying, key=attrgetter("next"))
        host = min(shared, key=SimulatedHost.due, default=None)
        if host is None or host.due() >= first.next:
            return first
        host.swap()


def _pause(controller: Controller, hosts: Sequence[SimulatedHost], now: float) -> None:
    """Pause the trials of paused models."""
    for model, host in enumerate(hosts):
        host.pause(model, now, paused=controller.is_paused(model))
