"""Scores of many resampled replicates at every number of trials.

A replicate is given by its draws (N, M): for step s and question q, the trial whose outcome is used. The draws serve
all models alike, as the seeds of an experiment do. Column-wise draws are the same for every question, (N, 1).

Three ways lead from draws to scores. For Bayes@N and avg@N the models rank by their total weight (paper, Eq. 19), which
grows by one table lookup per step. A metric of right answers that is a mean over the questions is looked up by each
question's number of them. Any other metric is evaluated on the counts that have come together.

Bootstrap replicates in chunks of bounded memory, the same ones whatever the size of a chunk.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from scorio import _validate
from scorio.convergence.study import Metric, Study
from scorio.counts import BINARY, Counts
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import ROUNDING, rounding_error

MAX_EXACT = 2.0**53
"""Whole numbers below it, and their sums, are exact in floating point."""


def scoring(study: Study, by_question: bool) -> "Totals | Tabled | Evaluated":
    """The quickest exact way to score replicates of a study: from draws (B, N, M or 1) to scores (B, steps, L)."""
    if study.metric.additive:
        return Totals.of(study, by_question)
    return Tabled.of(study) if study.metric.by_question and study.binary else Evaluated(study)


@dataclass(frozen=True)
class Totals:
    """Models ranked by their total weight, in whole numbers wherever the weights allow: ties are exact."""

    table: FloatArray
    """(N, L) weight of a trial summed over the questions, or (M N, L) weight of each outcome."""
    start: FloatArray
    """(L,) weight of the prior outcomes."""
    trials: int
    equal: float
    """The difference up to which two totals are equal."""

    @classmethod
    def of(cls, study: Study, by_question: bool) -> "Totals":
        w = whole_weights(study.w)
        value = w[study.outcomes]
        cells = value.reshape(study.models, -1) if by_question else value.sum(axis=1)
        start = np.zeros(study.models)
        if study.r0 is not None:
            start += (study.r0 @ w).sum(axis=-1)
        largest = float(np.abs(start).max() + np.abs(w).max() * study.questions * study.trials)
        exact = largest < MAX_EXACT and bool((w == np.rint(w)).all())
        return cls(np.ascontiguousarray(cells.T), start, study.trials, 0.5 if exact else ROUNDING * largest)

    @property
    def footprint(self) -> int:
        """Bytes of memory that a replicate takes, about."""
        cells, models = self.table.shape
        return int(24 * self.trials * models + 16 * cells)

    def scores(self, draws: IntArray) -> FloatArray:
        """Totals after each step; the drawn cells of a step are summed as one row of a sparse product."""
        replicates, steps, cells = draws.shape
        drawn = (draws + self.trials * np.arange(cells, dtype=draws.dtype)).ravel()
        rows = np.arange(0, drawn.size + 1, cells, dtype=draws.dtype)
        gains = csr_array((np.ones(drawn.size), drawn, rows), shape=(rows.size - 1, len(self.table))) @ self.table
        totals: FloatArray = np.cumsum(gains.reshape(replicates, steps, -1), axis=1)
        totals += self.start
        return totals


@dataclass(frozen=True)
class Tabled:
    """Models ranked by the mean over the questions of what so many right answers in so many trials are worth."""

    right: IntArray
    """(N, L, M): whether a trial was right."""
    table: FloatArray
    """(steps, N + 1): the metric of a question after `first` and more trials, by its right answers."""

    @classmethod
    def of(cls, study: Study) -> "Tabled":
        right = np.ascontiguousarray(np.moveaxis(study.outcomes, -1, 0)).astype(np.int8)
        return cls(right, question_values(study.metric, study.trials))

    @property
    def footprint(self) -> int:
        trials, models, questions = self.right.shape
        return int(models * (32 * questions + 16 * trials))

    def scores(self, draws: IntArray) -> FloatArray:
        """Scores after each step; draws (B, N, 1) or (B, N, M)."""
        questions = np.arange(self.right.shape[-1])
        if draws.shape[-1] > 1:
            right = np.moveaxis(self.right, 1, 2)
            return look_up_scores(self.table, (right[at, questions].swapaxes(1, 2) for at in draws.swapaxes(0, 1)))
        return look_up_scores(self.table, (self.right[at] for at in draws[..., 0].T))


def look_up_scores(table: FloatArray, drawn: Iterator[IntArray]) -> FloatArray:
    """Scores (B, steps, L) from the answers (B, L, M) that each trial adds: the mean over the questions, by `table`."""
    tally: IntArray | int = 0
    scores, late = [], len(table[0]) - 1 - len(table)
    for step, right in enumerate(drawn):
        tally = right.astype(np.intp) + tally
        if step >= late:
            values = table[step - late].take(tally)
            scores.append(values @ np.full(values.shape[-1], 1.0 / values.shape[-1]))
    return np.stack(scores, axis=1)


def question_values(metric: Metric, trials: int) -> FloatArray:
    """(steps, trials + 1): the metric of one question by its right answers, after `metric.first`, ..., N trials."""
    table = np.zeros((trials + 1 - metric.first, trials + 1))
    for row, n in zip(table, range(metric.first, trials + 1), strict=True):
        right = np.arange(n + 1)
        row[: n + 1] = metric(Counts.trusted(np.stack([n - right, right], axis=-1)[:, np.newaxis], BINARY))
    return table


@dataclass(frozen=True)
class Evaluated:
    """Models ranked by any metric, evaluated on their counts at each step."""

    study: Study

    @property
    def footprint(self) -> int:
        study = self.study
        return study.models * (64 * study.questions * int(study.w.size) + 16 * study.trials)

    def scores(self, draws: IntArray) -> FloatArray:
        study, replicates = self.study, len(draws)
        by_category = np.zeros((study.w.size, study.models, replicates, study.questions), dtype=np.int64)
        n = np.moveaxis(by_category, 0, -1)  # one category after the other in memory: sums over categories run fast
        r0 = None if study.r0 is None else study.r0[..., np.newaxis, :, :]
        scores = np.empty((replicates, study.steps.size, study.models))
        question = np.arange(study.questions)
        for step in range(study.trials):
            labels = study.outcomes[:, question, draws[:, step]]
            for category, tally in enumerate(by_category):
                tally += labels == category
            place = step + 1 - study.metric.first
            if place >= 0:
                scores[:, place] = study.metric(Counts.trusted(n, study.w, r0)).T
        return scores


def whole_weights(w: FloatArray) -> FloatArray:
    """w times the common denominator of its entries, where they are fractions with one below a million; else w."""
    fractions = [Fraction(x).limit_denominator(1000) for x in w.tolist()]
    scale = math.lcm(*(fraction.denominator for fraction in fractions))
    if scale >= 1_000_000 or any(float(fraction) != x for fraction, x in zip(fractions, w.tolist(), strict=True)):
        return w
    return np.array([float(fraction * scale) for fraction in fractions])


MEMORY = 1 << 25
"""Bytes that the arrays of a chunk may take, about: small enough to stay near the caches."""

Progress = Callable[[int, int], None]
"""Called with the replicates done so far and their total."""


class Chunk(NamedTuple):
    """Replicates, scored."""

    scores: FloatArray
    """(B, steps, L)"""
    tolerance: FloatArray | float
    """The difference up to which two scores are equal."""


def bootstrap(
    study: Study, replicates: int, rng: np.random.Generator, resample: str, progress: Progress | None
) -> Iterator[Chunk]:
    """Resample N trials with replacement, all questions together ("columns") or each alone ("rows"): paper, 2.7."""
    total = _validate.integer(replicates, "replicates", low=1)
    if resample not in ("columns", "rows"):
        raise ValueError(f"resample must be 'columns' or 'rows', got {resample!r}")
    scorer = scoring(study, by_question=resample == "rows")
    shape = (study.trials, study.questions if resample == "rows" else 1)
    comparisons = 16 * study.trials * study.models * (study.models - 1)  # bytes, of all pairs of models at every step
    size = max(1, MEMORY // (scorer.footprint + comparisons))
    for first in range(0, total, size):
        # 32-bit draws come from one stream that is not cut at the end of a call, unlike 8- and 16-bit ones.
        draws = rng.integers(study.trials, size=(min(size, total - first), *shape), dtype=np.int32)
        yield _scored(scorer, draws)
        if progress is not None:
            progress(min(first + size, total), total)


def recorded_chunk(study: Study) -> Chunk:
    """The one replicate that takes the trials in the order in which they were recorded."""
    draws = np.arange(study.trials, dtype=np.int32).reshape(1, -1, 1)
    return _scored(scoring(study, by_question=False), draws)


def _scored(scorer: Totals | Tabled | Evaluated, draws: IntArray) -> Chunk:
    scores = scorer.scores(draws)
    return Chunk(scores, scorer.equal if isinstance(scorer, Totals) else rounding_error(scores))
