"""How far scores are off in the mean where a run ends early: of rankings, and of searches for the best.

A run ends when a difference looks large, or too small to be decided: so the mean over many runs of a score is not the
truth. The bias of a model is the mean of its error over the runs; the table has the largest over the models. Part of
each error was there at the first look, after the trials that every run has, and is 0 in the mean: with that as a
control variate the means are known better. The column "by chance alone" has the largest mean of runs in which each
error has either sign. Coverage is how often the score, with 1.96 sigma either way, holds the truth; (score -
truth)/sigma should have a standard deviation of 1.

    python benchmarks/bias.py [--quick] [--runs 400] [--json PATH]
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from replays import NORMAL, play
from scenarios import Scenario, all_recorded, simulated
from tables import arguments, at_least, markdown, publish

from adaptive_eval.core import Best
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.objectives import Baseline, Objective, Ranking
from adaptive_eval.study.fixed import first_outcomes
from scorio.moments import FloatArray

HEADER = (
    "set", "asked for", "runs", "largest bias, points", "by chance alone", "sd of an error, points", "over sigma",
    "coverage",
)  # fmt: skip
MIN_COVERAGE = 0.945
"""Least share of scores whose interval must hold the truth: 95% but for chance."""
ASKED: Mapping[str, Objective] = {
    "ranking": Ranking(),
    "best": Best(),
    "baseline": Baseline(5),
}
FLIPS = 200


class Errors(NamedTuple):
    """(runs, L): errors of the scores, in points."""

    ended: FloatArray
    first: FloatArray
    """Those at the first look."""
    sigma: FloatArray
    """The standard error that the run reports."""


def errors(scenario: Scenario, asked_for: str, runs: int) -> Errors:
    """Errors of whole runs."""
    plan = scenario.plan(trials=scenario.trials, objective=ASKED[asked_for])
    rows, horizon = [], np.array(scenario.cap)
    categories = np.arange(plan.bench.categories)
    for seed, run in enumerate(play(scenario, plan, runs)):
        first = first_outcomes(scenario.tape(seed), plan.bench.models, plan.bench.questions, scenario.trials.min)
        at_end, at_first = (
            estimate(counts, plan.bench.weights, plan.prior, horizon, bayes=False)
            for counts in (run.counts, (first[..., None] == categories).sum(axis=2))
        )
        rows.append((at_end.score, at_first.score, at_end.sigma()))
    columns = 100.0 * np.array(rows).swapaxes(0, 1)
    columns[:2] -= 100.0 * scenario.world.truth
    return Errors(*columns)


def without_first(of: FloatArray, first: FloatArray) -> FloatArray:
    """The errors (runs, L) without what goes with those of the first look, which are 0 in the mean."""
    deviation = first - first.mean(axis=0)
    slope = (of * deviation).sum(axis=0) / np.square(deviation).sum(axis=0)
    return np.asarray(of - slope * first)


def largest(of: FloatArray) -> float:
    """The mean error that is furthest from 0, of any model."""
    return float(np.abs(of.mean(axis=0)).max())


def by_chance(of: FloatArray) -> float:
    """What it is on average where each run's errors about their means have either sign."""
    rng, deviation = np.random.default_rng(1), of - of.mean(axis=0)
    return float(np.mean([largest(deviation * rng.choice([-1.0, 1.0], (len(of), 1))) for _ in range(FLIPS)]))


def main() -> None:
    options = arguments(__doc__, runs=400, quick_runs=60, data=True).parse_args()
    coins, shared, runs = simulated("coins"), simulated("shared_difficulty"), options.runs
    cases = [(coins, "ranking"), (coins, "best"), (coins, "baseline"), (shared, "ranking"), (shared, "best")]
    cases += [(aime, asked) for aime in all_recorded(options.data)[:1] for asked in ("ranking", "best")]
    rows, checks = [], []
    for scenario, asked in cases:
        result = errors(scenario, asked, runs)
        plain = without_first(result.ended, result.first)
        over_sigma = result.ended / result.sigma
        covered = float((np.abs(over_sigma) <= NORMAL).mean())
        biases = f"{largest(plain):.2f}", f"{by_chance(plain):.2f}"
        deviation, over = (float(np.sqrt(np.square(of).mean())) for of in (result.ended, over_sigma))
        spreads = f"{deviation:.2f}", f"{over:.3f}"
        rows.append((scenario.name, asked, runs, *biases, *spreads, f"{covered:.1%}"))
        checks.append(at_least(f"{scenario.name}, {asked}: coverage", covered, MIN_COVERAGE))
    publish(options, "Scores of runs that end early", __doc__, markdown(HEADER, rows), checks=checks)


if __name__ == "__main__":
    main()
