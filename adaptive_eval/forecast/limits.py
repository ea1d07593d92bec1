"""How close two models may be: the smallest gap that is called, and the smallest delta that certifies a tie."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from adaptive_eval.core import Budget, Plan, Verdict
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.familywise import first_call
from adaptive_eval.core.rules import Correctable, Precision, Rule
from adaptive_eval.forecast.simulated import Simulated
from adaptive_eval.forecast.types import Limits
from scorio.moments import FloatArray
from scorio.sinf.information import trial_variance

POWER = 0.80
"""The chance with which a gap is called, or a tie certified."""


def limits_of(runs: Sequence[Simulated], plan: Plan, chances: Sequence[FloatArray]) -> Limits:
    """What these runs of the plan could tell apart; `chances` (L, M, K) are of the worlds that delta is for."""
    if isinstance(plan.deciding_rule, Precision):
        return Limits(None, None, None)
    compared = [(one.gap, one.verdict == Verdict.RESOLVED) for run in runs for one in run.comparisons]
    if not compared:
        return Limits(None, None, None)
    gaps, called = np.array(compared, dtype=float).T
    deltas = [smallest_delta(plan, world) for world in chances]
    return Limits(smallest_gap(gaps, called), float(gaps.max()), float(np.median(deltas)))


def smallest_gap(gaps: FloatArray, called: FloatArray) -> float | None:
    """The gap from which on at least 80% are called, by isotonic regression of calls on gaps; None where none is.

    Larger gaps are called more often: the rising step function that is nearest to the calls (Barlow et al. 1972).
    """
    order = np.argsort(gaps, kind="stable")
    chance = isotonic_regression(called[order]).x
    first = int(np.searchsorted(chance, POWER))
    return float(gaps[order][first]) if first < len(order) else None


def smallest_delta(plan: Plan, chances: FloatArray) -> float:
    """The delta within which two equal models are certified as tied in 80%, with the budget spread evenly.

    A tie is certified when |d| + b s <= delta, and d of two equals is about N(0, s^2), so that delta = (b + 1.28) s; s
    is that of the median pair of the world (L, M, K), and b the boundary, after as many trials as everyone could have.
    """
    bench = plan.bench
    trials = min(plan.trials.max, affordable_trials(plan.budget, plan) / bench.questions)
    one_trial = trial_variance(chances, bench.weights).mean(axis=1) / bench.questions
    if plan.objective.reference is None:
        first, second = np.triu_indices(len(one_trial), 1)
        one_trial = one_trial[first] + one_trial[second]
    sigma = float(np.sqrt(np.median(one_trial) / trials))
    bound = float(_rule(plan).boundary(_equals(sigma, trials / plan.trials.max))[0])
    return (bound + float(ndtri((1.0 + POWER) / 2.0))) * sigma


def affordable_trials(budget: Budget, plan: Plan) -> float:
    """Trials of each model that a cap on trials pays for, spread evenly; at least the first round's."""
    bench = plan.bench
    least, most = plan.trials.min * bench.questions, plan.trials.max * bench.questions
    return float(np.clip(most if budget.trials is None else budget.trials / bench.models, least, most))


def _rule(plan: Plan) -> Rule:
    """The rule at the level of a first call."""
    rule = plan.deciding_rule
    if plan.judging.familywise and isinstance(rule, Correctable):
        return first_call(plan.objective, plan.bench.models, rule)
    return rule


def _equals(sigma: float, information: float) -> Evidence:
    """Two equal models."""
    zero, half = np.zeros(1), np.full(1, sigma / np.sqrt(2.0))
    return Evidence(
        models=2,
        against_reference=False,
        first=np.array([0]),
        second=np.array([1]),
        difference=zero,
        sigma=np.array([sigma]),
        sigma_first=half,
        sigma_second=half,
        z=zero,
        rho=np.full(1, 0.5),
        information=np.array([information]),
    )
