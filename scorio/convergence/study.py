"""The recorded outcomes whose ranking is studied, the metric that ranks them, and the gold ranking.

What a ranking is made from: a function of `scorio.eval` with its arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from scorio import _validate
from scorio.counts import Counts
from scorio.eval import (
    auc_at_k,
    avg,
    bayes,
    g_pass_at_k,
    g_pass_at_k_tau,
    maj_at_k,
    mg_pass_at_k,
    naive_pass_hat_k,
    pass_at_k,
    pass_hat_k,
)
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import rank_scores

MEANS = (pass_at_k, pass_hat_k, naive_pass_hat_k, g_pass_at_k, g_pass_at_k_tau, mg_pass_at_k, maj_at_k, auc_at_k)
"""Functions of `scorio.eval` that take right and wrong answers, and average a value of each question."""


@dataclass(frozen=True)
class Metric:
    """A function of `scorio.eval` and its arguments beyond the counts: `Metric.of(scorio.eval.pass_at_k, k=4)`.

    Any function will do that takes a `Counts` of shape (..., M, K) and returns scores (...), alone or first of a tuple.

    Attributes:
        function: The function.
        arguments: Its arguments beyond the counts.

    Examples:
        >>> import scorio
        >>> from scorio.convergence import Metric
        >>> metric = Metric.of(scorio.eval.pass_at_k, k=4)
        >>> metric.first
        4
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any], **arguments: Any) -> Self:
        """A function with the arguments that it is always called with.

        Args:
            function: The function.
            **arguments: Its arguments beyond the counts.

        Returns:
            The `Metric`.

        Examples:
            >>> import scorio
            >>> from scorio.convergence import Metric
            >>> metric = Metric.of(scorio.eval.pass_at_k, k=2)
            >>> float(metric(scorio.Counts.from_outcomes([[0, 0, 1, 0, 1]])))
            0.7000000000000001
        """
        return cls(function, arguments)

    @property
    def first(self) -> int:
        """The fewest trials to rank by: k for a metric of k draws (paper, section 3), else 1."""
        return int(self.arguments.get("k", 1))

    @property
    def additive(self) -> bool:
        """Whether models with as many trials each rank in the order of their total weight (paper, section 2.6)."""
        return self.function in (bayes, avg) and not self.arguments

    @property
    def by_question(self) -> bool:
        """Whether it is the mean over the questions of a value that each has by its right answers alone."""
        return self.function in MEANS

    def __call__(self, counts: Counts) -> FloatArray:
        result = self.function(counts, **self.arguments)
        return np.asarray(result[0] if isinstance(result, tuple) else result, dtype=float)


BAYES = Metric.of(bayes)


@dataclass(frozen=True, eq=False)
class Study:
    """L models, M questions and N trials of each (N = N_max of the paper), ready to be resampled.

    Attributes:
        w: What each category is worth, (K,).
        metric: What ranks the models.

    Examples:
        >>> from scorio.convergence import Study
        >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]]])
        >>> study.models, study.questions, study.trials, study.gold
        (2, 1, 6, array([2, 1]))
    """

    outcomes: IntArray
    """(L, M, N) categories, in the smallest type that holds them."""
    w: FloatArray
    r0: IntArray | None
    """Prior counts, broadcastable to (L, M, K)."""
    metric: Metric
    gold: IntArray | FloatArray
    """The ranks that a ranking is compared with, ties allowed."""

    @classmethod
    def of(cls, R: Any, w: Any = None, R0: Any = None, metric: Metric = BAYES, gold: Any = None) -> Self:
        """Build from an (L, M, N) tensor; without `gold`, the ranking by Bayes@N or avg@N of all trials (paper, 2.7).

        Args:
            R: The tensor, at least 2 models and 2 trials.
            w: What each category is worth; None where 0 is wrong and 1 is right.
            R0: Prior outcomes, (M, D) or (L, M, D); None for none.
            metric: What ranks the models.
            gold: One rank for each model; None for the ranking of all trials.

        Returns:
            The `Study`.

        Examples:
            >>> from scorio.convergence import Study
            >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]]])
            >>> study.gold
            array([2, 1])
        """
        counts = Counts.from_tensor(R, w, R0)
        outcomes = np.asarray(R)
        models, _, trials = outcomes.shape
        if models < 2 or trials < 2:
            raise ValueError(
                f"R must have at least 2 models and 2 trials, for a ranking to change, got {outcomes.shape}"
            )
        if metric.first >= trials:
            raise ValueError(f"k must be below the {trials} trials of R, for a ranking to change, got {metric.first}")
        ranks = _gold(counts, gold, models)
        small = outcomes.astype(np.min_scalar_type(counts.categories - 1))
        return cls(small, counts.w, counts.r0, metric, ranks)

    @property
    def models(self) -> int:
        return int(self.outcomes.shape[0])

    @property
    def questions(self) -> int:
        return int(self.outcomes.shape[1])

    @property
    def trials(self) -> int:
        return int(self.outcomes.shape[2])

    @property
    def binary(self) -> bool:
        """Whether answers are right or wrong, and nothing is known beforehand."""
        return self.w.size == 2 and self.r0 is None

    @property
    def steps(self) -> IntArray:
        """The numbers of trials at which there is a ranking: first, ..., N."""
        return np.arange(self.metric.first, self.trials + 1)


def _gold(counts: Counts, gold: Any, models: int) -> IntArray | FloatArray:
    if gold is None:
        return rank_scores(avg(Counts.trusted(counts.n, counts.w))[0])
    ranks = _validate.floats(gold, "gold")
    if ranks.shape != (models,):
        raise ValueError(f"gold must hold one rank for each of the {models} models of R, got shape {ranks.shape}")
    return ranks
