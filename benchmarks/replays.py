"""Many replays of one plan, and their figures."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scenarios import Scenario

from adaptive_eval.core import Controller, Plan
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.types import Verdict
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import EQUAL
from scorio.moments import FloatArray

NORMAL = 1.959964
"""Standard errors of a 95% interval, either way."""


class Ended(NamedTuple):
    """How the replays of a plan ended."""

    cost: float
    """Mean share of the fixed design's trials."""
    called: float
    """Mean number of neighbours that were told apart."""
    wrong: float
    """Share of runs in which a neighbour was called in the wrong order, or told apart from an equal one."""
    ties_called: float
    """Share of exactly equal neighbours that were told apart."""
    coverage: float
    """Share of 95% intervals that contain the truth."""
    bias: float
    """The largest mean error of a score over the models, in points."""


def replay_all(scenario: Scenario, runs: int, **choices: Any) -> Ended:
    """Seeded replays of the scenario with the plan's defaults but for the choices."""
    plan, truth = scenario.plan(**{"trials": scenario.trials, **choices}), scenario.world.truth
    ends = [*play(scenario, plan, runs)]
    counts = np.stack([end.counts for end in ends])
    estimates = estimate(counts.reshape(-1, *counts.shape[2:]), plan.bench.weights, plan.prior, np.array(scenario.cap))
    errors = estimates.score.reshape(len(ends), -1) - truth
    called, wrong, equal, equal_called = np.array([_calls(end, truth) for end in ends]).T
    return Ended(
        cost=float(counts.sum()) / (counts[..., 0].size * scenario.cap),
        called=float(called.mean()),
        wrong=float(wrong.mean()),
        ties_called=float(equal_called.sum() / max(equal.sum(), 1)),
        coverage=float((np.abs(errors) <= NORMAL * estimates.sigma().reshape(errors.shape)).mean()),
        bias=100.0 * float(np.abs(errors.mean(axis=0)).max()),
    )


def _calls(end: Controller, truth: FloatArray) -> tuple[int, bool, int, int]:
    """Calls of a run, whether any is wrong, its neighbours that are exactly equal, and those of them with a winner."""
    look = end.latest_look()
    assert look is not None
    pairs = [
        (pair, float(truth[pair.first] - truth[pair.second])) for pair in look.comparisons if pair.second is not None
    ]
    resolved = [(pair, lead) for pair, lead in pairs if pair.verdict is Verdict.RESOLVED]
    called = [lead for pair, lead in resolved if not pair.reversed]
    equal, equal_called = (sum(abs(lead) <= EQUAL for _, lead in of) for of in (pairs, resolved))
    return len(called), any(lead <= EQUAL for lead in called), equal, equal_called


def play(scenario: Scenario, plan: Plan, runs: int) -> Iterator[Controller]:
    """Seeded replays of a plan."""
    return (drive_rounds(Controller(plan, keep_looks=False), scenario.tape(seed)) for seed in range(runs))
