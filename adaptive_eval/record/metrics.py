"""Metrics of k draws that `report.metrics` asks for, of every model, with an interval.

The estimate U for a question is the mean over all draws of k of its n trials, c of them right: h(c). It is unbiased,
E[h(c') | p] = g(p), so its variance is E[h(c')^2 | p] - g(p)^2. With the posterior Beta(c + 1, n - c + 1) for p, the
variance is on average

    sum_c' h(c')^2 BetaBinomial(c'; n, c + 1, n - c + 1) - (var g + (mean g)^2),

the last two under the same posterior. The posterior variance of g alone would be too small where n is little more than
k, since U then jumps with every answer.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.reports import find_metric
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.record.results import Caution, MetricRow
from scorio import Counts
from scorio.moments import FloatArray

BINARY = np.array([0.0, 1.0])


def metric_rows(
    names: Sequence[str], models: Sequence[str], counts: NDArray[np.integer], weights: FloatArray
) -> Iterator[MetricRow]:
    """Metrics of each model from counts (L, M, 2); None if a question has fewer trials than draws."""
    if not names:
        return
    right_last = counts[..., np.argsort(weights, kind="stable")].astype(np.int64)
    for name in names:
        metric = find_metric(name)
        for model, own in zip(models, right_last, strict=True):
            if metric is None or own.shape[-1] != 2 or own.sum(axis=-1).min() < metric.draws:
                yield MetricRow(name, model, None, None, None, None)
                continue
            value = float(metric.value(Counts(n=own, w=BINARY)))
            variances = [_question_variance(name, wrong, right) for wrong, right in own.tolist()]
            sigma = float(np.sqrt(np.sum(variances))) / len(own)
            low, high = value - TWO_SIDED_95 * sigma, value + TWO_SIDED_95 * sigma
            yield MetricRow(name, model, value, sigma, max(low, 0.0), min(high, 1.0))


@cache
def _question_variance(name: str, wrong: int, right: int) -> float:
    from scipy.stats import betabinom  # slow to import, and few ask for metrics

    metric = find_metric(name)
    assert metric is not None
    trials = wrong + right
    others = np.arange(trials + 1)
    every = Counts(n=np.stack([trials - others, others], axis=-1)[:, None, :], w=BINARY)
    chances = betabinom.pmf(others, trials, right + 1, wrong + 1)
    posterior = metric.summary(Counts(n=np.array([[wrong, right]]), w=BINARY))
    squares = float(chances @ np.square(metric.value(every)))
    return max(squares - float(posterior.sigma) ** 2 - float(posterior.mu) ** 2, 0.0)


def metric_cautions(rows: Sequence[MetricRow]) -> Iterator[Caution]:
    """Warn of each metric that has no value for some model."""
    for name in dict.fromkeys(row.metric for row in rows):
        without = [row.model for row in rows if row.metric == name and row.value is None]
        if without:
            yield Caution(
                "no_metric",
                None,
                f"{name} is left out for {', '.join(without)}: some question has fewer trials than it has draws, and "
                "no estimate from fewer is without bias; raise trials.min, or ask for fewer draws",
            )
