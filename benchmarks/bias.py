"""How far scores are off in the mean where a run ends early: of rankings, and of searches for the best.

A run ends when a difference looks large, or too small to be decided: so the mean over many runs of a score is not the
truth. The bias of a model is the mean of its error over the runs; the table has the largest over the models. Part of
each error was there at the first look, after the trials that every run has, and is 0 in the mean: with that as a
control variate the means are known better. The column "by chance alone" has the largest mean of runs in which each
error has either sign. Coverage is how often the score, with 1.96 sigma either way, holds the truth; (score -
truth)/sigma should have a standard deviation of 1.

    python benchmarks/bias.py [--quick] [--runs 400] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from stacked import play_stacked
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core import Best
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.objectives import Baseline, Objective, Ranking
from adaptive_eval.core.policies import Leader, Policy, Weighted

HEADER = (
    "set", "asked for", "runs", "largest bias, points", "by chance alone", "sd of an error, points", "over sigma",
    "coverage",
)  # fmt: skip
MIN_COVERAGE = 0.945
"""Least share of scores whose interval must hold the truth: 95% but for chance."""
ASKED: Mapping[str, tuple[Objective, Policy]] = {
    "ranking": (Ranking(), Weighted()),
    "best": (Best(), Leader()),
    "baseline": (Baseline(5), Weighted()),
}
FLIPS = 200
FloatArray = NDArray[np.float64]


class Errors(NamedTuple):
    """(runs, L): errors of the scores, in points."""

    ended: FloatArray
    first: FloatArray
    """Those at the first look."""
    sigma: FloatArray
    """The standard error that the run reports."""


def errors(scenario: Scenario, asked_for: str, runs: int) -> Errors:
    """Errors of whole runs."""
    objective, policy = ASKED[asked_for]
    plan = scenario.plan(trials=scenario.trials, objective=objective, policy=policy)
    rows, horizon = [], np.array(scenario.cap)
    for end, opened in play_stacked(scenario, plan, runs):
        at_end, at_first = (
            estimate(counts, plan.bench.weights, plan.prior, horizon, bayes=False) for counts in (end.counts, opened)
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


def spread(of: FloatArray) -> float:
    """The standard deviation about the truth, over all models."""
    return float(np.sqrt(np.square(of).mean()))


def coverage(of: FloatArray, sigma: FloatArray) -> float:
    """The share of scores within 1.96 sigma of the truth."""
    return float((np.abs(of) <= 1.959964 * sigma).mean())


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    add_data(parser)
    options = parser.parse_args()
    runs = 60 if options.quick else options.runs
    coins, shared = simulated("coins"), simulated("shared_difficulty")
    cases = [(coins, "ranking"), (coins, "best"), (coins, "baseline"), (shared, "ranking"), (shared, "best")]
    if options.data.exists():
        aime = recorded(options.data, "aime2024")
        cases += [(aime, "ranking"), (aime, "best")]
    rows, checks = [], []
    for scenario, asked in cases:
        result = errors(scenario, asked, runs)
        plain = without_first(result.ended, result.first)
        bias, covered = largest(plain), coverage(result.ended, result.sigma)
        rows.append((
            scenario.name, asked, runs, f"{bias:.2f}", f"{by_chance(plain):.2f}", f"{spread(result.ended):.2f}",
            f"{spread(result.ended / result.sigma):.3f}", f"{covered:.1%}",
        ))  # fmt: skip
        print(*rows[-1], flush=True)
        title = f"{scenario.name}, {asked}: coverage"
        checks.append(Check(title, round(covered, 3), f">= {MIN_COVERAGE}", covered >= MIN_COVERAGE))
    conclude(options, "Scores of runs that end early", __doc__.split("\n\n")[1], "seeded runs",
             markdown(HEADER, rows), checks)  # fmt: skip


if __name__ == "__main__":
    main()
