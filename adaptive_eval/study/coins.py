"""Speed at which each metric finds the true order of the paper's eleven biased coins (section 2.7, Fig. 1).

The mean of Kendall's tau-b after N trials is taken in three ways: over independent matrices, and over bootstraps of
matrices, resampled by columns (whole trials) or by rows (each question alone). A bootstrap only describes its own
matrix: curves differ between matrices, and only the mean over many equals that of independent ones.
"""

from typing import NamedTuple

import numpy as np

import scorio.eval
from adaptive_eval.simulate.worlds import COIN_MEANS, coins
from adaptive_eval.study.experiment import (
    Cell,
    Criterion,
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    at_least,
    at_most,
)
from scorio.convergence import Metric, Study, tau_curve, tau_of_tensors
from scorio.moments import FloatArray, IntArray
from scorio.rank import rank_scores

TRIALS = 80
LOOKS = (10, 20, 40, 80)
BAYES = "Bayes@N"
METRICS = {
    BAYES: Metric.of(scorio.eval.bayes),
    "avg@N": Metric.of(scorio.eval.avg),
    "Pass@2": Metric.of(scorio.eval.pass_at_k, k=2),
    "Pass@4": Metric.of(scorio.eval.pass_at_k, k=4),
    "Pass@8": Metric.of(scorio.eval.pass_at_k, k=8),
    "naive Pass^4": Metric.of(scorio.eval.naive_pass_hat_k, k=4),
    "G-Pass@4, tau 0.5": Metric.of(scorio.eval.g_pass_at_k_tau, k=4, tau=0.5),
    "mG-Pass@4": Metric.of(scorio.eval.mg_pass_at_k, k=4),
}
SCHEMES = ("columns", "rows")
AT_A_TIME = 50


class CoinsRequest(NamedTuple):
    """Sizes and seed of the study of the coins."""

    matrices: int = 1000
    """Number of independent matrices."""
    bootstrapped: int = 40
    """Number of matrices that are resampled."""
    replicates: int = 10_000
    """Number of bootstraps over all of these, for each scheme and metric."""
    seed: int = 0


def coin_outcomes(matrices: int, trials: int, rng: np.random.Generator) -> IntArray:
    """Independent matrices (B, L, M, N) of the coins."""
    chances = coins().p[..., 1]
    return (rng.random((matrices, *chances.shape, trials)) < chances[..., None]).astype(np.int8)


def study_coins(request: CoinsRequest, on_progress: OnStudyProgress) -> Experiment:
    """Run the study of simulated coins."""
    gold = rank_scores(COIN_MEANS)
    alone = _independent(request, gold, on_progress)
    resampled = {scheme: _bootstrapped(request, gold, scheme, on_progress) for scheme in SCHEMES}
    means = {
        scheme: {name: curves.mean(axis=0) for name, curves in found.items()} for scheme, found in resampled.items()
    }
    return Experiment(
        name="coins",
        title="Agreement with the true order of eleven biased coins (paper, section 2.7, Fig. 1)",
        settings=dict(request._asdict()),
        tables=(_at_looks(alone), _all_curves({"independent": alone, **means})),
        figures=(
            StudyFigure(
                "coins",
                tuple(
                    Panel(title, "trials N", "Kendall's tau-b with the truth", _curves(curves))
                    for title, curves in (
                        ("independent matrices", alone),
                        ("bootstrap by columns", means["columns"]),
                        ("bootstrap by rows", means["rows"]),
                    )
                ),
            ),
        ),
        criteria=(*_lead(alone), *_agreement(alone, resampled)),
        notes=(
            "Metrics of k draws begin at N = k. avg@N ranks as Bayes@N does, so that their curves are one.",
            _scatter(resampled),
        ),
    )


def _independent(
    request: CoinsRequest, gold: IntArray | FloatArray, on_progress: OnStudyProgress
) -> dict[str, FloatArray]:
    rng = np.random.default_rng([request.seed, 0])
    totals = {name: np.zeros(TRIALS + 1 - metric.first) for name, metric in METRICS.items()}
    for done in range(0, request.matrices, AT_A_TIME):
        some = min(AT_A_TIME, request.matrices - done)
        tensors = coin_outcomes(some, TRIALS, rng)
        for name, metric in METRICS.items():
            totals[name] += some * tau_of_tensors(tensors, metric, gold).tau
        on_progress((done + some) / request.matrices / 3.0, f"{done + some} of {request.matrices} matrices")
    return {name: total / request.matrices for name, total in totals.items()}


