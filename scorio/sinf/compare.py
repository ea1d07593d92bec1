"""The comparison of two models: on these questions, and on questions like these.

Ties within an indifference zone.

How far a pair is on its way to the horizon, measured in information.

What choosing the model that is ahead costs on average.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from scorio.moments import CountArray, FloatArray, Moments, over_categories, question_moments, weighted


def expected_loss(d: FloatArray | float, s: FloatArray | float) -> FloatArray:
    """E[max(-D, 0)] for D ~ N(d, s^2): s [phi(z) - z (1 - Phi(z))], z = d/s; max(-d, 0) where s is 0.

    The regret to expect from choosing the first of two models, whose estimated lead is d.

    Args:
        d: The estimated lead of the first model.
        s: Its standard deviation, not negative.

    Returns:
        The expected loss, not negative.

    Examples:
        >>> from scorio.sinf import expected_loss
        >>> round(float(expected_loss(0.04, 0.03)), 5)
        0.00127
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.divide(d, s)
        loss = s * (np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) - z * ndtr(-z))
    return np.where(np.greater(s, 0.0), np.maximum(loss, 0.0), np.maximum(np.negative(d), 0.0))


def trial_variance(nu: FloatArray, w: FloatArray, questions: Moments | None = None) -> FloatArray:
    """Predictive variance v_q of one further trial's value: sum_k w_k^2 p_k - (sum_k w_k p_k)^2 with p = nu/T.

    It is the posterior variance of the question's score times T + 1. With the uniform prior, nu = n + 1, it stays well
    above zero for a question that was always answered alike. With the self-centred prior add `unseen_variance` of
    `scorio.sinf.prior`: without it t runs ahead of a model with few trials, and calls between exact ties with it.

    Args:
        nu: The posterior Dirichlet parameters of each question, (..., M, K).
        w: What each category is worth, (K,).
        questions: `question_moments(nu, w)`, where they are there already.

    Returns:
        The variance of one further trial of each question, (..., M).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import trial_variance
        >>> nu = np.array([[2.0, 4.0], [1.0, 5.0]])  # one wrong and three right; none wrong and four right
        >>> np.round(trial_variance(nu, np.array([0.0, 1.0])), 4)
        array([0.2222, 0.1389])
    """
    var = (question_moments(nu, w) if questions is None else questions).var
    return var * (over_categories(nu) + 1.0)


def variance_at(v: FloatArray, trials: CountArray, g: FloatArray | None = None) -> FloatArray:
    """sum_q g_q^2 v_q / N_q of each model, for trials N_q held now or planned for the horizon.

    Args:
        v: The variance of one trial of each question, (..., M).
        trials: The trials of each question, (..., M).
        g: Weights of the questions with mean 1, (M,); None: alike.

    Returns:
        The sum of each model, (...).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import variance_at
        >>> round(float(variance_at(np.array([0.2, 0.1]), np.array([4, 5]))), 4)
        0.07
    """
    total: FloatArray = weighted(v / trials, g, 2).sum(axis=-1)
    return total


def information_fraction(at_horizon: FloatArray, now: FloatArray) -> FloatArray:
    """t = (sum_q v_q/N_max) / (sum_q v_q/N_q), the sums over the questions of both models of a pair.

    The same v_q stand above and below, so t is exactly N/N_max for equal trials whatever v is, reaches 1 exactly at
    the horizon, and moves only a little when the estimates of v move.

    Args:
        at_horizon: The sum of v_q / N_q over both models, at the horizon.
        now: The same for the trials held now.

    Returns:
        t of each pair; 0 where a question has no trial yet.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import information_fraction
        >>> float(information_fraction(np.array(0.02), np.array(0.08)))
        0.25
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction: FloatArray = np.where(np.isfinite(now), at_horizon / now, 0.0)
    return fraction


def tied(
    d: FloatArray | float, s: FloatArray | float, bound: FloatArray | float, delta: FloatArray | float
) -> NDArray[np.bool_]:
    """|d| + b s <= delta: the interval d +- b s lies inside the indifference zone; never where b is infinite.

    Args:
        d: The difference of the two scores.
        s: The standard deviation of the difference.
        bound: The boundary b on |z|.
        delta: The indifference zone.

    Returns:
        Whether each pair is tied.

    Examples:
        >>> from scorio.sinf import tied
        >>> bool(tied(0.01, 0.01, 2.5, delta=0.04)), bool(tied(0.02, 0.01, 2.5, delta=0.04))
        (True, False)
    """
    with np.errstate(invalid="ignore"):
        inside: NDArray[np.bool_] = np.abs(d) + np.multiply(bound, s) <= delta
    return inside


class Comparison(NamedTuple):
    """Two scores compared, or arrays of such comparisons; positive values favour the first.

    Attributes:
        difference: The first score minus the second.
        sigma: Its standard deviation.
        z: difference / sigma.
        rho: Phi(|z|), the confidence in the order.

    Examples:
        >>> from scorio.sinf import compare
        >>> round(float(compare(0.7, 0.03**2, 0.6, 0.04**2).difference), 4)
        0.1
    """

    difference: FloatArray
    sigma: FloatArray
    z: FloatArray
    rho: FloatArray


def compare(
    mean_a: FloatArray | float, var_a: FloatArray | float, mean_b: FloatArray | float, var_b: FloatArray | float
) -> Comparison:
    """z = (a - b) / sqrt(var_a + var_b) with its sign, and rho = Phi(|z|), the order confidence of the paper (2.9).

    Where both variances are 0, z is infinite, or 0 for equal scores: an exact tie is not a resolved pair.

    Args:
        mean_a: The score of the first model.
        var_a: Its variance.
        mean_b: The score of the second model.
        var_b: Its variance.

    Returns:
        A `Comparison` (difference, sigma, z, rho).

    Examples:
        >>> from scorio.sinf import compare
        >>> pair = compare(0.7, 0.03**2, 0.6, 0.04**2)
        >>> round(float(pair.z), 4), round(float(pair.rho), 4)
        (2.0, 0.9772)
    """
    difference, sigma, z = standardised(mean_a, var_a, mean_b, var_b)
    return Comparison(difference, sigma, z, order_confidence(z))


def standardised(
    mean_a: FloatArray | float, var_a: FloatArray | float, mean_b: FloatArray | float, var_b: FloatArray | float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Difference, sigma and z of `compare`, without the confidence, which takes most of its time for many pairs."""
    difference = np.asarray(np.subtract(mean_a, mean_b), dtype=float)
    sigma = np.sqrt(np.add(var_a, var_b))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(difference == 0.0, 0.0, difference / sigma)
    return difference, sigma, z


