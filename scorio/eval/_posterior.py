"""The posterior of a question's score over k independent draws, when its success probability p is uncertain.

With a Beta(alpha0, beta0) prior, c successes and f failures, p has a density proportional to p^(alpha0+c-1)
(1-p)^(beta0+f-1), and a question's value is g(p) = sum_j s_j C(k, j) p^j (1-p)^(k-j). Its moments are integrals of a
polynomial of degree n = c + f + 2k against a weight p^a (1-p)^b with small a, b > -1 that is the same for all questions
(the nearest whole parts of alpha0 - 1 and beta0 - 1 count as successes and failures). So one set of nodes serves all.

The nodes are p = cos^2(theta / 2) at equidistant theta (Fejer's first rule), where both p and 1-p keep all their
digits. n + 1 nodes are exact. Far fewer do: in theta the polynomials p^i (1-p)^(n-i), of which the integrand is a
sum with positive terms, have Fourier coefficients that fall like exp(-l^2 / (2n)), so what lies beyond l = 9 sqrt(n) is
below the rounding error. The weights are normalised question by question, and variances are summed centred, so that
nothing cancels however many trials there are.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from scorio import _validate
from scorio.eval._scores import CELLS, Distinct, Score, log_factorials
from scorio.moments import FloatArray

UNDERFLOW = 750.0  # exp(-750) is zero
BAND = 9.0  # nodes per sqrt(degree): exp(-81/2) is below the rounding error


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Quadrature nodes: ln p above ln(1-p), (2, Q), and the weights, (Q,)."""

    logs: FloatArray
    weights: FloatArray


class JointMoments(NamedTuple):
    """Means (S, ...) and covariances (S, S, ...) of S scores."""

    mean: FloatArray
    cov: FloatArray


def posterior_moments(
    scores: tuple[Score, ...], pairs: Distinct, alpha0: float = 1.0, beta0: float = 1.0
) -> JointMoments:
    """Joint posterior moments of S scores, for D (successes, failures) pairs: (S, D) and (S, S, D)."""
    alpha0, beta0 = _validate.positive(alpha0, "alpha0"), _validate.positive(beta0, "beta0")
    more = max(0, round(alpha0) - 1), max(0, round(beta0) - 1)
    exponents = np.array([pairs.successes + more[0], pairs.failures + more[1]], dtype=np.float64)
    degree = pairs.max_trials + sum(more) + 2 * scores[0].k
    size = min(degree + 1, math.ceil(BAND * math.sqrt(degree)))
    nodes = _nodes(size, alpha0 - more[0] - 1.0, beta0 - more[1] - 1.0)
    values = _values(scores, nodes)
    mean = np.empty((len(scores), pairs.successes.size))
    cov = np.empty((len(scores), len(scores), pairs.successes.size))
    rows = max(1, CELLS // size)
    for start in range(0, pairs.successes.size, rows):
        part = slice(start, start + rows)
        density = _density(exponents[:, part], nodes)
        np.matmul(values, density.T, out=mean[:, part])
        off = values[:, np.newaxis] - mean[:, part, np.newaxis]
        np.vecdot((off * density)[:, np.newaxis], off, out=cov[:, :, part])
    return JointMoments(mean, cov)


def _density(exponents: FloatArray, nodes: Nodes) -> FloatArray:
    """Posterior weight of each node, (D, Q), with rows that sum to one, from the (2, D) exponents of p and 1-p."""
    density: FloatArray = exponents.T @ nodes.logs
    density -= density.max(axis=1, keepdims=True)
    np.exp(density, out=density)
    density *= nodes.weights
    density /= density.sum(axis=1, keepdims=True)
    return density


@lru_cache(maxsize=64)
def _values(scores: tuple[Score, ...], nodes: Nodes) -> FloatArray:
    """g(p) of every score at every node, (S, Q)."""
    return np.array([_values_of(score, nodes) for score in scores])


def _values_of(score: Score, nodes: Nodes) -> FloatArray:
    """g(p) at every node, (Q,); where the table is large, without the chances that underflow to zero.

    P(j) <= exp(-2 (j - kp)^2 / k), Hoeffding's bound, so that j matters to within sqrt(-k ln(tiny) / 2) of kp.
    """
    j = np.arange(score.first, score.first + score.values.size)
    table = log_factorials(score.k)
    log_binomials = table[score.k] - table[j] - table[score.k - j]
    powers = np.array([j, score.k - j], dtype=np.float64)
    values = np.full(nodes.weights.size, score.base)
    rows = max(1, CELLS // max(1, j.size))
    reach = math.sqrt(0.5 * UNDERFLOW * score.k)
    for start in range(0, values.size, rows):
        logs = nodes.logs[:, start : start + rows]
        lowest, highest = (score.k * math.exp(log_p) - score.first for log_p in (logs[0, -1], logs[0, 0]))
        near = slice(max(0, math.floor(lowest - reach)), max(0, math.ceil(highest + reach)))
        values[start : start + rows] += np.exp(logs.T @ powers[:, near] + log_binomials[near]) @ score.values[near]
    return values


@lru_cache(maxsize=64)
def _nodes(size: int, a: float, b: float) -> Nodes:
    """Fejer's rule for the weight p^a (1-p)^b on [0, 1], from the Chebyshev moments of that weight.

    m_l = E[cos(l theta)] obeys (a+b+l+2) m_(l+1) = 2(a-b) m_l - (a+b-l+2) m_(l-1): Piessens and Branders (1973).
    """
    from scipy.fft import dct  # here, since it takes a while to load

    theta = (np.arange(size) + 0.5) * (math.pi / size)
    moments = [1.0, (a - b) / (a + b + 2.0)]
    for order in range(1, size - 1):
        following = 2.0 * (a - b) * moments[order] - (a + b - order + 2.0) * moments[order - 1]
        moments.append(following / (a + b + order + 2.0))
    log_q = 2.0 * np.log(np.sin(0.5 * theta))
    logs = np.array([log_q[::-1], log_q])
    weights: FloatArray = dct(np.array(moments[:size]), type=3) / size
    for array in (logs, weights):
        array.flags.writeable = False
    return Nodes(logs, weights)
