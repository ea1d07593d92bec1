"""A replay against simulated servers in simulated time: slots that are busy, answers that come in their own order.

Nothing waits for real. Each model has its own slots, unless it shares them in turn with others (`study.servers`); and
since decisions depend on complete batches only, the outcomes of a batch are told together, at the end of its last
trial, as counts: whole arrays take a tenth of the time of as many trials.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.rounds import Batch, Round
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.core.types import NO_COST, Look, Outcome
from adaptive_eval.study.drive import CostTable, DrawnRound
from adaptive_eval.study.servers import SimulatedHost, Swap, TrialLoad
from adaptive_eval.study.verdict_times import NO_VERDICTS, JudgeQueue, VerdictTimes
from scorio.moments import FloatArray, IntArray

END = attrgetter("end")


class ServedSpans(NamedTuple):
    """When a model's trials began and ended, in seconds."""

    start: FloatArray
    end: FloatArray

    @classmethod
    def of(cls, loads: Sequence[TrialLoad]) -> "ServedSpans":
        """Collect what was served of a model's loads."""
        begun = np.concatenate([np.zeros(0), *(load.begins for load in loads)])
        ended = np.concatenate([np.zeros(0), *(load.ends for load in loads)])
        there = np.isfinite(begun)
        return cls(begun[there], ended[there])


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Times of a replay: of its end, of each look, and of each model's trials."""

    seconds: float
    looks: FloatArray
    served: tuple[ServedSpans, ...]
    asked: IntArray
    """(L, K): trials that servers were asked for, whether a look has seen them or not."""
    swaps: tuple[Swap, ...]
    """Swaps of the models that take turns, in the order of their hosts."""


class ServiceTimes(Protocol):
    """Source of the times that answers take."""

    def seconds(self, trials: TrialArrays, categories: IntArray) -> FloatArray:
        """The seconds of each trial, which falls into its category."""


class _FlyingBatch:
    """A batch that was issued: its load, and what will come of it.

    It is told as a whole. Of an `opening`, whose answers decide before all are there, it is told besides what they took
    so far: from the end of the first of its batches on, after each.
    """

    def __init__(
        self,
        batch: Batch,
        drawn: DrawnRound,
        takes: FloatArray,
        recorded: NDArray[np.bool_],
        opening: "list[TrialLoad] | None",
        judge: JudgeQueue,
        now: float,
    ) -> None:
        """`takes` are the seconds of its answers; those that are `recorded` are there already."""
        self.batch, self._takes, self._recorded = batch, takes, recorded
        seconds = np.where(recorded, 0.0, takes)
        self._judge, self._judged = judge, judge.done(now, seconds)
        self.load = TrialLoad(batch.model, seconds)
        self._drawn = drawn
        self._opening = opening
        """The loads of all its batches."""
        if opening is not None:
            opening.append(self.load)
        self._told = 0
        """Answers whose time is told."""

    @property
    def next(self) -> float:
        """When there is something to tell."""
        if self._opening is None:
            return self.load.end if self.is_recorded else self._judge.after(self.load.end, self._judged)
        return self.load.in_order[0][self._until() - 1]

    def _until(self) -> int:
        """How many of its answers have come when there is something to tell: until the first batch of the opening is
        complete nothing comes of any of them."""
        assert self._opening is not None
        quiet = bisect_left(self.load.in_order[0], min(map(END, self._opening)))
        return max(quiet, self._told + 1)

    @property
    def told(self) -> bool:
        """Whether the core was told all of the batch."""
        return self._told == self.batch.size

    def tell(self, controller: Controller, costs: CostTable | None) -> list[Look]:
        """Tell the controller what comes next."""
        self._told = self.batch.size if self._opening is None else self._until()
        if not self.told:
            controller.tell_time(self.batch, float(self._takes[self.load.in_order[1][: self._told]].sum()))
            return []
        own = None if costs is None else costs[self.batch.model]
        return controller.tell_batch(self.batch, self._drawn.counts, own, float(self._takes.sum()))

    @property
    def is_recorded(self) -> bool:
        """Whether all of it is recorded, and takes no time."""
        return bool(self._recorded.all())

    @property
    def last(self) -> float:
        """When the last answer comes that was asked for, if it ends with what has begun."""
        return float(self.load.ends[np.isfinite(self.load.ends)].max(initial=0.0))

    def asked(self, categories: int) -> IntArray:
        """(K,): trials that servers were asked for."""
        begun = np.isfinite(self.load.begins) & ~self._recorded
        return np.bincount(self._drawn.categories[begun], minlength=categories)

    def before(self, cap: float, costs: CostTable | None) -> Iterator[Outcome]:
        """Outcomes that have come before the cap."""
        values, came = (*self._drawn.trials, self._drawn.categories, self._takes), self.load.ends < cap
        for model, question, trial, category, seconds in zip(*(value[came].tolist() for value in values), strict=True):
            cost = NO_COST if costs is None else costs[model][category]
            yield Outcome(model, question, trial, category, cost, seconds=seconds)


def _flying(
    asked: Round,
    tape: Tape,
    times: ServiceTimes,
    recorded: IntArray | None,
    controller: Controller,
    judge: JudgeQueue,
    now: float,
) -> Iterator[_FlyingBatch]:
    """The batches of a round; where servers are held, those of the first set the clock while they come."""
    drawn = DrawnRound.of(asked, tape, controller.plan.bench.categories)
    takes = times.seconds(drawn.trials, drawn.categories)
    known = np.zeros(len(takes), dtype=bool) if recorded is None else _is_recorded(recorded, drawn.trials)
    opening: list[TrialLoad] | None = [] if controller.plan.pace.held and asked.index == 0 else None
    end = 0
    for model, batch in sorted(asked.batches.items()):
        own = slice(end, end := end + batch.size)
        trials = TrialArrays(*(column[own] for column in drawn.trials))
        part = DrawnRound(trials, drawn.categories[own], drawn.counts[model])
        yield _FlyingBatch(batch, part, takes[own], known[own], opening, judge, now)


