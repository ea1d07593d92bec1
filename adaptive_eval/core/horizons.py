"""How large a horizon would probably decide a pair: the advice for runs that end with undecided pairs.

A larger horizon spends only the error that a pair has left, and makes its boundary stricter. So the advice follows from
the rule as it would go on (`stages.extended`), not from the boundary of this horizon.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Evidence, IndexArray
from adaptive_eval.core.judge import forecast_power
from adaptive_eval.core.look import JudgedLook
from adaptive_eval.core.pair_trials import information_from, trials_for
from adaptive_eval.core.rules import judges_by_pair
from adaptive_eval.core.stages import extended
from scorio.moments import FloatArray

if TYPE_CHECKING:
    from adaptive_eval.core.look_taker import LookTaker

BoolArray = NDArray[np.bool_]
LIKELY = 0.7
"""The chance of being settled that a horizon must give if all differences were equally likely beforehand. Of close
pairs of two models, it decided 30 of 32, 33 of 45 and 10 of 53 with true differences of 5, 3 and 1.5 points."""
MAX_TIMES, MAX_TRIALS = 20, 1000
"""No `trials.max` is advised that is more than so many times the first one, and more than so many trials."""
LEAST_INFORMATION = 1e-9
"""Information that counts as none."""
STEPS = 6
"""Halvings of the range of horizons on a log scale, which then are found to within a tenth."""


def deciding_horizons(taker: "LookTaker", look: JudgedLook, at: IndexArray) -> FloatArray:
    """The least `trials.max` that would probably decide each pair at these positions; infinite if no plausible one."""
    plan = taker.plan
    if not taker.evidence or plan.drawn or not len(at):
        return np.full(len(at), np.inf)
    rule, looks, fixed = look.rule, taker.evidence, look.fixed
    state = replace(look.evidence, unknown=look.cautious.unknown)
    _, readings = taker.read_evidence()
    unknown = _moved_by_unknown(readings)
    if judges_by_pair(rule):
        looks, state = [each.at_positions(at) for each in looks], state.at_positions(at)
        fixed, unknown, at = fixed[at], unknown[at], np.arange(len(at))

    def is_enough(times: FloatArray) -> BoolArray:
        now = _under_horizon(state, fixed, times)
        later = extended(rule, looks, now, plan.judging.delta)
        power = forecast_power(now, later, plan.judging.delta, np.ones(len(times)), unknown=unknown)
        return np.asarray(power >= LIKELY)

    begun = taker.extensions[0].before if taker.extensions else plan.trials.max
    most = max(MAX_TIMES * begun, MAX_TRIALS) / plan.trials.max
    low, high = np.ones(len(fixed)), np.full(len(fixed), max(most, 1.0))
    reachable, high = is_enough(high), np.where(is_enough(low), low, high)
    for _ in range(STEPS):
        middle = np.sqrt(low * high)
        enough = is_enough(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reachable, np.ceil(plan.trials.max * high), np.inf)[at]


def _moved_by_unknown(readings: Sequence[Evidence]) -> FloatArray:
    """How far ungraded and incomplete answers could move each difference, by the readings of the evidence."""
    differences = np.stack([reading.difference for reading in readings])
    return np.asarray(np.abs(differences - differences[0]).max(axis=0))


def _under_horizon(evidence: Evidence, fixed: FloatArray, times: FloatArray) -> Evidence:
    """The evidence with its information under a `trials.max` that is so many times as large."""
    growth = trials_for(1.0 / np.clip(evidence.information, LEAST_INFORMATION, 1.0), fixed)
    return replace(evidence, information=1.0 / information_from(growth * times, fixed))
