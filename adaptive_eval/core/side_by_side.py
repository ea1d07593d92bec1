"""Several runs of one plan side by side: what is known of them as one, and taken apart again.

What a look does is done to whole arrays, so that a look at a hundred small runs takes hardly longer than one at a
single run. Models are numbered on from run to run, as the pairs are (`Evidence.benches`); nothing of one run bears on
another.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates, Evidence, IndexArray
from adaptive_eval.core.judge import LatchedVerdicts, PairForecast
from adaptive_eval.core.look import JudgedLook
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.rules import judges_by_pair
from adaptive_eval.core.settings import Budget


def can_stand_side_by_side(plan: Plan) -> bool:
    """Whether runs of a plan can be looked at together: they go in step from nothing, nothing but trials is capped, and
    no pair's judgement depends on another's."""
    alone = plan.judging.familywise or not judges_by_pair(plan.deciding_rule) or plan.objective.margin is not None
    begun = plan.first is not None or plan.bench.prior_counts is not None or bool(plan.earlier)
    return plan.pace.in_step and not alone and not begun and replace(plan.budget, trials=None) == Budget()


def some_of(values: Any, keep: NDArray[np.bool_], benches: int) -> Any:
    """Estimates, or a memory, of those benches that are kept: every array has a row for each model, or each pair."""
    rows = np.repeat(keep, len(getattr(values, fields(values)[0].name)) // benches)
    return type(values)(**{one.name: getattr(values, one.name)[rows] for one in fields(values)})


def bench_of(look: JudgedLook, number: int) -> JudgedLook:
    """What the look found on one of its benches, as if that had been looked at alone."""
    evidence = look.evidence
    models, begins = evidence.models, number * evidence.models
    chosen = slice(number * (len(evidence.z) // evidence.benches), (number + 1) * (len(evidence.z) // evidence.benches))
    mine = look.pairs[:, 0] // models == number
    reference = models * evidence.benches

    def own(pairs: IndexArray) -> IndexArray:
        return np.where(pairs == reference, models, pairs - begins) if evidence.against_reference else pairs - begins

    def among_all(pairs: IndexArray) -> IndexArray:
        return np.where(pairs == models, reference, pairs + begins) if evidence.against_reference else pairs + begins

    def alone(of: Evidence) -> Evidence:
        arrays = {name: getattr(of, name)[chosen] for name in ("difference", "sigma", "sigma_first", "sigma_second")}
        arrays |= {name: getattr(of, name)[chosen] for name in ("z", "information")}
        first, second = own(of.first[chosen]), own(of.second[chosen])
        return Evidence(models, of.against_reference, first, second, **arrays)

    ahead, memory, estimates = look.forecast, look.memory, look.estimates
    cautious = alone(look.cautious)
    return JudgedLook(
        estimates=Estimates(
            **{one.name: getattr(estimates, one.name)[begins : begins + models] for one in fields(estimates)}
        ),
        evidence=alone(evidence),
        memory=LatchedVerdicts(**{one.name: getattr(memory, one.name)[chosen] for one in fields(memory)}),
        rule=look.rule,
        forecast=PairForecast(
            evidence=cautious,
            delta=ahead.delta,
            horizon=ahead.horizon[chosen],
            boundary=ahead.boundary[chosen],
            tie_boundary=ahead.tie_boundary[chosen],
            certifiable=ahead.certifiable[chosen],
            given_up=ahead.given_up[chosen],
        ),
        cautious=cautious,
        order=look.order[begins : begins + models] - begins,
        pairs=own(look.pairs[mine]),
        verdicts=look.verdicts[mine],
        compares=look.compares,
        verdicts_of=lambda pairs: look.verdicts_of(among_all(pairs)),
        fixed=look.fixed[chosen],
    )
