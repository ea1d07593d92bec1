"""Coverage of 95% intervals of a score (paper, section 2.6): the credible interval and its alternatives.

    python benchmarks/paper/intervals.py [--quick] [--json PATH]

The true score is the mean probability of M questions, which are drawn for each model around the means of the coins.
The credible intervals of Bayes@N and of avg@N are compared with intervals from the central limit theorem (CLT) and
percentile bootstraps: of trials within each question, and of questions, as on leaderboards. The latter answer another
question, how well the model does on similar questions, and are wide. Bayes@N is drawn to 1/2 by its uniform prior, by
(1/2 - p) 2/(N + 2), and misses the truth if there are many questions and few trials.
"""

import sys
from pathlib import Path

import numpy as np

from adaptive_eval.simulate.worlds import COIN_CONCENTRATION, COIN_MEANS
from scorio.counts import Counts
from scorio.eval import avg_ci, bayes_ci
from scorio.moments import FloatArray, IntArray

sys.path.append(str(Path(__file__).parents[1]))
from tables import arguments, at_least, markdown, publish

QUESTIONS, TRIALS = (15, 30, 100), (1, 4, 16, 80)
RESAMPLED, AT_A_TIME, Z = 200, 100, 1.959964
KINDS = (
    "Bayes@N, credible",
    "avg@N, credible",
    "CLT, trials",
    "bootstrap, trials",
    "CLT, questions",
    "bootstrap, questions",
)


def all_intervals(right: IntArray, n: int, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Both ends (2, B) of every kind of interval, from right answers (B, M) in n trials of each question."""
    counts = Counts(np.stack([n - right, right], axis=-1), np.array([0.0, 1.0]))
    share, m = right / n, right.shape[1]
    centre = share.mean(axis=1)
    within = np.sqrt((share * (1.0 - share)).sum(axis=1) / n) / m
    between = share.std(axis=1, ddof=1) / np.sqrt(m)
    again = rng.binomial(n, share, (RESAMPLED, *share.shape)).mean(axis=-1) / n
    picked = rng.multinomial(m, np.full(m, 1.0 / m), (RESAMPLED, len(right)))
    ends = (
        np.array(bayes_ci(counts, bounds=None)[2:]),
        np.array(avg_ci(counts, bounds=None)[2:]),
        np.array([centre - Z * within, centre + Z * within]),
        np.quantile(again, (0.025, 0.975), axis=0),
        np.array([centre - Z * between, centre + Z * between]),
        np.quantile((picked * share).sum(axis=-1) / m, (0.025, 0.975), axis=0),
    )
    return dict(zip(KINDS, ends, strict=True))


def coverage(m: int, n: int, models: int) -> dict[str, float]:
    """Share of intervals that hold the truth, by kind, with m questions and n trials."""
    rng, held = np.random.default_rng([0, m, n]), dict.fromkeys(KINDS, 0)
    for _ in range(models // AT_A_TIME):
        mean = rng.choice(COIN_MEANS, (AT_A_TIME, 1))
        chances = rng.beta(mean * COIN_CONCENTRATION, (1.0 - mean) * COIN_CONCENTRATION, (AT_A_TIME, m))
        truth = chances.mean(axis=1)
        for kind, (low, high) in all_intervals(rng.binomial(n, chances), n, rng).items():
            held[kind] += int(np.sum((low <= truth) & (truth <= high)))
    return {kind: number / models for kind, number in held.items()}


def main() -> None:
    options = arguments(__doc__).parse_args()
    models = 200 if options.quick else 1000
    held = {(m, n): coverage(m, n, models) for m in QUESTIONS for n in TRIALS}
    bound = 0.95 - 3.0 * (0.95 * 0.05 / models) ** 0.5
    checks = [at_least(f"avg@N, M = {m}, N = {n}", by["avg@N, credible"], bound) for (m, n), by in held.items()]
    rows = [(kind, m, *(held[m, n][kind] for n in TRIALS)) for m in QUESTIONS for kind in KINDS]
    table = markdown(("interval", "M", *(f"N = {n}" for n in TRIALS)), rows)
    publish(options, "Intervals", __doc__, table, checks=checks)


if __name__ == "__main__":
    main()
