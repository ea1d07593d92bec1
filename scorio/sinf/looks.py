"""Crossing probabilities for a known schedule of looks, by recursive quadrature (Armitage, McPherson and Rowe 1969).

The density of W on the paths that have not crossed yet is carried from look to look by Gauss-Legendre quadrature,
and what leaves at each look is summed. The terms are all positive, so small probabilities keep their precision. For
a run whose looks are not known beforehand, `boundary.WangTsiatis` has the continuous limit, which bounds this.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, roots_legendre

from scorio import _validate
from scorio.moments import FloatArray

# Beyond this many standard deviations a path carries no weight (about 1e-23).
MAX_BOUND = 10.0
# The smallest constant searched.
MIN_CRITICAL = 0.01
_legendre = lru_cache(maxsize=512)(roots_legendre)


def crossing_at_looks(bounds: ArrayLike, looks: ArrayLike, sides: int = 2) -> float:
    """P(|z(t_k)| >= b_k at some look k) under an exact tie, for rising information t_k; sides=1: of z(t_k) >= b_k.

    Args:
        bounds: The boundary b_k at each look, above 0.
        looks: The information t_k at each look, rising and above 0.
        sides: 2 for both directions, 1 for the upper one.

    Returns:
        The probability.

    Examples:
        >>> from scorio.sinf import crossing_at_looks
        >>> round(crossing_at_looks([1.96, 1.96], [0.5, 1.0]), 4)
        0.0831
    """
    information = _rising(looks)
    thresholds = np.asarray(bounds, dtype=np.float64)
    if thresholds.shape != information.shape or np.isnan(thresholds).any() or thresholds.min() <= 0.0:
        raise ValueError(f"bounds must hold one number above 0 for each of {information.size} looks, got {bounds!r}")
    return _crossing(thresholds, information, sides)


def critical_at_looks(alpha: float, kappa: float, looks: ArrayLike, sides: int = 2) -> float:
    """The c for which c * (t_k/t_K)**(-kappa) is crossed with probability alpha at the looks t_1 < ... < t_K.

    Wang and Tsiatis (1987): kappa 0 is Pocock's constant, kappa 0.5 O'Brien and Fleming's.

    Args:
        alpha: The crossing probability, between 0 and 1.
        kappa: The shape, 0 for a constant boundary.
        looks: The information t_k at each look, rising and above 0.
        sides: 2 for both directions, 1 for the upper one.

    Returns:
        The constant c.

    Examples:
        >>> from scorio.sinf import critical_at_looks
        >>> round(critical_at_looks(0.05, 0.0, [0.5, 1.0]), 4)
        2.1783
    """
    from scipy.optimize import brentq

    information, target = _rising(looks), _validate.probability(alpha, "alpha")
    shape = (information / information[-1]) ** -kappa
    highest = _crossing(MIN_CRITICAL * shape, information, sides)
    if target >= highest:
        raise ValueError(
            f"alpha must lie below {highest:.3g}, the crossing probability of c = {MIN_CRITICAL}, got {alpha!r}"
        )
    return float(
        brentq(lambda c: _crossing(c * shape, information, sides) - target, MIN_CRITICAL, MAX_BOUND, xtol=1e-9)
    )


def _rising(looks: ArrayLike) -> FloatArray:
    """Information at the looks: a vector of numbers above 0, each larger than the one before."""
    information = _validate.floats(looks, "looks")
    if information.ndim != 1 or information.size == 0 or np.any(np.diff(information, prepend=0.0) <= 0.0):
        raise ValueError(f"looks must be a vector of rising numbers above 0, got {looks!r}")
    return information


def _crossing(bounds: FloatArray, looks: FloatArray, sides: int) -> float:
    scale = np.sqrt(looks)
    upper = np.minimum(bounds, MAX_BOUND) * scale
    lower = -upper if sides == 2 else -MAX_BOUND * scale
    steps = np.diff(looks, prepend=0.0)
    at, density = np.zeros(1), np.ones(1)
    crossed = 0.0
    for k, step in enumerate(steps):
        sd = np.sqrt(step)
        leaves = ndtr((at - upper[k]) / sd)
        if sides == 2:
            leaves = leaves + ndtr((lower[k] - at) / sd)
        crossed += float(leaves @ density)
        ahead = steps[k + 1] if k + 1 < len(steps) else step
        nodes, weights = _nodes(lower[k], upper[k], min(step, ahead))
        move = (nodes[:, None] - at) / sd
        at, density = nodes, weights * (np.exp(-0.5 * move * move) @ density) / (sd * np.sqrt(2.0 * np.pi))
    return crossed


def _nodes(lower: float, upper: float, step: float) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights, dense enough for a normal kernel of variance `step`."""
    count = 16 * (2 + int((upper - lower) / (4.0 * np.sqrt(step))))  # few sizes, so that the cache serves
    nodes, weights = _legendre(count)
    half = 0.5 * (upper - lower)
    return lower + half * (nodes + 1.0), half * weights
