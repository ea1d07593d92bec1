"""A replay against simulated servers in simulated time: slots that are busy, answers that come in their own order.

Nothing waits for real. Each model has its own slots, unless it shares them in turn with others; and since looks depend
on complete rounds only, the outcomes of a round are told together, at the end of its last trial, as counts: whole
arrays take a tenth of the time of as many trials.

Simulated servers in simulated time: slots, first come first served, and models that take turns on the same slots.

Nothing waits for real. A trial begins as soon as its model is served and a slot is free, so its end is known then.
Where several models share a host, one is served until everything that was issued for it has ended; then comes the next
one, after a swap, in a circle. So a round is served model by model, and the next one begins with the model that is
there.
"""

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.rounds import Round
from adaptive_eval.core.types import NO_COST, Ask, Look, Outcome
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.study.drive import CostTable, Drawn
from adaptive_eval.study.tape import Layers, Tape, Trials
from scorio.moments import FloatArray, IntArray


class Load:
    """The trials of one model in one round, in the order of their asks; they end at infinity until they are served."""

    __slots__ = ("end", "ends", "model", "seconds")

    def __init__(self, model: int, seconds: FloatArray) -> None:
        self.model = model
        self.seconds = seconds
        self.ends = np.full(len(seconds), math.inf)
        self.end = math.inf
        """When the last of them has ended."""


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
        self.spans: dict[int, list[tuple[FloatArray, FloatArray]]] = {model: [] for model in self.models}
        """When the trials of each load of a model began and ended."""
        self._swap_seconds = swap_seconds
        self._loaded = self.models[0] if len(self.models) == 1 else None
        self._slots = slots
        self._free = [0.0] * slots
        """When each slot is free, in order."""
        self._over = 0.0
        """When everything that has begun will have ended."""
        self._issued = 0.0
        self._waiting: dict[int, deque[Load]] = {}
        """What is served at the next turn of each model."""

    def issue(self, load: Load, now: float) -> None:
        """Serve a model's trials in its turn of now, or let them wait for one."""
        self._issued = now
        if load.model == self._loaded:
            self._serve(load, now)
        else:
            self._waiting.setdefault(load.model, deque()).append(load)

    def due(self) -> float:
        """When the next swap begins; infinity where nothing waits."""
        return max(self._over, self._issued) if self._waiting else math.inf

    def swap(self) -> None:
        """Begin the swap that is due, and serve what waits for it."""
        at = self.due()
        served = self._waiting.pop(self._next())
        self._loaded = served[0].model
        self.swaps.append(Swap(self._loaded, at, self._swap_seconds))
        begin = at + self._swap_seconds
        self._free = [begin] * self._slots
        for load in served:
            self._serve(load, begin)

    def _next(self) -> int:
        """The first model in the circle for which something waits."""
        after = -1 if self._loaded is None else self.models.index(self._loaded)
        circle = (*self.models[after + 1 :], *self.models[: after + 1])
        return next(model for model in circle if model in self._waiting)

    def _serve(self, load: Load, now: float) -> None:
        """Each trial in the slot that is free first: as many at once as are idle, the rest one after the other."""
        free, seconds = self._free, load.seconds
        idle = min(bisect_right(free, now), len(seconds))
        starts = [now] * idle
        free[:idle] = (now + seconds[:idle]).tolist()
        free.sort()
        for took in seconds[idle:].tolist():
            starts.append(free[0])
            heapq.heapreplace(free, free[0] + took)
        free.sort()
        begun = np.array(starts)
        load.ends = begun + seconds
        load.end = float(load.ends.max(initial=now))
        self._over = max(self._over, load.end)
        self.spans[load.model].append((begun, load.ends))


class Served(NamedTuple):
    """When a model's trials began and ended, in seconds."""

    start: FloatArray
    end: FloatArray

    @classmethod
    def of(cls, spans: Sequence[tuple[FloatArray, FloatArray]]) -> "Served":
        """From the beginnings and ends of its loads."""
        begun, ended = ([span[which] for span in spans] for which in (0, 1))
        return cls(np.concatenate([np.zeros(0), *begun]), np.concatenate([np.zeros(0), *ended]))

    def busy_until(self, times: FloatArray) -> FloatArray:
        """Slot-seconds in use up to each time: sum_i min(end_i, t) - min(start_i, t)."""
        return _sum_of_least(self.end, times) - _sum_of_least(self.start, times)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """How a timed replay went: the time of its end and of each look, and each model's trials."""

    seconds: float
    slots: tuple[int, ...]
    """Requests at a time, by model."""
    looks: FloatArray
    served: tuple[Served, ...]
    swaps: tuple[Swap, ...] = ()
    """Of the models that take turns, in the order of their hosts."""


def latency_of_mean(
    seconds: float, chances: FloatArray, weights: FloatArray, sigma: float = 0.5, wrong_factor: float = 2.0
) -> Latency:
    """The latency with this mean over all answers of models with the chances (L, M, K): E = median factor e^(s^2/2)."""
    mean_factor = float((chances @ _factors(weights, wrong_factor)).mean()) * float(np.exp(sigma**2 / 2.0))
    return Latency(seconds / mean_factor, sigma, wrong_factor)


