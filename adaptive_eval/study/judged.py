"""Compares a replay with the truth: its wrong calls, and its cost."""

from typing import NamedTuple

import numpy as np

from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rules import is_lenient
from adaptive_eval.core.types import PairVerdict, Verdict
from scorio.moments import FloatArray
from scorio.rank.order import pair_signs, tau_b

EQUAL = 1e-12
"""True scores this close are equal: the difference is rounding."""


class JudgedReplay(NamedTuple):
    """Cost, calls and errors of a replay."""

    seed: int
    reason: str
    trials: int
    cost: float
    """Trials as a share of the maximum for every model."""
    looks: int
    called: int
    """Comparisons that are resolved in today's direction."""
    tied: int
    out_of_reach: int
    wrong: int
    """Calls for the model that is truly worse or equal, or if the rule has a margin, worse by that; for the choice of
    the cheapest, 1 if the model chosen is behind the best by more than delta."""
    covered: float
    """The share of models whose 95% interval contains the true score."""
    tau_b: float
    """Kendall's tau-b of the scores with the true ones."""


def judge_replay(seed: int, controller: Controller, truth: FloatArray, means: FloatArray | None = None) -> JudgedReplay:
    """Compare a replay that has had a look with the truth; gates of benchmarks need the true `means` (L, M)."""
    result = controller.result()
    if result is None:
        raise ValueError("a replay is judged after its first look, but it has had none; raise its budget")
    pairs = [comparison.verdict for comparison in result.comparisons]
    calls = [pair for pair in pairs if pair.verdict is Verdict.RESOLVED and not pair.reversed]
    plan, rule = controller.plan, controller.plan.deciding_rule
    reference, compared = plan.objective.reference, compared_scores(plan, truth, means)
    margin = rule.margin if is_lenient(rule) else 0.0
    wrong = sum(is_wrong(pair, compared, reference, margin) for pair in calls)
    if result.costs and plan.objective.margin is not None:
        weakest = truth.max() - plan.objective.margin.delta - EQUAL
        wrong = sum(row.part is Part.CHOSEN and bool(truth[row.model] < weakest) for row in result.costs)
    scores = np.empty(len(truth))
    scores[[row.model for row in result.models]] = [row.score for row in result.models]
    return JudgedReplay(
        seed=seed,
        reason=str(result.reason),
        trials=(asked := int(controller.arrived.sum())),
        cost=asked / result.fixed_trials,
        looks=len(controller.looks),
        called=len(calls),
        tied=sum(pair.verdict is Verdict.TIED for pair in pairs),
        out_of_reach=sum(pair.verdict is Verdict.OUT_OF_REACH for pair in pairs),
        wrong=wrong,
        covered=float(np.mean([row.lo <= truth[row.model] <= row.hi for row in result.models], dtype=float)),
        tau_b=float(tau_b(pair_signs(scores, EQUAL), pair_signs(truth, EQUAL))),
    )


def compared_scores(plan: Plan, truth: FloatArray, means: FloatArray | None = None) -> FloatArray:
    """True scores (L,) as the objective compares them; if benchmarks have gates of their own, on the gate that each
    model is closest to failing, or fails most."""
    margin, bench = plan.objective.margin, plan.bench
    if margin is None or margin.baseline is None:
        return truth
    applied = margin.applied(truth)
    if not bench.gates:
        return applied
    ahead = applied - applied[margin.baseline]
    for label, delta in bench.gates:
        assert means is not None
        part = means[:, bench.benchmark_of == label].mean(axis=1)
        ahead = np.minimum(ahead, part - part[margin.baseline] + delta)
    return np.asarray(applied[margin.baseline] + ahead)


def is_wrong(call: PairVerdict, truth: FloatArray, reference: float | None = None, margin: float = 0.0) -> bool:
    """Whether a call names the worse model, or one of two equal ones; with a margin, one that is worse by that or more.

    `reference` is the fixed value to compare with."""
    return bool(np.sign(call.z) * true_lead(call, truth, reference) <= EQUAL - margin)


def true_lead(pair: PairVerdict, truth: FloatArray, reference: float | None) -> float:
    """The true difference of a comparison."""
    other = reference if pair.second is None else truth[pair.second]
    assert other is not None
    return float(truth[pair.first] - other)
