"""How far scores are off in the mean where a run ends early, as they are and corrected: of rankings, and of searches.

A run ends when a difference looks large, or too small to be decided: so the mean over many runs of a score is not the
truth. Of each model that is the mean of its error over the runs; told is the largest over the models. Beside it stands
the same of the corrected score (`core/early_stop.py`), which results have too. Part of each error was there at the
first look, after the trials that every run has, and is 0 in the mean: with that as a control variate the means are
known better, and what is left of chance stands beside them: the largest mean of runs in which each error has either
sign. Coverage is how often score and corrected score, with 1.96 sigma either way, hold the truth; "over sigma" is what
(score - truth)/sigma spreads by about 0, which should be 1. The replays say what that is for each run: "by its spread"
has sigma times it in the place of sigma.

A second step was tried by hand, which plays the run once more from the corrected scores and corrects by what that
finds: on 160 runs of the coins' ranking the largest bias went from 0.233 to 0.229 points (by chance alone 0.205), so
that one step has what there is.

    python benchmarks/bias.py [--quick] [--runs 400] [--json PATH] [--markdown PATH]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenarios import Scenario, recorded, simulated
from stacked import play_stacked
from tables import Check, add_data, arguments, conclude, markdown

from adaptive_eval.core import Best
from adaptive_eval.core.early_stop import REPLAYS, EndedRun
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.objectives import Baseline, Objective, Ranking
from adaptive_eval.core.policies import Leader, Policy, Weighted

HEADER = (
    "set", "asked for", "runs", "largest bias, points", "corrected", "by chance alone", "sd of an error, points",
    "corrected", "over sigma", "corrected", "over its spread", "coverage", "corrected", "by its spread",
)  # fmt: skip
GOALS = {"ranking": 0.2, "best": 0.3}
ASKED: Mapping[str, tuple[Objective, Policy]] = {
    "ranking": (Ranking(), Weighted()),
    "best": (Best(), Leader()),
    "baseline": (Baseline(5), Weighted()),
}
CLOSEST, FEWER = ("coins", "ranking"), 3
"""What comes closest to its goal, and how many times fewer runs all others have."""
FLIPS = 200
FloatArray = NDArray[np.float64]


class Errors(NamedTuple):
    """(runs, L): of the scores, in points."""

    ended: FloatArray
    corrected: FloatArray
    first: FloatArray
    """Those at the first look."""
    sigma: FloatArray
    """What the run takes the first ones to spread by."""
    reported: FloatArray
    """What its replays say that they spread by."""


def errors(scenario: Scenario, asked_for: str, runs: int) -> Errors:
    """Those of so many whole runs."""
    objective, policy = ASKED[asked_for]
    plan = scenario.plan(trials=scenario.trials, objective=objective, policy=policy)
    rows, horizon = [], np.array(scenario.cap)
    for end, opened in play_stacked(scenario, plan, runs):
        at_end, at_first = (
            estimate(counts, plan.bench.weights, plan.prior, horizon, bayes=False) for counts in (end.counts, opened)
        )
        run = EndedRun(plan, end.counts, end.reason, math.inf, set_aside=False, judged=np.ones(len(end.counts)))
        again, sigma = run.replay(REPLAYS), at_end.sigma()
        rows.append((at_end.score, at_end.score - again.shift, at_first.score, sigma, again.spread * sigma))
    columns = 100.0 * np.array(rows).swapaxes(0, 1)
    columns[:3] -= 100.0 * scenario.world.truth
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


def covered(of: FloatArray, sigma: FloatArray) -> str:
    return f"{(np.abs(of) <= 1.959964 * sigma).mean():.1%}"


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
        number = runs if (scenario.name, asked) == CLOSEST else runs // FEWER
        result = errors(scenario, asked, number)
        plain, corrected = (without_first(values, result.first) for values in (result.ended, result.corrected))
        pairs = ((result.ended, result.sigma), (result.corrected, result.sigma), (result.ended, result.reported))
        rows.append((
            scenario.name, asked, number,
            f"{largest(plain):.2f}", f"{largest(corrected):.2f}", f"{by_chance(corrected):.2f}",
            f"{spread(result.ended):.2f}", f"{spread(result.corrected):.2f}",
            *(f"{spread(of / by):.3f}" for of, by in pairs), *(covered(of, by) for of, by in pairs),
        ))  # fmt: skip
        print(*rows[-1], flush=True)
        for what, bias in (("score", largest(plain)), ("corrected", largest(corrected))):
            if asked in GOALS:
                title = f"{scenario.name}, {asked}, {what}: largest bias, points"
                checks.append(Check(title, round(bias, 2), f"< {GOALS[asked]}", bias < GOALS[asked]))
    conclude(options, "Scores of runs that end early", "\n\n".join(__doc__.split("\n\n")[1:3]), "seeded runs",
             markdown(HEADER, rows), checks)  # fmt: skip


if __name__ == "__main__":
    main()
