"""The two scales of the library, on (possibly ragged) counts: Bayes@N and the average.

A question q of a model has counts n_qk of trials in category k, prior counts n0_qk >= 0 (uniform: 1 each),
nu_qk = n_qk + n0_qk and T_q = sum_k nu_qk. The posterior of its category probabilities is Dirichlet(nu_q), so its
score sum_k w_k pi_qk has the mean and variance of `question_moments`. A model's score is the mean over its M
questions, which are independent. Where questions have weights g_q, scaled to a mean of 1 (`relative_weights`), a
question enters the mean with g_q times its score, and the variance with g_q^2 times its variance.

Everything here is a kernel: arrays of shape (..., M, K) in, arrays of shape (...) out, no validation.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer]
CountArray = IntArray | FloatArray


class Moments(NamedTuple):
    """Mean and variance of one score, or arrays of them."""

    mean: FloatArray
    var: FloatArray


MIN_SUM_CATEGORIES = 8
"""Fewer categories are added one by one: along a short last axis that takes a fifth of the time of a sum."""


def over_categories(n: CountArray) -> NDArray[Any]:
    """sum_k n_qk, (..., K) to (...): to the last bit what `sum` gives."""
    if n.shape[-1] >= MIN_SUM_CATEGORIES:
        return np.asarray(n.sum(axis=-1))
    total: NDArray[Any] = n[..., 0].astype(np.float64 if n.dtype.kind == "f" else np.int64)
    for category in range(1, n.shape[-1]):
        total += n[..., category]
    return total


def over_questions(n: CountArray) -> NDArray[Any]:
    """sum_q n_qk, (..., M, K) to (..., K): the same as `sum` of whole counts, whose order changes nothing."""
    if n.dtype.kind == "f" or n.shape[-1] >= MIN_SUM_CATEGORIES:
        return np.asarray(n.sum(axis=-2))
    return np.stack([n[..., category].sum(axis=-1) for category in range(n.shape[-1])], axis=-1)


def relative_weights(weights: ArrayLike) -> FloatArray:
    """g_q: weights of questions (M,), all positive, scaled to a mean of 1."""
    g = np.asarray(weights, dtype=float)
    if g.ndim != 1 or not g.size or not np.isfinite(g).all() or g.min() <= 0.0:
        raise ValueError(f"weights of questions must be a vector of positive numbers, got {weights!r}")
    return np.asarray(g / g.mean())


def weighted(values: NDArray[Any], g: FloatArray | None, power: int = 1) -> NDArray[Any]:
    """Values (..., M) times g_q, or a power of it; None leaves them as they are."""
    return values if g is None else np.asarray(values * g**power)


def question_moments(nu: FloatArray, w: FloatArray) -> Moments:
    """Posterior moments of each question's score under Dirichlet(nu): paper, Eq. A.5, for ragged T_q.

    mean_q = sum_k w_k nu_qk / T_q,  var_q = [sum_k w_k^2 nu_qk / T_q - mean_q^2] / (T_q + 1).
    """
    total = over_categories(nu)
    centred = w - w[0]
    first = nu @ centred / total
    var = nu @ (centred * centred) / total
    var -= first * first
    var = np.maximum(var, 0.0)
    total += 1.0
    var /= total
    first += w[0]
    return Moments(first, var)


def bayes_moments(nu: FloatArray, w: FloatArray, g: FloatArray | None = None) -> Moments:
    """Bayes@N: mu = mean over questions, sigma^2 = sum of the questions' variances / M^2 (paper, Algorithm 1)."""
    mean, var = question_moments(nu, w)
    questions = nu.shape[-2]
    return Moments(weighted(mean, g).sum(axis=-1) / questions, weighted(var, g, 2).sum(axis=-1) / questions**2)


def average_moments(n: CountArray, nu: FloatArray, w: FloatArray, g: FloatArray | None = None) -> Moments:
    """The average scale: a = mean_q sum_k w_k n_qk / N_q, and Bayes@N's uncertainty carried over to it.

    var(a) = (1/M^2) sum_q (T_q / N_q)^2 var_q, the paper's Eq. 20 question by question. Needs N_q >= 1.
    """
    trials = over_categories(n)
    average = np.asarray(n, dtype=np.float64) @ w / trials
    scale = over_categories(nu) / trials
    var = scale * scale * question_moments(nu, w).var
    questions = nu.shape[-2]
    return Moments(weighted(average, g).sum(axis=-1) / questions, weighted(var, g, 2).sum(axis=-1) / questions**2)
