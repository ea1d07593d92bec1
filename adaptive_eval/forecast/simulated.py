"""One simulated run: the controller that a run would have, on answers drawn from a world."""

from collections.abc import Iterator, Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from adaptive_eval.core import Controller, Plan, Reason
from adaptive_eval.core.rules import Precision
from adaptive_eval.core.types import Ask, Cost, Verdict
from adaptive_eval.forecast.usage import Usage
from adaptive_eval.replay import Tape, drive_in_time
from adaptive_eval.replay.hosts import Host
from adaptive_eval.replay.layers import Layers
from scorio.moments import FloatArray, IntArray

DECIDED = (Verdict.RESOLVED, Verdict.TIED)


class Served(NamedTuple):
    """What trials take and cost: the same in every simulated run."""

    usage: Usage
    costs: Sequence[Sequence[Cost]]
    """By model and category."""
    slots: Sequence[int]
    """Requests at a time, by model."""
    recorded: IntArray | None = None
    """(L, M, N): categories of the trials that the run has already, -1 for none; they take no more time."""
    in_turn: Sequence[Sequence[int]] = ()
    """Groups of models that are served one at a time."""
    swap_seconds: float = 0.0
    """What it takes to bring another one of a group."""


class Ended(NamedTuple):
    """One of the objective's comparisons at the end of a simulated run."""

    better: int
    worse: int | None
    verdict: str
    gap: float
    """The true difference, without its sign; nan for the objective precision, which compares nothing."""
    trials_needed: float


class Simulated(NamedTuple):
    """What a simulated run cost and found; what the run had before it began is counted with it."""

    reason: str
    trials: int
    tokens: float
    usd: float
    gpu_seconds: float
    seconds: float
    comparisons: tuple[Ended, ...]

    @property
    def reached(self) -> bool:
        """The objective: every comparison is resolved or tied."""
        return self.reason == Reason.SETTLED

    @property
    def decided(self) -> int:
        """Comparisons that are resolved or tied."""
        return sum(one.verdict in DECIDED for one in self.comparisons)


def simulate(plan: Plan, chances: FloatArray, served: Served, seed: Sequence[int]) -> Simulated:
    """Run the plan in a world of these chances (L, M, K); the same seed gives the same answers under any plan."""
    controller, weights = Controller(plan), plan.bench.weights
    answers, delays = np.random.default_rng([*seed, 0]), np.random.default_rng([*seed, 1])
    if served.recorded is None:
        tape = Tape.of_chances(chances, weights, answers)
    else:
        tape = Tape.continued(served.recorded, chances, weights, answers)
    costs = served.costs
    times = _Seconds(served, plan.bench.questions, delays)
    timeline = drive_in_time(
        controller,
        tape,
        times,
        served.slots,
        shared=[Host(group, served.slots[group[0]], served.swap_seconds) for group in served.in_turn],
        cost=lambda model, category: costs[model][category],
    )
    assert controller.finished is not None
    counts = controller.arrived.sum(axis=1) + _not_needed(controller, served.recorded)
    tokens, usd, gpu_seconds = priced(counts, costs)
    truth = np.asarray((chances @ weights).mean(axis=1))
    return Simulated(
        reason=str(controller.finished),
        trials=int(counts.sum()),
        tokens=tokens,
        usd=usd,
        gpu_seconds=gpu_seconds,
        seconds=timeline.seconds,
        comparisons=tuple(_comparisons(controller, truth)),
    )


def priced(counts: IntArray, costs: Sequence[Sequence[Cost]]) -> tuple[float, float, float]:
    """Tokens, USD and GPU seconds of counts (L, K)."""
    tokens, usd, gpu_seconds = np.einsum("lk,lkc->c", counts, np.array(costs, dtype=float)).tolist()
    return tokens, usd, gpu_seconds


def tallied(recorded: IntArray, categories: int) -> IntArray:
    """Counts (L, K) of outcomes (L, M, N), -1 for none."""
    return np.stack([(recorded == category).sum(axis=(1, 2)) for category in range(categories)], axis=-1)


def _not_needed(controller: Controller, recorded: IntArray | None) -> IntArray:
    """Counts (L, K) of recorded trials that the run did not ask for; they are paid for all the same."""
    models, _, categories = controller.arrived.shape
    if recorded is None:
        return np.zeros((models, categories), dtype=np.int64)
    asked = np.arange(recorded.shape[2]) < controller.arrived.sum(axis=2)[..., None]
    return tallied(np.where(asked, -1, recorded), categories)


def _comparisons(controller: Controller, truth: FloatArray) -> Iterator[Ended]:
    """The comparisons of the last look; none where there was no look."""
    reference = controller.plan.objective.reference
    for pair in controller.looks[-1].comparisons if controller.looks else ():
        other = reference if pair.worse is None else truth[pair.worse]
        assert other is not None
        gap = nan if isinstance(controller.plan.deciding_rule, Precision) else abs(float(truth[pair.better] - other))
        yield Ended(pair.better, pair.worse, str(pair.verdict), gap, pair.trials_needed)


class _Seconds:
    """How long each trial takes, log-normal around its mean; nothing where it is recorded, or where nobody knows."""

    def __init__(self, served: Served, questions: int, rng: np.random.Generator) -> None:
        spread = served.usage.log_spread[:, None]
        self._medians: list[list[float]] = np.nan_to_num(served.usage.seconds * np.exp(-(spread**2) / 2.0)).tolist()
        self._factors = Layers[float](_factors(spread, questions, rng))
        self._recorded = served.recorded

    def of(self, ask: Ask, category: int) -> float:
        """The seconds of one trial."""
        model, question, trial, _ = ask
        recorded = self._recorded
        if recorded is not None and trial < recorded.shape[2] and recorded[model, question, trial] >= 0:
            return 0.0
        return self._medians[model][category] * self._factors.at(model, question, trial)


def _factors(spread: FloatArray, questions: int, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Layers (L, M) of log-normal factors with median 1."""
    while True:
        yield np.exp(spread * rng.standard_normal((len(spread), questions)))
