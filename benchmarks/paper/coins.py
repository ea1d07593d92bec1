"""How fast each metric finds the true order of the paper's eleven biased coins (section 2.7, Figure 1).

    python benchmarks/paper/coins.py [--quick] [--json PATH]

Mean Kendall's tau-b with the truth after N trials of 30 questions: over independent matrices of outcomes, and over
bootstraps of whole trials (columns) or of the trials of each question (rows). N trials resampled from 80 vary by
1/N + 1/80, so they are worth N' = 1 / (1/N + 1/80) new ones. A bootstrap describes its own matrix: only the mean over
many matrices equals that of independent ones.
"""

import sys
from pathlib import Path

import numpy as np

import scorio.eval
from adaptive_eval.simulate.worlds import COIN_MEANS, coins
from scorio.convergence import Metric, Study, tau_curve, tau_of_tensors
from scorio.moments import FloatArray, IntArray
from scorio.rank import rank_scores

sys.path.append(str(Path(__file__).parents[1]))
from tables import arguments, at_least, at_most, markdown, publish

TRIALS, LOOKS = 80, (10, 20, 40, 80)
AT_A_TIME = 50
DRAWS = {
    "Pass@2": Metric.of(scorio.eval.pass_at_k, k=2),
    "Pass@4": Metric.of(scorio.eval.pass_at_k, k=4),
    "Pass@8": Metric.of(scorio.eval.pass_at_k, k=8),
    "naive Pass^4": Metric.of(scorio.eval.naive_pass_hat_k, k=4),
    "G-Pass@4, tau 0.5": Metric.of(scorio.eval.g_pass_at_k_tau, k=4, tau=0.5),
    "mG-Pass@4": Metric.of(scorio.eval.mg_pass_at_k, k=4),
}
"""Metrics of k draws."""
BAYES = "Bayes@N, avg@N"
METRICS = {BAYES: Metric.of(scorio.eval.bayes), **DRAWS}


def matrices(number: int, rng: np.random.Generator) -> IntArray:
    """Independent outcomes (B, L, M, N) of the coins."""
    chances = coins().p[..., 1]
    return (rng.random((number, *chances.shape, TRIALS)) < chances[..., None]).astype(np.int8)


def independent(number: int) -> dict[str, FloatArray]:
    """Mean tau-b by metric after each N, from the metric's first N on, over independent matrices."""
    gold, rng = rank_scores(COIN_MEANS), np.random.default_rng([0, 0])
    totals = {name: np.zeros(TRIALS + 1 - metric.first) for name, metric in METRICS.items()}
    for done in range(0, number, AT_A_TIME):
        count = min(AT_A_TIME, number - done)
        tensors = matrices(count, rng)
        for name, metric in METRICS.items():
            totals[name] += count * tau_of_tensors(tensors, metric, gold).tau
    return {name: total / number for name, total in totals.items()}


def bootstrapped(number: int, replicates: int, scheme: str) -> FloatArray:
    """Mean tau-b of Bayes@N after each N, over bootstraps of matrices."""
    gold, rng, curves = rank_scores(COIN_MEANS), np.random.default_rng([0, 1]), []
    for matrix in range(number):
        study = Study.of(matrices(1, rng)[0], metric=METRICS[BAYES], gold=gold)
        curves.append(tau_curve(study, replicates, np.random.default_rng([0, 2, matrix]), scheme).tau)
    return np.asarray(np.mean(curves, axis=0))


def main() -> None:
    options = arguments(__doc__).parse_args()
    number, resampled, replicates = (100, 10, 40) if options.quick else (1000, 40, 250)
    alone = independent(number)
    curves = {scheme: bootstrapped(resampled, replicates, scheme) for scheme in ("columns", "rows")}
    n = np.arange(1, TRIALS + 1)
    worth = np.interp(1.0 / (1.0 / n + 1.0 / TRIALS), n, alone[BAYES])
    slack = 0.04 if options.quick else 0.01
    checks = []
    for look in LOOKS:
        best = max(float(curve[look - TRIALS - 1]) for name, curve in alone.items() if name != BAYES)
        lead = float(alone[BAYES][look - 1]) - best
        checks.append(at_least(f"N = {look}: Bayes@N over the best other", lead, -slack / 10, 4))
    for scheme, curve in curves.items():
        what = f"bootstrap by {scheme}: from as many new trials as it is worth, at most"
        checks.append(at_most(what, np.abs(curve - worth).max(), slack, 4))
    rows = [(name, *(float(curve[look - TRIALS - 1]) for look in LOOKS)) for name, curve in alone.items()]
    rows += [(f"Bayes@N, {scheme}", *(float(curve[look - 1]) for look in LOOKS)) for scheme, curve in curves.items()]
    table = markdown(("metric", *(f"N = {look}" for look in LOOKS)), rows)
    publish(options, "Coins", __doc__, table, checks=checks)


if __name__ == "__main__":
    main()
