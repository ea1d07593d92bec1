"""Trials needed to tell two similar coins apart, LLM9 and LLM10 (paper, section 2.9, Fig. 3)."""

import numpy as np

from adaptive_eval.simulate.worlds import coins
from adaptive_eval.study.experiment import (
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    StudyRequest,
    ignore_progress,
    within,
)
from scorio.moments import FloatArray

WORSE, BETTER = 8, 9
PRINTED = {80: (0.837, 1.14), 199: (0.947, 1.645), 285: (0.969, 1.96)}
"""The chance of the right order, and |z|, as the paper prints them."""
STEP, MOST = 5, 300


def study_separation(request: StudyRequest, on_progress: OnStudyProgress = ignore_progress) -> Experiment:
    """Study how many trials give the right order of two models, in `request.replicates` pairs of matrices."""
    looks = sorted({1, *range(STEP, MOST + 1, STEP), *PRINTED})
    right, z, signed = _measured(request, looks, on_progress)
    at = {n: place for place, n in enumerate(looks)}
    criteria = []
    for n, (chance, score) in PRINTED.items():
        criteria.append(within(f"N = {n}: chance of the right order", float(right[at[n]]), chance, 0.03))
        criteria.append(within(f"N = {n}: mean |z|", float(z[at[n]]), score, 0.05))
    rows = tuple((n, float(right[i]), float(z[i]), float(signed[i])) for n, i in at.items())
    columns = ("trials", "right order", "mean |z|", "mean z")
    return Experiment(
        name="separation",
        title="Telling LLM9 (60.8%) from LLM10 (62.13%) (paper, section 2.9, Fig. 3)",
        settings=dict(request._asdict()),
        tables=(
            DataTable(
                "separation_printed", "where the paper prints it", columns, tuple(r for r in rows if r[0] in PRINTED)
            ),
            DataTable("separation", "every N", columns, rows, shown=False),
        ),
        figures=(
            StudyFigure(
                "separation",
                (
                    Panel("LLM10 above LLM9", "trials N", "share of draws", (Curve.of("", looks, right),)),
                    Panel("z of the two", "trials N", "mean |z|", (Curve.of("", looks, z),)),
                ),
            ),
        ),
        criteria=tuple(criteria),
        notes=("|z| is averaged as it stands, so that it exceeds the mean of z where orders are still wrong.",),
    )


def _measured(
    request: StudyRequest, looks: list[int], on_progress: OnStudyProgress
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The chance of the right order (ties half), mean |z| and mean z at each look, each draw followed through all."""
    chances = coins().p[[WORSE, BETTER], :, 1]
    questions = chances.shape[1]
    rng = np.random.default_rng(request.seed)
    right = np.zeros((request.replicates, *chances.shape), dtype=np.int64)
    found, before = [], 0
    for n in looks:
        right += rng.binomial(n - before, chances, right.shape)
        before = n
        nu = right + 1.0
        variance = (nu * (n + 2.0 - nu)).sum(axis=-1) / ((n + 2.0) ** 2 * (n + 3.0) * questions**2)
        difference = np.diff(nu.sum(axis=-1), axis=-1)[:, 0] / ((n + 2.0) * questions)
        z = difference / np.sqrt(variance.sum(axis=-1))
        found.append((np.mean(z > 0) + np.mean(z == 0) / 2.0, np.abs(z).mean(), z.mean()))
        on_progress(n / looks[-1], f"N = {n}")
    chance, size, signed = np.array(found).T
    return chance, size, signed