def order_confidence(z: FloatArray) -> FloatArray:
    """rho = Phi(|z|)."""
    return np.asarray(ndtr(np.abs(z)))


def sampled_variance(d: FloatArray, clusters: NDArray[Any] | None = None, g: FloatArray | None = None) -> FloatArray:
    """Variance of the mean difference when the M questions (last axis) are a sample: sum_q (d_q - mean d)^2/(M(M-1)).

    It already contains the noise of the trials. With a cluster label for each question, residuals are first added
    within the G clusters, and the sum of their squares is scaled by G/((G - 1) M^2) (Liang and Zeger 1986; Miller
    2024), which for clusters of one question is the first formula. One question or one cluster says nothing: infinite.
    Of questions with weights, residuals are those about the weighted mean, each times its weight.

    Args:
        d: The difference of the two models on each question, (..., M).
        clusters: A label for each question; None where each stands for itself.
        g: Weights of the questions with mean 1, (M,); None: alike.

    Returns:
        The variance of the mean of d, (...).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import sampled_variance
        >>> d = np.array([0.5, 0.0, 0.25, 0.25])
        >>> round(float(sampled_variance(d)), 4)
        0.0104
        >>> round(float(sampled_variance(d, clusters=np.array(["a", "b", "a", "b"]))), 4)
        0.0156
    """
    sums, scale = _summed_residuals(d, clusters, g)
    if not np.isfinite(scale):
        return np.full(d.shape[:-1], np.inf)
    variance: FloatArray = np.square(sums).sum(axis=-1) * scale
    return variance


def sampled_covariance(
    values: FloatArray, clusters: NDArray[Any] | None = None, g: FloatArray | None = None
) -> FloatArray:
    """Covariances of the means of several models when the M questions (last axis) are a sample.

    The variance of any difference of two means follows from them, as `sampled_variance` has it from the differences
    themselves: cheaper where there are more pairs than models.

    Args:
        values: The mean of each model on each question, (L, M).
        clusters: A label for each question; None where each stands for itself.
        g: Weights of the questions with mean 1, (M,); None: alike.

    Returns:
        The covariances (L, L); infinite variances where there is one question or one cluster.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import sampled_covariance, sampled_variance
        >>> a = np.array([[0.5, 0.0, 0.25, 0.25], [0.0, 0.5, 0.25, 1.0]])
        >>> cov = sampled_covariance(a)
        >>> bool(np.isclose(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1], sampled_variance(a[0] - a[1])))
        True
    """
    sums, scale = _summed_residuals(values, clusters, g)
    if not np.isfinite(scale):
        return np.asarray(np.where(np.eye(len(values), dtype=bool), np.inf, 0.0))
    return np.asarray(sums @ sums.T * scale)


def _summed_residuals(d: FloatArray, clusters: NDArray[Any] | None, g: FloatArray | None) -> tuple[FloatArray, float]:
    """Residuals of the last axis, added within clusters, and what the sum of their squares is scaled by."""
    questions = d.shape[-1]
    residuals = weighted(d - weighted(d, g).mean(axis=-1, keepdims=True), g)
    if clusters is None:
        groups, sums = questions, residuals
    else:
        names, members = np.unique(clusters, return_inverse=True)
        groups, sums = names.size, np.zeros((*d.shape[:-1], names.size))
        np.add.at(sums.T, members, residuals.T)
    return sums, groups / ((groups - 1.0) * questions**2) if groups > 1 else np.inf
