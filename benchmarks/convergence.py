"""How fast the convergence study runs, and what it shows on the paper's biased coins.

    python benchmarks/convergence.py [--quick] [--json PATH] [--markdown PATH]

The world: 11 models with the true means of the paper's section 2.7 (two of them tied), 30 questions, 80 trials.
"""

import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata
from tables import Check, arguments, check_table, machine, markdown, publish

import scorio.eval
from adaptive_eval.simulate.worlds import COIN_MEANS
from adaptive_eval.study.coins import TRIALS, coin_outcomes
from scorio.convergence import NEVER, Metric, Study, convergence_at_n, tau_curve

SEED = 20250

METRICS = {
    "Bayes@N": Metric.of(scorio.eval.bayes),
    "Pass@2": Metric.of(scorio.eval.pass_at_k, k=2),
    "Pass@4": Metric.of(scorio.eval.pass_at_k, k=4),
    "Pass@8": Metric.of(scorio.eval.pass_at_k, k=8),
    "G-Pass@4, tau 0.5": Metric.of(scorio.eval.g_pass_at_k_tau, k=4, tau=0.5),
    "mG-Pass@4": Metric.of(scorio.eval.mg_pass_at_k, k=4),
}


class Timed(NamedTuple):
    result: Any
    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> Timed:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return Timed(result, time.perf_counter() - wall, time.process_time() - cpu)


def plain_loop(R: NDArray[np.int64], replicates: int) -> tuple[list[int], NDArray[np.float64]]:
    """Convergence@n and mean tau-b the obvious way: every replicate, every step, with scipy."""
    draws = np.random.default_rng(SEED).integers(TRIALS, size=(replicates, TRIALS, 1), dtype=np.int32)
    gold = rankdata(-R.sum(axis=(1, 2)), "min")
    at, taus = [], np.zeros((replicates, TRIALS))
    for replicate, columns in enumerate(draws[..., 0]):
        settled = NEVER
        for step in range(1, TRIALS + 1):
            ranking = rankdata(-R[:, :, columns[:step]].sum(axis=(1, 2)), "min")
            settled = (settled or step) if np.array_equal(ranking, gold) else NEVER
            taus[replicate, step - 1] = kendalltau(ranking, gold).statistic
        at.append(settled if settled < TRIALS else NEVER)
    return at, np.nan_to_num(taus).mean(axis=0)


def speed(R: NDArray[np.int64], replicates: int, few: int) -> tuple[list[list[object]], list[Check]]:
    """Time per study, and the plain loop beside it on a few replicates."""

    def study(metric: str, resample: str, count: int) -> Timed:
        work = Study.of(R, metric=METRICS[metric])
        return timed(lambda: convergence_at_n(work, count, np.random.default_rng(SEED), resample))

    bayes = study("Bayes@N", "columns", replicates)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    runs = [
        ("convergence@n, Bayes@N, columns", replicates, bayes),
        ("convergence@n, Bayes@N, rows", replicates, study("Bayes@N", "rows", replicates)),
        ("convergence@n, Pass@4, columns", replicates // 10, study("Pass@4", "columns", replicates // 10)),
        ("convergence@n, mG-Pass@4, columns", replicates // 10, study("mG-Pass@4", "columns", replicates // 10)),
    ]
    curve = timed(lambda: tau_curve(Study.of(R), replicates // 10, np.random.default_rng(SEED)))
    runs.append(("tau curve, Bayes@N, columns", replicates // 10, curve))
    loop = timed(lambda: plain_loop(R, few))
    runs.append(("both, plain loop with scipy", few, loop))
    rows: list[list[object]] = [[name, n, run.wall, run.cpu, 1e6 * run.cpu / n] for name, n, run in runs]
    same = bayes.result.at[:few].tolist() == loop.result[0]
    taus = tau_curve(Study.of(R), few, np.random.default_rng(SEED)).tau
    ratio = loop.cpu / few / ((bayes.cpu + 10 * curve.cpu) / replicates)
    seconds = bayes.wall * 100_000 / replicates
    difference = float(np.abs(taus - loop.result[1]).max())
    return rows, [
        Check("wall seconds for 100,000 column replicates of Bayes@N", seconds, "< 60", seconds < 60),
        Check("peak memory of the process after them, GiB", memory, "< 2", memory < 2),
        Check(f"convergence@n of the first {few} replicates is that of the plain loop", str(same), "True", same),
        Check("largest difference of mean tau from the plain loop", difference, "< 1e-12", difference < 1e-12),
        Check("times less CPU per replicate than the plain loop", ratio, "", None),
    ]


def findings(R: NDArray[np.int64], replicates: int) -> tuple[list[list[object]], list[Check]]:
    """Convergence of each metric to the true ranking of the coins, ties included (the paper's Fig. 1)."""
    gold = rankdata(-np.array(COIN_MEANS), "min")
    looks = np.array([10, 20, 40, 80])
    rows: list[list[object]] = []
    for name, metric in METRICS.items():
        curve = tau_curve(Study.of(R, metric=metric, gold=gold), replicates, np.random.default_rng(SEED))
        found = convergence_at_n(Study.of(R, metric=metric), replicates, np.random.default_rng(SEED))
        at_looks = curve.tau[looks - metric.first].tolist()
        rows.append([name, *at_looks, found.mean_capped, found.never])
    best = max(float(row[1]) for row in rows[1:])  # type: ignore[arg-type]
    first = float(rows[0][1])  # type: ignore[arg-type]
    return rows, [Check("tau of Bayes@N at N = 10, less the best of the others", first - best, ">= 0", first >= best)]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    (R,) = coin_outcomes(1, TRIALS, np.random.default_rng(SEED))
    runs, checks = speed(R, 20_000 if options.quick else 100_000, 5 if options.quick else 25)
    curves, more = findings(R, 1_000 if options.quick else 10_000)
    checks += more
    report = "\n\n".join(
        [
            f"# Convergence study\n\n11 models, 30 questions, 80 trials, on {machine()}; one process.",
            markdown(("study", "replicates", "wall s", "CPU s", "CPU us / replicate"), runs),
            "Mean tau-b with the true ranking after 10 to 80 trials; mean convergence@n to the ranking by Bayes@80,\n"
            "with N for a replicate that does not converge, and the share of those.",
            markdown(("metric", "tau 10", "tau 20", "tau 40", "tau 80", "convergence@n", "never"), curves),
            check_table(checks),
        ]
    )
    publish(options, report, checks)


if __name__ == "__main__":
    main()