def _is_recorded(recorded: IntArray, trials: TrialArrays) -> NDArray[np.bool_]:
    """Mask of the trials that are recorded."""
    known = trials.trial < recorded.shape[2]
    known[known] = recorded[tuple(column[known] for column in trials)] >= 0
    return np.asarray(known)


def drive_in_time(
    controller: Controller,
    tape: Tape,
    times: ServiceTimes,
    slots: int | Sequence[int],
    shared: Sequence[SimulatedHost] = (),
    costs: CostTable | None = None,
    gain: float = 0.0,
    verdicts: VerdictTimes = NO_VERDICTS,
    recorded: IntArray | None = None,
) -> Timeline:
    """Run the controller with `slots` requests at a time for each model; a cap on wall time means simulated time.

    `shared` are the hosts of models that take turns; every other model has one of its own, on which few sequences are
    faster by `gain`. Without `costs` trials cost nothing. A round is complete when its `verdicts` are there. What is
    `recorded` (L, M, N), -1 for none, is there at once; clocks count the time that it took.
    """
    bench = controller.plan.bench
    width = (slots,) * bench.models if isinstance(slots, int) else tuple(slots)
    hosts = _everyones_hosts(width, shared, gain)
    flying, judge = _FlyingBatches(shared), JudgeQueue(verdicts)
    cap = controller.plan.budget.wall_seconds
    now, looks, asking, begun = 0.0, list[float](), list[_FlyingBatch](), list[_FlyingBatch]()
    while controller.finished is None:
        flying.pause(controller, hosts, now)
        for asked in controller.ask_rounds():
            asking += _flying(asked, tape, times, recorded, controller, judge, now)
        # what is there already takes no time, and is heard of before anything is asked
        there = [one for one in asking if one.is_recorded]
        issued = there if there or flying.has_recorded else asking
        asking = [one for one in asking if one not in issued]
        for one in issued:
            hosts[one.load.model].issue(one.load, now)
        for one in issued:
            flying.add(one)
        begun += issued
        landed = flying.next_to_land()
        now = max(now, landed.next)
        if cap is not None and now >= cap:
            controller.tell(outcome for one in flying.all() for outcome in one.before(cap, costs))
            controller.tick(cap)
            now = cap
            break
        looks += [now] * len(landed.tell(controller, costs))
        flying.forget_if_told(landed)
    flying.pause(controller, hosts, now)
    if cap is None or now < cap:
        now = max([now, *(one.last for one in flying.all())])
    served = tuple(
        ServedSpans.of([load for load in host.loads if load.model == model]) for model, host in enumerate(hosts)
    )
    swaps = tuple(swap for host in shared for swap in host.swaps if swap.at < now)
    of_servers = np.zeros((bench.models, bench.categories), dtype=np.int64)
    for one in begun:
        of_servers[one.load.model] += one.asked(bench.categories)
    return Timeline(now, np.array(looks), served, of_servers, swaps)


def _everyones_hosts(slots: Sequence[int], shared: Sequence[SimulatedHost], gain: float) -> list[SimulatedHost]:
    of = {model: host for host in shared for model in host.models}
    return [of.get(model) or SimulatedHost((model,), own, gain=gain) for model, own in enumerate(slots)]


class _FlyingBatches:
    """Batches in flight, by when there is something to tell of them: what is issued later may only put that off."""

    def __init__(self, shared: Sequence[SimulatedHost]) -> None:
        self._shared = shared
        self._heap: list[tuple[float, int, _FlyingBatch]] = []
        self._added = 0

    def add(self, one: _FlyingBatch) -> None:
        """Add a batch that was issued."""
        heapq.heappush(self._heap, (one.next, self._added, one))
        self._added += 1

    @property
    def has_recorded(self) -> bool:
        """Whether some of them are recorded, and take no time."""
        return any(one.is_recorded for _, _, one in self._heap)

    def pause(self, controller: Controller, hosts: Sequence[SimulatedHost], now: float) -> None:
        """Let nothing begin of paused models."""
        changed = [host.pause(model, now, paused=controller.is_paused(model)) for model, host in enumerate(hosts)]
        if any(changed):
            self._in_order_of_news()

    def _in_order_of_news(self) -> None:
        self._heap = [(one.next, number, one) for _, number, one in self._heap]
        heapq.heapify(self._heap)

    def all(self) -> Iterator[_FlyingBatch]:
        """All of them, in the order of issue."""
        return (one for _, _, one in sorted(self._heap, key=lambda entry: entry[1]))

    def next_to_land(self) -> _FlyingBatch:
        """The batch of which there is something to tell first, after every swap that begins before."""
        while True:
            first = self._first()
            host = min(self._shared, key=SimulatedHost.due, default=None)
            if host is None or host.due() >= first.next:
                return first
            host.swap()
            self._in_order_of_news()  # who waited is served now

    def _first(self) -> _FlyingBatch:
        while (entry := self._heap[0])[0] < entry[2].next:
            heapq.heapreplace(self._heap, (entry[2].next, *entry[1:]))
        return entry[2]

    def forget_if_told(self, landed: _FlyingBatch) -> None:
        """The first has been told: the whole of it, or what had come."""
        if landed.told:
            heapq.heappop(self._heap)
