"""Scores on groups of questions: on each of several benchmarks, and by a field of their metadata."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.questions.load import as_text, benchmark_named
from adaptive_eval.questions.types import Question
from adaptive_eval.record.results import GroupRow
from scorio.moments import CountArray, over_categories

BENCHMARK = "benchmark"
"""Name of the grouping by benchmark."""


def question_groups(config: RunConfig, questions: Sequence[Question]) -> dict[str, tuple[str, ...]]:
    """Label of each question, for each way to group them."""
    groups = {BENCHMARK: tuple(benchmark_named(one.id) for one in questions)} if config.benchmarks else {}
    return groups | {by: tuple(as_text(one.metadata.get(by)) or "-" for one in questions) for by in config.report.by}


def group_rows(
    plan: Plan, counts: CountArray, models: Sequence[str], groups: Mapping[str, Sequence[str]], order: Sequence[int]
) -> Iterator[GroupRow]:
    """Rows group by group, from counts (L, M, K); within each group models are in the `order` of their total scores."""
    bench = plan.bench
    known = counts if bench.prior_counts is None else counts + bench.prior_counts
    for by, of_question in groups.items():
        labels = np.array(of_question)
        for group in dict.fromkeys(of_question):
            yield from _rows_in_group(plan, known, models, order, by, group, np.flatnonzero(labels == group))


def _rows_in_group(
    plan: Plan,
    known: CountArray,
    models: Sequence[str],
    order: Sequence[int],
    by: str,
    group: str,
    own: NDArray[np.intp],
) -> Iterator[GroupRow]:
    bench, there = plan.bench, known[:, own]
    g = np.ones(bench.questions) if bench.question_weights is None else bench.question_weights
    labels = None if bench.benchmark_of is None else np.unique(bench.benchmark_of[own], return_inverse=True)[1]
    share = float(g[own].sum() / bench.questions)
    for model in order:
        trials = int(there[model].sum())
        if not over_categories(there[model]).all():
            yield GroupRow(by, group, share, len(own), models[model], trials, None, None, None, None)
            continue
        found = estimate(
            there[[model]], bench.weights, plan.prior, np.array(1), bayes=False, g=g[own] / g[own].mean(), groups=labels
        )
        score, sigma = float(found.score[0]), float(found.sigma()[0])
        ends = score - TWO_SIDED_95 * sigma, score + TWO_SIDED_95 * sigma
        low, high = np.clip(ends, bench.weights.min(), bench.weights.max()).tolist()
        yield GroupRow(by, group, share, len(own), models[model], trials, score, sigma, low, high)
