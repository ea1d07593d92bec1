"""Many replays of one plan side by side, by the same decisions as one controller each, in a hundredth of the time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario

from adaptive_eval.core import Plan
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.stack import MAX_CELLS, RunStack, StackedEnd, SummedTapes, can_stand_side_by_side
from adaptive_eval.core.types import Verdict
from scorio.moments import IntArray

EQUAL = 1e-12
FloatArray = NDArray[np.float64]


class Played(NamedTuple):
    """One replay: how it ended, and the counts (L, M, K) of its first look."""

    end: StackedEnd
    opened: IntArray


@dataclass(frozen=True)
class Ended:
    """How the replays of one setup ended; arrays have a row for each run."""

    scenario: Scenario
    setup: str
    share: FloatArray
    """Of the trials of the fixed design."""
    called: FloatArray
    """Neighbours that were told apart."""
    misordered: NDArray[np.bool_]
    """A neighbour of another score was called the wrong way."""
    parted: NDArray[np.bool_]
    """Exactly equal neighbours were told apart."""
    ties: NDArray[np.int_]
    """(runs, 2): how many neighbours are exactly equal, and how many of these were told apart."""
    errors: FloatArray
    """(runs, L)."""
    standardised: FloatArray
    """(runs, L)."""

    @property
    def wrong(self) -> float:
        """The share of runs with a wrong call of either kind."""
        return float((self.misordered | self.parted).mean())

    @property
    def ties_called(self) -> float:
        """The share of exactly equal neighbours that were told apart."""
        equal, parted = self.ties.sum(axis=0)
        return float(parted / max(equal, 1))

    @property
    def bias(self) -> float:
        """The largest mean error of a score over the models, in points."""
        return float(100.0 * np.abs(self.errors.mean(axis=0)).max())

    @property
    def cost(self) -> float:
        return float(self.share.mean())


def replay_stacked(scenario: Scenario, setup: str, runs: int, **choices: Any) -> Ended:
    """Seeded replays of the scenario with the plan's defaults but for the choices."""
    plan = scenario.plan(**{"trials": scenario.trials, **choices})
    return _judged(scenario, setup, plan, [run.end for run in play_stacked(scenario, plan, runs)])


def play_stacked(scenario: Scenario, plan: Plan, runs: int) -> list[Played]:
    """Seeded replays of a plan that can stand side by side; raises `ValueError` for any other."""
    if not can_stand_side_by_side(plan):
        raise ValueError(f"{plan.deciding_rule} or {plan.judging} needs a controller for each run")
    models, questions, _ = scenario.world.p.shape
    at_once = max(MAX_CELLS // (models * questions), 1)
    played: list[Played] = []
    for begin in range(0, runs, at_once):
        played += _side_by_side(scenario, plan, range(begin, min(begin + at_once, runs)))
    return played


def _side_by_side(scenario: Scenario, plan: Plan, seeds: Sequence[int]) -> list[Played]:
    bench = plan.bench
    tapes = SummedTapes([scenario.tape(seed) for seed in seeds], bench.categories)
    ends = RunStack(plan, tapes, len(seeds)).ends()
    opened = tapes.counts(np.arange(len(seeds) * bench.models), np.tile(plan.opening, (len(seeds), 1)))
    return list(map(Played, ends, opened.reshape(len(seeds), bench.models, bench.questions, bench.categories)))


def _judged(scenario: Scenario, setup: str, plan: Plan, ends: Sequence[StackedEnd]) -> Ended:
    truth = scenario.world.truth
    counts = np.stack([end.counts for end in ends])
    estimates = estimate(counts.reshape(-1, *counts.shape[2:]), plan.bench.weights, plan.prior, np.array(scenario.cap))
    errors = estimates.score.reshape(len(ends), -1) - truth
    leads = [
        [
            float(truth[pair.first] - truth[pair.second])
            for pair in end.comparisons
            if pair.verdict is Verdict.RESOLVED and not pair.reversed and pair.second is not None
        ]
        for end in ends
    ]
    equal = [
        [
            pair.verdict is Verdict.RESOLVED
            for pair in end.comparisons
            if pair.second is not None and abs(truth[pair.first] - truth[pair.second]) <= EQUAL
        ]
        for end in ends
    ]
    return Ended(
        scenario=scenario,
        setup=setup,
        share=counts.sum(axis=(1, 2, 3)) / (truth.size * plan.bench.questions * scenario.cap),
        called=np.array([len(run) for run in leads], dtype=float),
        misordered=np.array([any(lead < -EQUAL for lead in run) for run in leads]),
        parted=np.array([any(abs(lead) <= EQUAL for lead in run) for run in leads]),
        ties=np.array([(len(run), sum(run)) for run in equal]),
        errors=errors,
        standardised=errors / estimates.sigma().reshape(errors.shape),
    )
