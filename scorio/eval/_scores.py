"""The Pass@k family is one thing: a score for each number of successes j = 0, ..., k among k draws.

A member differs from the others in its scores alone. `_bank` averages them over draws without replacement from the
observed trials, `_posterior` over independent draws from a success probability that is known up to its posterior.

The same k is asked for again and again, so a member's score is one object for each k, and the kernels keep the tables
that they derive from it.

The finite bank: the mean score of k draws without replacement from the observed trials of a question.

The number of successes among the draws is hypergeometric; a question with c successes and f failures has

    value = sum_j s_j C(c, j) C(f, k-j) / C(c+f, k).

The terms are taken relative to the largest one and divided by their sum, so that nothing overflows and the rounding
errors of the logarithms of huge factorials cancel.

Questions with equal counts have equal values, so each kernel is evaluated on the distinct counts only.

A table of ln n!, computed once for each power of two.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from scorio.moments import FloatArray, IntArray


def log_factorials(top: int) -> FloatArray:
    """A table whose entry n is ln n! for 0 <= n <= top and infinite for -top <= n < 0, as 1 / n! is then zero."""
    return _table(1 << max(top.bit_length(), 8))


@lru_cache(maxsize=16)
def _table(size: int) -> FloatArray:
    table = np.full(2 * size, np.inf)  # a negative index lands in the second half
    gammaln(np.arange(1.0, size + 1.0), out=table[:size])
    table.flags.writeable = False
    return table


MAX_UNGROUPED = 64  # questions whose kernel costs less than finding the distinct ones


class Distinct(NamedTuple):
    """D distinct (successes, failures) pairs, which one each question has, (..., M), and the range of their sums."""

    successes: IntArray
    failures: IntArray
    where: IntArray
    min_trials: int
    max_trials: int

    def spread(self, values: FloatArray) -> FloatArray:
        """Convert values of the pairs, on the last axis, to values of the questions."""
        return values.take(self.where, axis=-1)

    def mean(self, values: FloatArray) -> FloatArray:
        """The mean over a model's questions of values of the pairs, on the last axis."""
        total: FloatArray = self.spread(values).sum(axis=-1)
        return total / int(self.where.shape[-1])

    def var_of_mean(self, var: FloatArray) -> FloatArray:
        """The variance of the mean over a model's independent questions, from variances of the pairs."""
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
    fewest, largest = int(trials.min()), int(trials.max())
    return equal_trials(successes, largest) if fewest == largest else _group(successes, failures, fewest, largest)


def _group(successes: IntArray, failures: IntArray, fewest: int, largest: int) -> Distinct:
    if successes.size <= MAX_UNGROUPED:
        index = np.arange(successes.size).reshape(successes.shape)
        return Distinct(successes.ravel(), failures.ravel(), index, fewest, largest)
    keys, where = _numbered(successes * (largest + 1) + failures)
    return Distinct(keys // (largest + 1), keys % (largest + 1), where, fewest, largest)


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


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """s_j = base + values[j - first] where that exists, and s_j = base elsewhere in 0, ..., k."""

    k: int
    first: int
    values: FloatArray
    base: float = 0.0

    def dense(self) -> FloatArray:
        """(s_0, ..., s_k)."""
        scores = np.full(self.k + 1, self.base)
        scores[self.first : self.first + self.values.size] += self.values
        return scores


@lru_cache(maxsize=64)
def at_least(k: int, successes: int) -> Score:
    """1 where j >= successes, and where j >= 1 if none are asked for."""
    if successes <= 1:
        return Score(k, 0, np.array([-1.0]), base=1.0)
    return Score(k, successes, np.ones(k - successes + 1))


def any_success(k: int) -> Score:
    """Pass@k, Chen et al. (2021)."""
    return at_least(k, 1)


def all_successes(k: int) -> Score:
    """Pass^k, Yao et al. (2024)."""
    return at_least(k, k)


def majority(k: int) -> Score:
    """Maj@k: more than half of the draws succeed."""
    return at_least(k, k // 2 + 1)


def share(k: int, tau: float) -> Score:
    """G-Pass@k_tau: at least ceil(tau k) of the draws succeed, and at least one; Liu et al. (2024)."""
    return at_least(k, math.ceil(tau * k - 1e-9))  # 0.28 * 25 is 7.000000000000001 in floating point


@lru_cache(maxsize=64)
def above_half(k: int) -> Score:
    """2 (j - m) / k where j > m = ceil(k / 2): mG-Pass@k, Liu et al. (2024).

    For even k that is 2 int_(1/2)^1 G-Pass@k_tau dtau; for odd k the published sum leaves out half a step.
    """
    half = (k + 1) // 2
    return Score(k, half + 1, np.arange(1.0, k - half + 1.0) * (2.0 / k))


@lru_cache(maxsize=64)
def area(k: int) -> Score:
    """AUC@K: the trapezoid over Pass@1, ..., Pass@k, Hu et al. (2026).

    Given j successes among k draws, Pass@i has the value 1 - C(k-j, i) / C(k, i), and the ratios sum to (k+1) / (j+1)
    over i = 0, ..., k; so s_j = 1 - [(k+1) / (j+1) - 1 - (k-j) / (2k)] / (k-1) for j >= 1, and s_0 = 0.
    """
    if k == 1:
        return any_success(1)
    j = np.arange(1.0, k + 1.0)
    return Score(k, 1, 1.0 - ((k + 1.0) / (j + 1.0) - 1.0 - (k - j) / (2.0 * k)) / (k - 1.0))


def spectrum(weights: FloatArray) -> Score:
    """w_1 + ... + w_j: the threshold spectrum sum_r w_r P(at least r successes)."""
    return Score(weights.size, 1, np.cumsum(weights))


CELLS = 1 << 20  # of a table by questions, draws or nodes that are held at a time


class Draws(NamedTuple):
    """Numbers of successes j = 0, ..., k in k draws, and ln j! (k-j)!."""

    j: IntArray
    logs: FloatArray


def bank_values(scores: tuple[Score, ...], pairs: Distinct) -> FloatArray:
    """(S, D) values of S scores of k draws, for D (successes, failures) pairs of k trials or more each."""
    draws, weights, table = _draws(scores[0].k), _weights(scores), log_factorials(pairs.max_trials)
    sums = np.empty((len(weights), pairs.successes.size))
    rows = max(1, CELLS // weights.shape[1])
    for start in range(0, pairs.successes.size, rows):
        part = slice(start, start + rows)
        chances = _relative_chances(draws, table, pairs.successes[part], pairs.failures[part])
        np.matmul(weights, chances.T, out=sums[:, part])
    return np.asarray(sums[:-1] / sums[-1])


def _relative_chances(draws: Draws, table: FloatArray, successes: IntArray, failures: IntArray) -> FloatArray:
    """Chance of each j relative to the likeliest one, (D, k + 1)."""
    logs = table[successes[:, np.newaxis] - draws.j]
    logs += table[failures[:, np.newaxis] - draws.j[::-1]]
    logs += draws.logs
    np.subtract(logs.min(axis=1, keepdims=True), logs, out=logs)
    return np.asarray(np.exp(logs, out=logs))


@lru_cache(maxsize=64)
def _draws(k: int) -> Draws:
    j = np.arange(k + 1)
    table = log_factorials(k)
    return Draws(j, table[j] + table[k - j])


@lru_cache(maxsize=64)
def _weights(scores: tuple[Score, ...]) -> FloatArray:
    """The scores of each j, and ones below, which sum the chances: (S + 1, k + 1)."""
    return np.array([*(score.dense() for score in scores), np.ones(scores[0].k + 1)])
