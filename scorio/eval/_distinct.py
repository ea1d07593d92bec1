"""Questions with equal counts have equal values, so each kernel is evaluated on the distinct counts only."""

from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray, IntArray

FEW = 64  # questions whose kernel costs less than finding the distinct ones


class Distinct(NamedTuple):
    """D distinct (successes, failures) pairs, which one each question has, (..., M), and the range of their sums."""

    successes: IntArray
    failures: IntArray
    where: IntArray
    fewest: int
    most: int

    def spread(self, values: FloatArray) -> FloatArray:
        """From values of the pairs, on the last axis, to values of the questions."""
        return values.take(self.where, axis=-1)

    def mean(self, values: FloatArray) -> FloatArray:
        """From values of the pairs, on the last axis, to their mean over a model's questions."""
        total: FloatArray = self.spread(values).sum(axis=-1)
        return total / int(self.where.shape[-1])

    def var_of_mean(self, var: FloatArray) -> FloatArray:
        """From variances of the pairs to the variance of the mean over a model's independent questions."""
        return self.mean(var / self.where.shape[-1])


def equal_trials(successes: IntArray, trials: int) -> Distinct:
    """Group questions that all have the same number of trials."""
    if trials < successes.size:
        every = np.arange(trials + 1)
        return Distinct(every, trials - every, successes, trials, trials)
    return _group(successes, trials - successes, trials, trials)


def distinct(successes: IntArray, failures: IntArray) -> Distinct:
    """Group the questions, of any batch shape, by their pair of counts."""
    trials = successes + failures
    fewest, most = int(trials.min()), int(trials.max())
    return equal_trials(successes, most) if fewest == most else _group(successes, failures, fewest, most)


def _group(successes: IntArray, failures: IntArray, fewest: int, most: int) -> Distinct:
    if successes.size <= FEW:
        each = np.arange(successes.size).reshape(successes.shape)
        return Distinct(successes.ravel(), failures.ravel(), each, fewest, most)
    keys, where = _numbered(successes * (most + 1) + failures)
    return Distinct(keys // (most + 1), keys % (most + 1), where, fewest, most)


def _numbered(key: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct keys, and which of them each key is: without sorting where the range of the keys is small."""
    top = int(key.max())
    if top > 4 * key.size + 4096:
        keys, flat = np.unique(key, return_inverse=True)
        return keys, flat.reshape(key.shape)
    number = np.bincount(key.ravel(), minlength=top + 1)
    keys = number.nonzero()[0]
    number[keys] = np.arange(keys.size)
    return keys, number[key]