class Times(Protocol):
    """How long answers take."""

    def seconds(self, trials: Trials, categories: IntArray) -> FloatArray:
        """The seconds of each trial, which falls into its category."""
        ...


class AnswerTimes:
    """Seconds of each trial, log-normal and longer when wrong: a function of seed, model, question and trial only."""

    def __init__(self, latency: Latency, shape: tuple[int, int], weights: FloatArray, rng: np.random.Generator) -> None:
        self._median = latency.median * _factors(weights, latency.wrong_factor)
        self._spread = Layers[float](_spreads(latency.sigma, shape, rng))

    def of(self, ask: Ask, category: int) -> float:
        """How long one answer takes."""
        return float(self._median[category]) * self._spread.at(ask.model, ask.question, ask.trial)

    def seconds(self, trials: Trials, categories: IntArray) -> FloatArray:
        """How long many answers take."""
        return np.asarray(self._median[categories] * self._spread.of(trials))


class _Served:
    """A round that was issued: its outcomes, and when they come."""

    def __init__(self, asked: Round, tape: Tape, times: Times, categories: int) -> None:
        self.drawn = Drawn.of(asked, tape, categories)
        ends = np.cumsum(asked.extra.sum(axis=1))
        seconds = times.seconds(self.drawn.trials, self.drawn.categories)
        self.loads = [
            Load(model, seconds[ends[model] - batch.size : ends[model]]) for model, batch in asked.batches.items()
        ]

    @property
    def end(self) -> float:
        """When the last trial has ended; infinity while that is not known."""
        return max(load.end for load in self.loads)

    def outcomes(self, cap: float, costs: CostTable | None) -> Iterator[Outcome]:
        """What has come before the cap."""
        came = np.concatenate([load.ends for load in self.loads]) < cap
        columns = (column[came].tolist() for column in (*self.drawn.trials, self.drawn.categories))
        for model, question, trial, category in zip(*columns, strict=True):
            yield Outcome(model, question, trial, category, NO_COST if costs is None else costs[model][category])


def drive_in_time(
    controller: Controller,
    tape: Tape,
    times: Times,
    slots: int | Sequence[int],
    on_look: Callable[[Look], None] | None = None,
    shared: Sequence[Host] = (),
    costs: CostTable | None = None,
) -> Timeline:
    """Run the controller with `slots` requests at a time for each model; a cap on wall time means simulated time.

    `shared` are the hosts of models that take turns; every other model has one of its own.
    Without `costs` trials cost nothing.
    """
    bench = controller.plan.bench
    width = (slots,) * bench.models if isinstance(slots, int) else tuple(slots)
    hosts = _everyones_hosts(width, shared)
    rounds: deque[_Served] = deque()
    cap = controller.plan.budget.wall_seconds
    now, looks = 0.0, []
    while controller.finished is None:
        for asked in controller.ask_rounds():
            rounds.append(_Served(asked, tape, times, bench.categories))
            for load in rounds[-1].loads:
                hosts[load.model].issue(load, now)
        now = max(now, _end_of(rounds[0], shared))
        if cap is not None and now >= cap:
            controller.tell(outcome for one in rounds for outcome in one.outcomes(cap, costs))
            controller.tick(cap)
            now = cap
            break
        for look in controller.tell_round(rounds.popleft().drawn.counts, costs):
            looks.append(now)
            if on_look is not None:
                on_look(look)
    served = tuple(Served.of(host.spans[model]) for model, host in enumerate(hosts))
    swaps = tuple(swap for host in shared for swap in host.swaps if swap.at < now)
    return Timeline(now, width, np.array(looks), served, swaps)


def _everyones_hosts(slots: Sequence[int], shared: Sequence[Host]) -> list[Host]:
    of = {model: host for host in shared for model in host.models}
    return [of.get(model) or Host((model,), own) for model, own in enumerate(slots)]


def _end_of(oldest: _Served, shared: Sequence[Host]) -> float:
    """When the oldest round ends, after every swap that begins before."""
    while shared and (host := min(shared, key=Host.due)).due() < oldest.end:
        host.swap()
    return oldest.end


def _factors(weights: FloatArray, wrong_factor: float) -> FloatArray:
    """How many times as long an answer takes, by its category: longer at less than full weight."""
    return np.where(weights == weights.max(), 1.0, wrong_factor)


def _spreads(sigma: float, shape: tuple[int, int], rng: np.random.Generator) -> Iterator[FloatArray]:
    """Layers of exp(sigma x) with x standard normal: log-normal with median 1."""
    while True:
        yield np.exp(sigma * rng.standard_normal(shape))


def _sum_of_least(values: FloatArray, times: FloatArray) -> FloatArray:
    """sum_i min(value_i, t) for each t."""
    ordered = np.sort(values)
    total = np.concatenate([[0.0], ordered.cumsum()])
    below = np.searchsorted(ordered, times)
    return np.asarray(total[below] + times * (len(values) - below))
