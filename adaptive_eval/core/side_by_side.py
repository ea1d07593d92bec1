"""Several runs of one plan side by side: combining their state into one, and taking it apart again.

A look works on whole arrays, so that one at a hundred small runs takes hardly longer than one at a single run. Models
and pairs are numbered on from run to run (`Evidence.benches`); runs do not affect each other. With many models most
pairs are called early; if that latches, only the others are looked at again.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import IndexArray
from adaptive_eval.core.judge import LatchedVerdicts
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rules import judges_by_pair
from adaptive_eval.core.settings import Budget


def can_stand_side_by_side(plan: Plan) -> bool:
    """Whether runs of a plan can be looked at together: they go in step from nothing, only trials are capped, and no
    pair's judgement depends on other pairs."""
    alone = plan.judging.familywise or not judges_by_pair(plan.deciding_rule) or plan.objective.margin is not None
    begun = bool(plan.drawn) or plan.first is not None or plan.bench.prior_counts is not None or bool(plan.earlier)
    return plan.pace.in_step and not alone and not begun and replace(plan.budget, trials=None) == Budget()


def select_benches(values: Any, keep: NDArray[np.bool_], benches: int) -> Any:
    """Estimates or verdicts of the benches that are kept; every array has a row for each model or pair."""
    rows = np.repeat(keep, len(getattr(values, fields(values)[0].name)) // benches)
    return type(values)(**{one.name: getattr(values, one.name)[rows] for one in fields(values)})


def undecided(memory: LatchedVerdicts) -> IndexArray:
    """Positions of the pairs that are neither called nor tied; if verdicts latch, a look can change no others."""
    return np.flatnonzero((memory.call == 0) & ~memory.tie)


def select_pairs(memory: LatchedVerdicts, among: IndexArray) -> LatchedVerdicts:
    """The verdicts of the pairs at these positions."""
    return LatchedVerdicts(**{one.name: getattr(memory, one.name)[among] for one in fields(memory)})


def replace_pairs(memory: LatchedVerdicts, among: IndexArray, now: LatchedVerdicts) -> LatchedVerdicts:
    """The verdicts of all pairs, with those at these positions replaced by `now`."""
    merged = {one.name: getattr(memory, one.name).copy() for one in fields(memory)}
    for name, values in merged.items():
        values[among] = getattr(now, name)
    return LatchedVerdicts(**merged)
