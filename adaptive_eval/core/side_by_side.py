"""Several runs of one plan side by side: what is known of them as one, and taken apart again.

What a look does is done to whole arrays, so that a look at a hundred small runs takes hardly longer than one at a
single run. Models are numbered on from run to run, as the pairs are (`Evidence.benches`); nothing of one run bears on
another. Of many models most pairs are called early: where that latches, only the others are looked at again.
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
    """Whether runs of a plan can be looked at together: they go in step from nothing, nothing but trials is capped, and
    no pair's judgement depends on another's."""
    alone = plan.judging.familywise or not judges_by_pair(plan.deciding_rule) or plan.objective.margin is not None
    begun = bool(plan.drawn) or plan.first is not None or plan.bench.prior_counts is not None or bool(plan.earlier)
    return plan.pace.in_step and not alone and not begun and replace(plan.budget, trials=None) == Budget()


def some_of(values: Any, keep: NDArray[np.bool_], benches: int) -> Any:
    """Estimates, or a memory, of those benches that are kept: every array has a row for each model, or each pair."""
    rows = np.repeat(keep, len(getattr(values, fields(values)[0].name)) // benches)
    return type(values)(**{one.name: getattr(values, one.name)[rows] for one in fields(values)})


def undecided(memory: LatchedVerdicts) -> IndexArray:
    """Positions of the pairs that are neither called nor tied; where verdicts latch, a look changes no other."""
    return np.flatnonzero((memory.call == 0) & ~memory.tie)


def chosen(memory: LatchedVerdicts, among: IndexArray) -> LatchedVerdicts:
    """The memory of the pairs at these positions."""
    return LatchedVerdicts(**{one.name: getattr(memory, one.name)[among] for one in fields(memory)})


def with_chosen(memory: LatchedVerdicts, among: IndexArray, now: LatchedVerdicts) -> LatchedVerdicts:
    """The memory of all pairs, with what is now remembered of those that stand there."""
    merged = {one.name: getattr(memory, one.name).copy() for one in fields(memory)}
    for name, values in merged.items():
        values[among] = getattr(now, name)
    return LatchedVerdicts(**merged)
