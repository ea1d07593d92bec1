"""A replay against simulated servers in simulated time: slots that are busy, answers that come in their own order.

Nothing waits for real. Each model has its own slots, unless it shares them in turn with others; and since looks depend
on complete rounds only, the outcomes of a round are told together, at the end of its last trial.

Simulated servers in simulated time: slots, first come first served, and models that take turns on the same slots.

Nothing waits for real. A trial begins as soon as its model is served and a slot is free, so its end is known then.
Where several models share a host, one is served until everything that was issued for it has ended; then comes the next
one, after a swap, in a circle. So a round is served model by model, and the next one begins with the model that is
there.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.types import NO_COST, Ask, Cost, Look, Outcome
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.study.tape import Layers, Tape
from scorio.moments import FloatArray


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


MOST = 1 << 30

CostOf = Callable[[int, int], Cost]
"""What a trial of a model costs that falls into a category."""


class Served(NamedTuple):
    """When a model's trials began and ended, in seconds."""

    start: FloatArray
    end: FloatArray

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

    def of(self, ask: Ask, category: int) -> float:
        """The seconds of one."""
        ...


class AnswerTimes:
    """Seconds of each trial, log-normal and longer when wrong: a function of seed, model, question and trial only."""

    def __init__(self, latency: Latency, shape: tuple[int, int], weights: FloatArray, rng: np.random.Generator) -> None:
        self._median: list[float] = (latency.median * _factors(weights, latency.wrong_factor)).tolist()
        self._spread = Layers[float](_spreads(latency.sigma, shape, rng))

    def of(self, ask: Ask, category: int) -> float:
        """How long the answer takes."""
        return self._median[category] * self._spread.at(ask.model, ask.question, ask.trial)


class _Round:
    """The trials of a round that was issued."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.waiting = 0
        """How many of them wait for their model's turn."""

    @property
    def end(self) -> float:
        """When the last one has ended; infinity while that is not known."""
        return math.inf if self.waiting else max(trial.end for trial in self.trials)


def drive_in_time(
    controller: Controller,
    tape: Tape,
    times: Times,
    slots: int | Sequence[int],
    on_look: Callable[[Look], None] | None = None,
    shared: Sequence[Host] = (),
    cost: CostOf | None = None,
) -> Timeline:
    """Run the controller with `slots` requests at a time for each model; a cap on wall time means simulated time.

    `shared` are the hosts of models that take turns; every other model has one of its own.
    Without `cost` trials cost nothing.
    """
    models = controller.plan.bench.models
    width = (slots,) * models if isinstance(slots, int) else tuple(slots)
    hosts = _everyones_hosts(width, shared)
    rounds: dict[int, _Round] = {}
    cap = controller.plan.budget.wall_seconds
    now, looks = 0.0, []
    while controller.finished is None:
        for trial in _trials(controller.ask(MOST), tape, times, cost):
            issued = rounds.setdefault(trial.round, _Round())
            issued.trials.append(trial)
            issued.waiting += not hosts[trial.outcome.model].issue(trial, now)
        oldest = rounds.pop(min(rounds))
        now = max(now, _end_of(oldest, rounds, shared))
        if cap is not None and now >= cap:
            _end_at(cap, controller, [oldest, *rounds.values()])
            now = cap
            break
        for look in controller.tell(trial.outcome for trial in oldest.trials):
            looks.append(now)
            if on_look is not None:
                on_look(look)
    served = tuple(Served(*map(np.array, host.spans[model])) for model, host in enumerate(hosts))
    swaps = tuple(swap for host in shared for swap in host.swaps if swap.at < now)
    return Timeline(now, width, np.array(looks), served, swaps)


def _trials(asks: Iterable[Ask], tape: Tape, times: Times, cost: CostOf | None) -> Iterator[Trial]:
    """What comes of each ask, and how long it takes."""
    for ask in asks:
        category = tape.category(ask.model, ask.question, ask.trial)
        spent = NO_COST if cost is None else cost(ask.model, category)
        outcome = Outcome(ask.model, ask.question, ask.trial, category, spent)
        yield Trial(outcome, ask.round, times.of(ask, category))


def _everyones_hosts(slots: Sequence[int], shared: Sequence[Host]) -> list[Host]:
    of = {model: host for host in shared for model in host.models}
    return [of.get(model) or Host((model,), own) for model, own in enumerate(slots)]


def _end_of(oldest: _Round, later: dict[int, _Round], shared: Sequence[Host]) -> float:
    """When the oldest round ends, after every swap that begins before."""
    while shared and (host := min(shared, key=Host.due)).due() < oldest.end:
        for trial in host.swap():
            later.get(trial.round, oldest).waiting -= 1
    return oldest.end


def _end_at(cap: float, controller: Controller, rounds: Iterable[_Round]) -> None:
    """Tell what has come by the cap, which completes no round, and the time."""
    controller.tell(trial.outcome for one in rounds for trial in one.trials if trial.end < cap)
    controller.tick(cap)


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