def _bootstrapped(
    request: CoinsRequest, gold: IntArray | FloatArray, scheme: str, on_progress: OnStudyProgress
) -> dict[str, FloatArray]:
    """The curves (matrices, steps) of each metric."""
    rng = np.random.default_rng([request.seed, 1])
    found: dict[str, list[FloatArray]] = {name: [] for name in METRICS}
    each = max(1, round(request.replicates / request.bootstrapped))
    first = (1 + SCHEMES.index(scheme)) / 3.0
    for matrix in range(request.bootstrapped):
        (outcomes,) = coin_outcomes(1, TRIALS, rng)
        for name, metric in METRICS.items():
            draws = np.random.default_rng([request.seed, 2, matrix])
            found[name].append(tau_curve(Study.of(outcomes, metric=metric, gold=gold), each, draws, scheme).tau)
        share = (matrix + 1) / request.bootstrapped
        on_progress(first + share / 3.0, f"bootstrap by {scheme}: {matrix + 1} of {request.bootstrapped} matrices")
    return {name: np.array(curves) for name, curves in found.items()}


def _at(curve: FloatArray, trials: int) -> float:
    return float(curve[trials - TRIALS - 1])


def _at_looks(curves: dict[str, FloatArray]) -> DataTable:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *(_at(curve, n) for n in LOOKS)) for name, curve in curves.items()
    )
    title = "mean tau-b with the true order, over independent matrices"
    return DataTable("coins_at_looks", title, ("metric", *(f"N = {n}" for n in LOOKS)), rows)


def _all_curves(found: dict[str, dict[str, FloatArray]]) -> DataTable:
    rows = tuple(
        (way, name, TRIALS + 1 - len(curve) + step, float(tau))
        for way, curves in found.items()
        for name, curve in curves.items()
        for step, tau in enumerate(curve)
    )
    return DataTable("coins_curves", "every curve", ("matrices", "metric", "trials", "tau_b"), rows, shown=False)


def _curves(curves: dict[str, FloatArray]) -> tuple[Curve, ...]:
    return tuple(
        Curve.of(name, range(TRIALS + 1 - len(curve), TRIALS + 1), curve)
        for name, curve in curves.items()
        if name != "avg@N"
    )


def _lead(curves: dict[str, FloatArray]) -> list[Criterion]:
    """How far Bayes@N is above the best of the others."""
    criteria = []
    for n in LOOKS:
        others = {name: _at(curve, n) for name, curve in curves.items() if name not in (BAYES, "avg@N")}
        best = max(others, key=others.__getitem__)
        lead = _at(curves[BAYES], n) - others[best]
        criteria.append(at_least(f"N = {n}: Bayes@N above the best other, {best}", lead, -0.001))
    return criteria


def _agreement(alone: dict[str, FloatArray], resampled: dict[str, dict[str, FloatArray]]) -> list[Criterion]:
    """Criteria for the distance of the mean over bootstraps from independent matrices.

    N trials resampled from 80 have a variance in proportion to 1/N + 1/80: they are worth N' = 1 / (1/N + 1/80) new
    ones.
    """
    criteria, n = [], np.arange(1, TRIALS + 1)
    worth = np.interp(1.0 / (1.0 / n + 1.0 / TRIALS), n, alone[BAYES])
    for scheme, found in resampled.items():
        curve = found[BAYES].mean(axis=0)
        apart, so = np.abs(curve - alone[BAYES]), f"bootstrap by {scheme}: Bayes@N from independent matrices"
        criteria += [
            at_most(f"{so}, mean over N", float(apart.mean()), 0.01),
            at_most(f"{so}, at N = 1 to 40, at most", float(apart[:40].max()), 0.01),
            Criterion(f"{so}, at N = 80, which 40 new trials are worth", float(apart[-1]), "", None),
            at_most(f"{so} of as many trials as it is worth, at most", float(np.abs(curve - worth).max()), 0.01),
        ]
    return criteria


def _scatter(resampled: dict[str, dict[str, FloatArray]]) -> str:
    curves = resampled["columns"][BAYES]
    spread = float(curves.std(axis=0, ddof=1).max()) if len(curves) > 1 else float("nan")
    return (
        "A bootstrap of one matrix is no measurement of the coins: from matrix to matrix the curve of Bayes@N scatters "
        f"by {spread:.3f} (standard deviation, at the worst N)."
    )
