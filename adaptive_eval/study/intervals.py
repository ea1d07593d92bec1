"""Coverage of 95% intervals of a score (paper, section 2.6): the credible interval and its alternatives.

The true score is the mean probability of M questions, which are drawn for each replicate around the means of the coins.
The credible interval of Bayes@N, and the same on the average scale, are compared with intervals from the central limit
theorem (CLT) and percentile bootstraps: of trials within each question, and of questions, as on leaderboards. The
latter answer another question: how well the model does on similar questions.
"""

from typing import NamedTuple

import numpy as np

from adaptive_eval.simulate.worlds import COIN_CONCENTRATION, COIN_MEANS
from adaptive_eval.study.experiment import (
    Cell,
    Curve,
    DataTable,
    Experiment,
    OnStudyProgress,
    Panel,
    StudyFigure,
    StudyRequest,
)
from scorio.counts import Counts
from scorio.eval import avg_ci, bayes_ci
from scorio.moments import FloatArray, IntArray

QUESTIONS = (15, 30, 100)
TRIALS = (1, 2, 4, 8, 16, 40, 80)
RESAMPLED = 200
"""Bootstraps of one replicate."""
AT_A_TIME = 100
BINARY = np.array([0.0, 1.0])
Z = 1.959964
KINDS = (
    "Bayes@N, credible",
    "avg@N, credible",
    "CLT, trials",
    "bootstrap, trials",
    "CLT, questions",
    "bootstrap, questions",
)


class _IntervalQuality(NamedTuple):
    """Coverage and width of one kind of interval, for M questions and N trials."""

    coverage: float
    width: float
    empty: float
    """Share of intervals with zero width."""
    outside: float
    """Share of intervals that reach below 0 or above 1."""


def study_intervals(request: StudyRequest, on_progress: OnStudyProgress) -> Experiment:
    """Run the study of intervals; `request.replicates` models are drawn for each number of questions and trials."""
    found: dict[tuple[int, int], dict[str, _IntervalQuality]] = {}
    for place, (m, n) in enumerate((m, n) for m in QUESTIONS for n in TRIALS):
        on_progress(place / (len(QUESTIONS) * len(TRIALS)), f"{m} questions, {n} trials")
        found[m, n] = _measure(m, n, request, np.random.default_rng([request.seed, m, n]))
    on_progress(1.0, "all intervals")
    return Experiment(
        name="intervals",
        title="How often 95% intervals hold the true score (paper, section 2.6)",
        settings=dict(request._asdict()),
        tables=(*(_coverage(m, found) for m in QUESTIONS), _all(found)),
        figures=(_figure(found),),
        notes=(
            "Bayes@N is drawn to 1/2 by its uniform prior, (1/2 - p) 2/(N + 2): where there are many questions and "
            "few trials its interval misses the truth. On the average scale, which runs report, there is no such pull.",
            "Intervals over questions are wide because they answer for questions like these, not for these.",
        ),
    )


def _measure(m: int, n: int, request: StudyRequest, rng: np.random.Generator) -> dict[str, _IntervalQuality]:
    parts: dict[str, list[FloatArray]] = {kind: [] for kind in KINDS}
    truths = []
    for done in range(0, request.replicates, AT_A_TIME):
        some = min(AT_A_TIME, request.replicates - done)
        mean = rng.choice(COIN_MEANS, (some, 1))
        chances = rng.beta(mean * COIN_CONCENTRATION, (1.0 - mean) * COIN_CONCENTRATION, (some, m))
        truths.append(chances.mean(axis=1))
        for kind, ends in all_intervals(rng.binomial(n, chances), n, rng).items():
            parts[kind].append(ends)
    truth = np.concatenate(truths)
    return {kind: _interval_quality(np.concatenate(ends, axis=1), truth) for kind, ends in parts.items()}


def all_intervals(right: IntArray, n: int, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Both ends (2, B) of every kind of interval, from right answers (B, M) in n trials of each question."""
    counts = Counts(np.stack([n - right, right], axis=-1), BINARY)
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


def _interval_quality(ends: FloatArray, truth: FloatArray) -> _IntervalQuality:
    low, high = ends
    return _IntervalQuality(
        coverage=float(np.mean((low <= truth) & (truth <= high))),
        width=float((high - low).mean()),
        empty=float(np.mean(high - low <= 0.0)),
        outside=float(np.mean((low < 0.0) | (high > 1.0))),
    )


def _coverage(m: int, found: dict[tuple[int, int], dict[str, _IntervalQuality]]) -> DataTable:
    rows: tuple[tuple[Cell, ...], ...] = tuple((kind, *(found[m, n][kind].coverage for n in TRIALS)) for kind in KINDS)
    title = f"{m} questions: share of 95% intervals that hold the truth"
    return DataTable(f"intervals_{m}", title, ("interval", *(f"N = {n}" for n in TRIALS)), rows)


def _all(found: dict[tuple[int, int], dict[str, _IntervalQuality]]) -> DataTable:
    rows: list[tuple[Cell, ...]] = [
        (m, n, kind, held.coverage, held.width, held.empty, held.outside)
        for (m, n), kinds in found.items()
        for kind, held in kinds.items()
    ]
    columns = ("questions", "trials", "interval", *_IntervalQuality._fields)
    return DataTable("intervals", "coverage and width", columns, tuple(rows), shown=False)


def _figure(found: dict[tuple[int, int], dict[str, _IntervalQuality]]) -> StudyFigure:
    return StudyFigure(
        "intervals",
        tuple(
            Panel(
                f"{m} questions",
                "trials N",
                "coverage of 95% intervals",
                tuple(Curve.of(kind, TRIALS, (found[m, n][kind].coverage for n in TRIALS)) for kind in KINDS),
            )
            for m in QUESTIONS
        ),
    )
