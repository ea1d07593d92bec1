"""The finite bank: the mean score of k draws without replacement from the observed trials of a question.

The number of successes among the draws is hypergeometric; a question with c successes and f failures has

    value = sum_j s_j C(c, j) C(f, k-j) / C(c+f, k).

The terms are taken relative to the largest one and divided by their sum, so that nothing overflows and the rounding
errors of the logarithms of huge factorials cancel.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from scorio.eval._distinct import Distinct
from scorio.eval._log_factorial import log_factorials
from scorio.eval._scores import Score
from scorio.moments import FloatArray, IntArray

CELLS = 1 << 20  # of the (questions, draws) table that are held at a time


class Draws(NamedTuple):
    """j = 0, ..., k, and ln j! (k-j)!."""

    j: IntArray
    logs: FloatArray


def bank_values(scores: tuple[Score, ...], pairs: Distinct) -> FloatArray:
    """(S, D) values of S scores of k draws, for D (successes, failures) pairs of k trials or more each."""
    draws, weights, table = _draws(scores[0].k), _weights(scores), log_factorials(pairs.most)
    sums = np.empty((len(weights), pairs.successes.size))
    rows = max(1, CELLS // weights.shape[1])
    for start in range(0, pairs.successes.size, rows):
        part = slice(start, start + rows)
        chances = _relative_chances(draws, table, pairs.successes[part], pairs.failures[part])
        np.matmul(weights, chances.T, out=sums[:, part])
    values: FloatArray = sums[:-1] / sums[-1]
    return values


def _relative_chances(draws: Draws, table: FloatArray, successes: IntArray, failures: IntArray) -> FloatArray:
    """Chance of each j relative to the likeliest one, (D, k + 1)."""
    logs = table[successes[:, np.newaxis] - draws.j]
    logs += table[failures[:, np.newaxis] - draws.j[::-1]]
    logs += draws.logs
    np.subtract(logs.min(axis=1, keepdims=True), logs, out=logs)
    chances: FloatArray = np.exp(logs, out=logs)
    return chances


@lru_cache(maxsize=64)
def _draws(k: int) -> Draws:
    j = np.arange(k + 1)
    table = log_factorials(k)
    return Draws(j, table[j] + table[k - j])


@lru_cache(maxsize=64)
def _weights(scores: tuple[Score, ...]) -> FloatArray:
    """The scores of each j, and ones below, which sum the chances: (S + 1, k + 1)."""
    return np.array([*(score.dense() for score in scores), np.ones(scores[0].k + 1)])
