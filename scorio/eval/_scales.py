"""Bayes@N and avg@N: the two scales of a model's score (the formulas are those of `scorio.moments`).

Source of both: Hariri, Samandar, Hinczewski and Chaudhary, "Don't Pass@k", arXiv:2510.04265.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from scorio._tables import is_frame
from scorio.counts import Counts
from scorio.eval._inputs import Bounds, Estimate, Outcomes, Summary, as_counts, as_value, summary
from scorio.moments import Moments, average_moments, bayes_moments


def bayes(R: Outcomes, w: ArrayLike | None = None, R0: ArrayLike | None = None) -> Estimate:
    """Bayes@N: (mu, sigma), the posterior mean of the weighted score and its standard deviation.

    R is a vector, an (M, N) matrix of categories or a `Counts`; w, one weight per category, may be omitted for binary
    outcomes; R0 holds prior outcomes, a row per question (paper, Algorithm 1).

    Args:
        R: A vector, an (M, N) matrix or a data frame of categories, or `Counts`.
        w: What each category is worth; omit it for zeros and ones and for `Counts`.
        R0: Prior outcomes, one row per question; omit it for none and for `Counts`.

    Returns:
        An `Estimate` (mu, sigma), of floats for one model and arrays for a batch.

    Examples:
        >>> from scorio.eval import bayes
        >>> mu, sigma = bayes([[1, 0, 1, 1], [0, 0, 1, 0]])
        >>> round(mu, 4), round(sigma, 4)
        (0.5, 0.126)
        >>> round(bayes([[0, 2, 1], [1, 0, 0]], w=[0.0, 0.5, 1.0]).mu, 4)
        0.4167
    """
    mean, var = _bayes(R, w, R0)
    return Estimate(as_value(mean), as_value(np.sqrt(var)))


def bayes_ci(
    R: Outcomes,
    w: ArrayLike | None = None,
    R0: ArrayLike | None = None,
    confidence: float = 0.95,
    bounds: Bounds = None,
) -> Summary:
    """(mu, sigma, lo, hi): `bayes` and its central normal interval, clipped to `bounds`.

    Args:
        R: A vector, an (M, N) matrix or a data frame of categories, or `Counts`.
        w: What each category is worth; omit it for zeros and ones and for `Counts`.
        R0: Prior outcomes, one row per question; omit it for none and for `Counts`.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import bayes_ci
        >>> np.round(bayes_ci([[1, 0, 1, 1], [0, 0, 1, 0]]), 4)
        array([0.5   , 0.126 , 0.2531, 0.7469])
    """
    return summary(*_bayes(R, w, R0), confidence, bounds)


def avg(R: Outcomes, w: ArrayLike | None = None) -> Estimate:
    """avg@N: (a, sigma_a), the plain average and the uncertainty of Bayes@N on its scale (paper, Eq. 20).

    Questions count equally however many trials they have; each needs one at least.

    Args:
        R: A vector, an (M, N) matrix or a data frame of categories, or `Counts`.
        w: What each category is worth; omit it for zeros and ones and for `Counts`.

    Returns:
        An `Estimate` (mu, sigma), of floats for one model and arrays for a batch.

    Examples:
        >>> from scorio.eval import avg
        >>> a, sigma = avg([[1, 0, 1, 1], [0, 0, 1, 0]])
        >>> round(a, 4), round(sigma, 4)
        (0.5, 0.189)
    """
    mean, var = _average(R, w)
    return Estimate(as_value(mean), as_value(np.sqrt(var)))


def avg_ci(R: Outcomes, w: ArrayLike | None = None, confidence: float = 0.95, bounds: Bounds = None) -> Summary:
    """(a, sigma_a, lo, hi): `avg` and its central normal interval, clipped to `bounds`.

    Args:
        R: A vector, an (M, N) matrix or a data frame of categories, or `Counts`.
        w: What each category is worth; omit it for zeros and ones and for `Counts`.
        confidence: Probability of the two-sided interval, between 0 and 1.
        bounds: Ends that the interval is clipped to; None for no clipping.

    Returns:
        A `Summary` (mu, sigma, lo, hi), of floats for one model and arrays for a batch.

    Examples:
        >>> import numpy as np
        >>> from scorio.eval import avg_ci
        >>> np.round(avg_ci([[1, 0, 1, 1], [0, 0, 1, 0]], bounds=(0, 1)), 4)
        array([0.5   , 0.189 , 0.1296, 0.8704])
    """
    return summary(*_average(R, w), confidence, bounds)


def _bayes(R: Outcomes, w: ArrayLike | None, R0: ArrayLike | None) -> Moments:
    counts = as_counts(R, w, R0)
    return bayes_moments(counts.nu, counts.w)


def _average(R: Outcomes, w: ArrayLike | None) -> Moments:
    counts = as_counts(R, w)
    if (isinstance(R, Counts) or is_frame(R)) and not counts.trials.all():
        raise ValueError(f"R must have a trial of every question, got none of {(counts.trials == 0).sum()} of them")
    return average_moments(counts.outcomes, counts.nu, counts.w)
