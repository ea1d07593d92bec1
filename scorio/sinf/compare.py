"""The comparison of two models: on these questions, and on questions like these.

Ties within an indifference zone.

How far a pair is on its way to the horizon, measured in information.

What choosing the model that is ahead costs on average.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from scorio._tables import html_table
from scorio.moments import CountArray, FloatArray, question_moments


def expected_loss(d: FloatArray | float, s: FloatArray | float) -> FloatArray:
    """E[max(-D, 0)] for D ~ N(d, s^2): s [phi(z) - z (1 - Phi(z))], z = d/s; max(-d, 0) where s is 0.

    The regret to expect from choosing the first of two models, whose estimated lead is d.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.divide(d, s)
        loss = s * (np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) - z * ndtr(-z))
    expected: FloatArray = np.where(np.greater(s, 0.0), np.maximum(loss, 0.0), np.maximum(np.negative(d), 0.0))
    return expected


def trial_variance(nu: FloatArray, w: FloatArray) -> FloatArray:
    """Predictive variance v_q of one further trial's value: sum_k w_k^2 p_k - (sum_k w_k p_k)^2 with p = nu/T.

    It is the posterior variance of the question's score times T + 1. With the uniform prior, nu = n + 1, it stays well
    above zero for a question that was always answered alike. With the self-centred prior add `unseen_variance` of
    `scorio.sinf.prior`: without it t runs ahead of a model with few trials, and calls between exact ties with it.
    """
    variance: FloatArray = question_moments(nu, w).var * (nu.sum(axis=-1) + 1.0)
    return variance


def variance_at(v: FloatArray, trials: CountArray) -> FloatArray:
    """sum_q v_q / N_q of each model, for trials N_q held now or planned for the horizon."""
    total: FloatArray = (v / trials).sum(axis=-1)
    return total


def information_fraction(at_horizon: FloatArray, now: FloatArray) -> FloatArray:
    """t = (sum_q v_q/N_max) / (sum_q v_q/N_q), the sums over the questions of both models of a pair.

    The same v_q stand above and below, so t is exactly N/N_max for equal trials whatever v is, reaches 1 exactly at
    the horizon, and moves only a little when the estimates of v move.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction: FloatArray = np.where(np.isfinite(now), at_horizon / now, 0.0)
    return fraction


def tied(
    d: FloatArray | float, s: FloatArray | float, bound: FloatArray | float, delta: FloatArray | float
) -> NDArray[np.bool_]:
    """|d| + b s <= delta: the interval d +- b s lies inside the indifference zone; never where b is infinite."""
    with np.errstate(invalid="ignore"):
        inside: NDArray[np.bool_] = np.abs(d) + np.multiply(bound, s) <= delta
    return inside


class Comparison(NamedTuple):
    """Two scores compared, or arrays of such comparisons; positive values favour the first."""

    difference: FloatArray
    sigma: FloatArray
    z: FloatArray
    rho: FloatArray

    def _repr_html_(self) -> str:
        return html_table(self)


def compare(
    mean_a: FloatArray | float, var_a: FloatArray | float, mean_b: FloatArray | float, var_b: FloatArray | float
) -> Comparison:
    """z = (a - b) / sqrt(var_a + var_b) with its sign, and rho = Phi(|z|), the order confidence of the paper (2.9).

    Where both variances are 0, z is infinite, or 0 for equal scores: an exact tie is not a resolved pair.
    """
    difference = np.asarray(np.subtract(mean_a, mean_b), dtype=float)
    sigma = np.sqrt(np.add(var_a, var_b))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(difference == 0.0, 0.0, difference / sigma)
    return Comparison(difference, sigma, z, ndtr(np.abs(z)))


def sampled_variance(d: FloatArray, clusters: NDArray[Any] | None = None) -> FloatArray:
    """Variance of the mean difference when the M questions (last axis) are a sample: sum_q (d_q - mean d)^2/(M(M-1)).

    It already contains the noise of the trials. With a cluster label for each question, residuals are first added
    within the G clusters, and the sum of their squares is scaled by G/((G - 1) M^2) (Liang and Zeger 1986; Miller
    2024), which for clusters of one question is the first formula. One question or one cluster says nothing: infinite.
    """
    questions = d.shape[-1]
    residuals = d - d.mean(axis=-1, keepdims=True)
    if clusters is None:
        groups, sums = questions, residuals
    else:
        names, members = np.unique(clusters, return_inverse=True)
        groups, sums = names.size, np.zeros((*d.shape[:-1], names.size))
        np.add.at(sums.T, members, residuals.T)
    if groups < 2:
        return np.full(d.shape[:-1], np.inf)
    variance: FloatArray = np.square(sums).sum(axis=-1) * (groups / ((groups - 1.0) * questions**2))
    return variance
