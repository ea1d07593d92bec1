"""How many trials a pair needs before it can be decided, and the next round of a model that follows from that.

A pair is decided when |z| reaches the boundary, or it is certified as tied, or given up. Today's difference d says
which comes first: with u times the trials, z grows to z sqrt(u) if d is the true difference, and falls to z/sqrt(u) if
there is none. Near a decision u is little above 1 and the next round small; far from one the round is large. A boundary
that holds at any schedule of looks allows that.
"""

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import BoolArray, Judging, after, forecast_power
from adaptive_eval.core.rules import Rule, is_giving_up, judges_by_pair, tie_boundary
from scorio.moments import FloatArray
from scorio.sinf.compare import tied

STEPS = 12
"""Multiples of today's trials to try, in equal ratios up to the horizon."""


def times_to_decision(
    evidence: Evidence, rule: Rule, judging: Judging, at: NDArray[np.intp] | None = None
) -> FloatArray:
    """The smallest multiple u >= 1 of today's trials at which each pair may be decided; at most the horizon's.

    For all pairs, or for those at these positions.
    """
    if at is not None:
        if not judges_by_pair(rule):
            return np.asarray(times_to_decision(evidence, rule, judging)[at])
        evidence = evidence.at_positions(at)
    most = 1.0 / np.clip(evidence.information, 1e-6, 1.0)
    times, futility = most.copy(), judging.futility_under(rule, evidence)
    found = np.zeros(len(most), dtype=bool)
    for step in range(1, STEPS + 1):
        u = most ** (step / STEPS)
        same = after(evidence, u)
        bound = rule.boundary(same)
        ends = np.abs(same.z) >= bound
        ends |= tied(same.difference, same.sigma, tie_boundary(rule, same, bound), judging.delta)
        equal = after(evidence, u, drift=False)
        if is_giving_up(rule):
            ends |= rule.gives_up(equal)
        if futility is not None:
            ends |= _given_up(equal, rule, judging.delta, futility)
        times = np.where(ends & ~found, u, times)
        found |= ends
    return times


def _given_up(evidence: Evidence, rule: Rule, delta: float, futility: float) -> BoolArray:
    left = np.maximum(1.0 - evidence.information, 0.0)
    return np.asarray(forecast_power(evidence, rule, delta, np.ones_like(left)) < futility * left)
