"""Rows that the section `report` asks for: scores on groups of questions, and metrics of k draws, with intervals.

The estimate U of a metric for a question is the mean over all draws of k of its n trials, c of them right: h(c). It is
unbiased, E[h(c') | p] = g(p), so its variance is E[h(c')^2 | p] - g(p)^2. With the posterior Beta(c + 1, n - c + 1) for
p, the variance is on average

    sum_c' h(c')^2 BetaBinomial(c'; n, c + 1, n - c + 1) - (var g + (mean g)^2),

the last two under the same posterior. The posterior variance of g alone would be too small where n is little more than
k, since U then jumps with every answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.reports import find_metric
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.questions.load import as_text, benchmark_named
from adaptive_eval.questions.types import Question
from adaptive_eval.report.label_effect import CorrectedScore
from adaptive_eval.report.results import Caution, GroupRow, MetricRow
from scorio import Counts
from scorio.moments import CountArray, FloatArray, over_categories

BENCHMARK = "benchmark"
"""Name of the grouping by benchmark."""


def question_groups(config: RunConfig, questions: Sequence[Question]) -> dict[str, tuple[str, ...]]:
    """Label of each question, for each way to group them."""
    groups = {BENCHMARK: tuple(benchmark_named(question.id) for question in questions)} if config.benchmarks else {}
    return groups | {
        by: tuple(as_text(question.metadata.get(by)) or "-" for question in questions) for by in config.report.group_by
    }


def group_rows(
    plan: Plan,
    counts: CountArray,
    models: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    order: Sequence[int],
    corrected: Mapping[tuple[int, int], CorrectedScore],
) -> Iterator[GroupRow]:
    """Rows group by group, from counts (L, M, K); within each group models are in the `order` of their total scores.

    `corrected`: scores that labels correct, by model and benchmark.
    """
    bench = plan.bench
    totals = counts if bench.prior_counts is None else counts + bench.prior_counts
    g = np.ones(bench.questions) if bench.question_weights is None else bench.question_weights
    for by, of_question in groups.items():
        labels = np.array(of_question)
        for group in dict.fromkeys(of_question):
            members = np.flatnonzero(labels == group)
            share, weights = float(g[members].sum() / bench.questions), g[members] / g[members].mean()
            part_of = bench.benchmark_of
            parts = None if part_of is None else np.unique(part_of[members], return_inverse=True)[1]
            for model in order:
                own = totals[[model]][:, members]
                head = by, group, share, len(members), models[model], int(own.sum())
                if not over_categories(own[0]).all():
                    yield GroupRow(*head, None, None, None, None)
                    continue
                estimates = estimate(own, bench.weights, plan.prior, np.array(1), bayes=False, g=weights, groups=parts)
                score, sigma = float(estimates.score[0]), float(estimates.sigma()[0])
                if by == BENCHMARK and part_of is not None and (model, part_of[members[0]]) in corrected:
                    part = corrected[model, part_of[members[0]]]
                    score, sigma = part.score, float(np.sqrt(part.var))
                ends = score - TWO_SIDED_95 * sigma, score + TWO_SIDED_95 * sigma
                low, high = np.clip(ends, bench.weights.min(), bench.weights.max()).tolist()
                yield GroupRow(*head, score, sigma, low, high)


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
        for model, model_counts in zip(models, right_last, strict=True):
            if metric is None or model_counts.shape[-1] != 2 or model_counts.sum(axis=-1).min() < metric.draws:
                yield MetricRow(name, model, None, None, None, None)
                continue
            value = float(metric.value(Counts(n=model_counts, w=BINARY)))
            variances = [_question_variance(name, wrong, right) for wrong, right in model_counts.tolist()]
            sigma = float(np.sqrt(np.sum(variances))) / len(model_counts)
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
                f"{', '.join(without)}: no {name}, since some question has fewer trials than that; raise trials.min, "
                "or request a metric of fewer trials",
            )
