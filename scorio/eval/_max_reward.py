"""Max@k: the expected best reward among k draws.

With reward levels r_1 < ... < r_L and x_l the chance that all of k draws stay at or below r_l,

    Max@k = r_L - sum_l<L (r_(l+1) - r_l) x_l,

so each level is a Pass^k whose "success" is a reward of at most r_l (Bagirov et al. 2025, arXiv:2510.23393).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate
from scorio.eval._inputs import Bounds, Outcomes, Summary, Value, as_counts, as_value, bank_draws, summary
from scorio.eval._posterior import posterior_moments
from scorio.eval._scores import all_successes, bank_values, distinct
from scorio.moments import FloatArray, IntArray


class Levels(NamedTuple):
    """The rewards (L,), rising, and the outcomes (L-1, ..., M) at or below and above each but the last."""

    rewards: FloatArray
    below: IntArray
    above: IntArray

    @property
    def gaps(self) -> FloatArray:
        """r_(l+1) - r_l, (L-1,)."""
        return self.rewards[1:] - self.rewards[:-1]

    def mean(self, stay: FloatArray) -> FloatArray:
        """Max@k from the chances (L-1, ...) to stay at or below each level but the last."""
        mean: FloatArray = self.rewards[-1] - np.einsum("l,l...->...", self.gaps, stay)
        return mean


def max_at_k(R: Outcomes, k: int, w: ArrayLike | None = None) -> Value:
    """Max@k, averaged over all draws of k of a question's trials; Pass@k where w = [0, 1].

    Args:
        R: A vector, an (M, N) matrix or a data frame of categories, or `Counts`.
        k: How many draws; every question needs as many trials.
        w: The reward of each category; omit it for zeros and ones and for `Counts`.

    Returns:
        The score, a float for one model and an array for a batch.

    Examples:
        >>> from scorio.eval import max_at_k
        >>> round(max_at_k([[0, 2, 1], [1, 0, 0]], k=2, w=[0.0, 0.5, 1.0]), 4)
        0.5833
    """
    counts = as_counts(R, w)
    score = all_successes(bank_draws(k, int(counts.trials.min())))
    levels = _levels(counts.outcomes, counts.w)
    if levels.rewards.size == 1:
        return as_value(np.full(counts.n.shape[:-2], counts.w[0]))
    pairs = distinct(levels.below, levels.above)
    return as_value(levels.mean(pairs.mean(bank_values((score,), pairs)[0])))


def max_at_k_ci(
    R: Outcomes,
    k: int,
    w: ArrayLike | None = None,
    R0: ArrayLike | None = None,
    confidence: float = 0.95,
    bounds: Bounds = None,
) -> Summary:
    """Posterior summary of Max@k under the Dirichlet posterior of `bayes`, for any k >= 1.

    The interval is clipped to the rewards unless `bounds` are given. The chance p_l of a reward of at most r_l is Beta,
    and p_l / p_m is independent of p_m where l < m; so Cov(x_l, x_m) = Var(x_m) E[x_l] / E[x_m].

    Args:
        R: A vector, an (M, N) matrix or a data frame of categories, or `Counts`.
        k: How many draws, at least 1.
        w: The reward of each category; omit it for zeros and ones and for `Counts`.
        R0: Prior outcomes, one row per question; omit it for none and for `Counts`.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for the smallest and the largest reward.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import max_at_k_ci
        >>> np.round(max_at_k_ci([[0, 2, 1], [1, 0, 0]], k=2, w=[0.0, 0.5, 1.0]), 4)
        array([0.5952, 0.1172, 0.3654, 0.825 ])
    """
    counts = as_counts(R, w, R0)
    score = all_successes(_validate.integer(k, "k", 1))
    levels = _levels(counts.outcomes + 1, counts.w)
    if bounds is None:
        bounds = levels.rewards[0], levels.rewards[-1]
    if levels.rewards.size == 1:
        constant = np.full(counts.n.shape[:-2], counts.w[0])
        return summary(constant, np.zeros_like(constant), confidence, bounds)
    pairs = distinct(levels.below - 1, levels.above - 1)  # the uniform prior of the kernel adds one to each
    moments = posterior_moments((score,), pairs)
    stay, var = pairs.spread(moments.mean[0]), pairs.spread(moments.cov[0, 0])
    total = _variance(stay, var, levels.gaps) / counts.questions**2
    return summary(levels.mean(pairs.mean(moments.mean[0])), total, confidence, bounds)


def _levels(outcomes: IntArray, w: FloatArray) -> Levels:
    rewards = np.unique(w)
    upto = np.zeros((rewards.size, *outcomes.shape[:-1]), dtype=np.int64)
    for category, level in enumerate(np.searchsorted(rewards, w)):
        upto[level:] += outcomes[..., category]
    return Levels(rewards, upto[:-1], upto[-1] - upto[:-1])


def _variance(stay: FloatArray, var: FloatArray, gaps: FloatArray) -> FloatArray:
    """Sum over the questions of Var(sum_l gaps_l x_l), (...)."""
    total = np.zeros(stay.shape[1:])
    lower = np.zeros(stay.shape[1:])
    for gap, mean, variance in zip(gaps, stay, var, strict=True):
        # where a chance underflows to zero, its variance has done so as well
        total += gap * variance * (gap + 2.0 * lower / np.where(mean > 0.0, mean, 1.0))
        lower += gap * mean
    summed: FloatArray = total.sum(axis=-1)
    return summed
