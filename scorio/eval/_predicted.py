"""A score by a grader that errs, corrected by labels that a person has given to some of the same trials.

Prediction-powered inference (Angelopoulos et al. 2023, Science 382:669): the grader's mean over all trials, plus the
mean of label minus grade over those that have a label. Questions weigh alike in both, and the labelled trials are among
the graded ones, so that what the two means have in common is taken off their variances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate

PSEUDO = 2.0
"""Errors of one span, z^2/2 of a 95% interval (Agresti and Coull 1998): few labels may not show a rare error at all."""
MIN_VARIANCE_SHARE = 0.1
"""The sampling variance that is left at least, whatever an estimated covariance takes off it."""


class Corrected(NamedTuple):
    """A corrected score and its uncertainty.

    Attributes:
        mu: The corrected score.
        sigma: Its standard deviation, with the sampling error of the score and that of the correction.
        shift: What the labels add to the grader's score.
        shift_sigma: The standard deviation of the shift.

    Examples:
        >>> from scorio.eval import corrected
        >>> found = corrected((0.5, 0.1), [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], means=[0.75, 0.25], trials=[8, 8])
        >>> round(found.mu, 3), round(found.shift, 3)
        (0.25, -0.25)
    """

    mu: float
    sigma: float
    shift: float
    shift_sigma: float


def corrected(
    estimate: tuple[float, float],
    graded: ArrayLike,
    labelled: ArrayLike,
    questions: ArrayLike,
    *,
    means: ArrayLike,
    trials: ArrayLike,
    span: float = 1.0,
) -> Corrected:
    """The mean over questions of what labels would have given, from few of them.

    shift = mean over labelled questions of the mean of (label - grade); its variance is s^2 / n, with s^2 that of
    label - grade over the labelled trials. The variance of the whole is that of the score, plus that, plus twice the
    covariance of grade and label - grade within questions over the number of all trials.

    Args:
        estimate: The score by the grader and its standard deviation, over all trials.
        graded: What the grader gave each labelled trial.
        labelled: What the label gives it; the trials with a label are drawn whatever they are like.
        questions: The number of its question, from 0.
        means: The grader's mean on each question, over all trials.
        trials: The number of trials of each question.
        span: The range of the values.

    Returns:
        The `Corrected` score.

    Examples:
        >>> from scorio.eval import corrected
        >>> perfect = corrected((0.5, 0.1), [1, 0] * 50, [1, 0] * 50, [0, 1] * 50, means=[1.0, 0.0], trials=[100, 100])
        >>> perfect.mu, round(perfect.shift_sigma, 3)
        (0.5, 0.014)
    """
    grades, labels = _validate.floats(graded, "graded"), _validate.floats(labelled, "labelled")
    where = np.asarray(questions, dtype=np.int64)
    average, number = _validate.floats(means, "means"), _validate.floats(trials, "trials")
    if not (grades.shape == labels.shape == where.shape) or grades.ndim != 1 or grades.size < 2:
        raise ValueError(
            f"graded, labelled and questions must be vectors of one length, 2 at least, got {grades.shape}"
        )
    if average.shape != number.shape or average.ndim != 1 or where.min() < 0 or where.max() >= average.size:
        raise ValueError("means and trials must have one value for each question that questions names")
    if number.min() <= 0:
        raise ValueError(f"trials must be positive for each question, got {number.min():g}")
    score, sigma = estimate
    labelled_questions, at, count = np.unique(where, return_inverse=True, return_counts=True)
    weight = 1.0 / (labelled_questions.size * count[at])  # labelled questions weigh alike, and so do the trials of one
    error = labels - grades
    shift = float(weight @ error)
    spread = (grades.size * float(weight @ (error - shift) ** 2) + PSEUDO * span**2) / (grades.size - 1)
    few = float(weight @ weight)
    all_of = float((1.0 / number).sum()) / average.size**2
    together = float(weight @ ((grades - average[where]) * (error - shift)))
    sampling = max(sigma**2 + 2.0 * together * all_of + spread * min(all_of, few), MIN_VARIANCE_SHARE * sigma**2)
    beyond = spread * max(few - all_of, 0.0)
    return Corrected(score + shift, float(np.sqrt(sampling + beyond)), shift, float(np.sqrt(spread * few)))
