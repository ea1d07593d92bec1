"""What the functions of this package accept, and what they return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate
from scorio._normal import normal_interval
from scorio._tables import is_frame
from scorio.counts import Counts, successes
from scorio.eval._scores import Distinct, distinct, equal_trials
from scorio.moments import FloatArray

Outcomes = ArrayLike | Counts  # a vector, an (M, N) matrix of categories, or counts
Bounds = tuple[float, float] | None
Value = float | FloatArray  # a float for one model, an array for a batch of models


class Estimate(NamedTuple):
    """A score and its uncertainty.

    Attributes:
        mu: The score.
        sigma: Its standard deviation.

    Examples:
        >>> from scorio.eval import avg
        >>> estimate = avg([[1, 1, 0, 1]])
        >>> estimate.mu, round(estimate.sigma, 4)
        (0.75, 0.2673)
    """

    mu: Value
    sigma: Value


class Summary(NamedTuple):
    """A score, its uncertainty and its interval.

    Attributes:
        mu: The score.
        sigma: Its standard deviation.
        lo: The lower end of the interval.
        hi: The upper end of the interval.

    Examples:
        >>> from scorio.eval import bayes_ci
        >>> summary = bayes_ci([[1, 1, 0, 1]])
        >>> round(summary.lo, 4), round(summary.hi, 4)
        (0.3175, 1.0159)
    """

    mu: Value
    sigma: Value
    lo: Value
    hi: Value


UNIT = (0.0, 1.0)  # the bounds of a chance


def as_counts(R: Outcomes, w: ArrayLike | None = None, R0: ArrayLike | None = None) -> Counts:
    """Tally a vector or an (M, N) matrix; a `Counts` has its own weights and prior outcomes."""
    if not isinstance(R, Counts):
        return Counts.from_outcomes(R, w, R0)
    for name, value in (("w", w), ("R0", R0)):
        if value is not None:
            raise ValueError(f"{name} must be omitted where R is a Counts, which has its own, got {value!r}")
    return R


def binary_questions(R: Outcomes) -> Distinct:
    """Successes and failures of the questions of a vector or matrix of zeros and ones, or of binary counts."""
    if is_frame(R):
        R = Counts.from_outcomes(R)
    if not isinstance(R, Counts):
        outcomes = _validate.labels(R, "R", ndim=2)
        return equal_trials(successes(outcomes, "R"), outcomes.shape[1])
    if R.categories != 2:
        raise ValueError(f"R must be binary, got counts of {R.categories} categories")
    table = R.outcomes
    return distinct(table[..., 1], table[..., 0])


def bank_draws(k: Any, fewest: int) -> int:
    """A number of draws that the trials of every question allow."""
    return _validate.integer(k, "k", 1, fewest, "the smallest number of trials of a question")


def as_value(value: FloatArray) -> Value:
    """A float, unless it is a batch."""
    return float(value) if value.ndim == 0 else value


def summary(mean: FloatArray, var: FloatArray, confidence: float, bounds: Bounds) -> Summary:
    """(mu, sigma, lo, hi) from a mean and a variance."""
    mu, sigma = as_value(mean), as_value(np.sqrt(np.maximum(var, 0.0)))  # a variance of zero may round below it
    return Summary(mu, sigma, *normal_interval(mu, sigma, confidence, bounds))
