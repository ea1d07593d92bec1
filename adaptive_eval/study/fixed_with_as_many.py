"""A run compared with the smallest fixed number of trials that calls as many pairs.

The maximum of trials for every model calls more pairs than a run that gives up on some, so a share of its cost says
little. Here the number is chosen with hindsight: the smallest N at which one look, at the confidence of the run, calls
as many neighbours on average over the same worlds, with the same answers. Nobody can choose it in advance, which makes
it the hardest fixed design to beat.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from adaptive_eval.core import Plan, Verdict
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.study.one_look import evaluate_one_look, smallest_fixed
from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.simulated import SimulatedRun, tape_of_world
from adaptive_eval.study.types import FixedWithAsMany
from scorio.moments import FloatArray

MOST_WORLDS = 20
MOST_TRIALS = 2_000_000
"""Trials of all these worlds together; the fixed design is evaluated after each of its trials."""


def fixed_with_as_many(
    plan: Plan,
    worlds: Sequence[FloatArray],
    runs: Sequence[SimulatedRun],
    served: ServiceCosts,
    seed: int,
    confidence: float,
) -> FixedWithAsMany | None:
    """The smallest fixed design, and the runs' cost relative to it; None if the objective does not compare neighbours,
    outcomes are known beforehand, or it would take too long."""
    bench, most = plan.bench, plan.trials.max
    few = min(len(runs), MOST_WORLDS, MOST_TRIALS // (bench.models * bench.questions * most))
    begun = plan.drawn or plan.first is not None or bench.prior_counts is not None
    if not isinstance(plan.objective, Ranking) or bench.models < 2 or begun or few == 0:
        return None
    curves = [
        evaluate_one_look(
            tape_of_world(plan, world, served, (seed, number)),
            bench.mean(world @ bench.weights),
            bench.questions,
            most,
            float(ndtri(confidence)),
            bench.question_weights,
        ).called
        for number, world in enumerate(worlds[:few])
    ]
    called = float(np.mean([sum(one.verdict == Verdict.RESOLVED for one in run.comparisons) for run in runs[:few]]))
    trials = float(np.mean([run.trials for run in runs[:few]]))
    number = smallest_fixed(np.mean(curves, axis=0), called)
    cost = bench.models * bench.questions * (most if number is None else number)
    return FixedWithAsMany(number, called, trials / cost, few)
