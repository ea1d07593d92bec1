"""One error probability for many hypotheses: Holm on p-values, e-BH on e-values.

For all pairs of L models give the one-sided p-values of both directions, 2m of them with m = L(L - 1)/2. Adjacent
pairs are chosen by the data, so L - 1 hypotheses would not be enough. On running minima of sequential p-values (kept
by the caller) the rejections hold at any look, and a later look can only add to them.
"""

import numpy as np
from numpy.typing import NDArray

from scorio.moments import FloatArray


def holm_adjusted(p: FloatArray) -> FloatArray:
    """Holm's adjusted p-values: the largest (m - i + 1) p_(i) up to a hypothesis' own place, at most 1 (Holm 1979).

    Args:
        p: The p-value of each hypothesis, a vector.

    Returns:
        The adjusted p-values, in the order of p.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import holm_adjusted
        >>> holm_adjusted(np.array([0.01, 0.04, 0.03]))
        array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p, kind="stable")
    scaled = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def holm(p: FloatArray, level: float) -> NDArray[np.bool_]:
    """The hypotheses that Holm rejects: P(any true one among them) <= level, whatever their dependence.

    Args:
        p: The p-value of each hypothesis, a vector.
        level: The error probability, between 0 and 1.

    Returns:
        Whether each hypothesis is rejected.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import holm
        >>> holm(np.array([0.01, 0.04, 0.03]), 0.05)
        array([ True, False, False])
    """
    return holm_adjusted(p) <= level


def ebh(e: FloatArray, alpha: float) -> NDArray[np.bool_]:
    """The hypotheses that e-BH rejects: the k largest e-values, k the last with k e_(k) >= m/alpha.

    The expected share of false rejections is at most alpha, whatever the dependence (Wang and Ramdas 2022).

    Args:
        e: The e-value of each hypothesis, a vector.
        alpha: The share of false rejections, between 0 and 1.

    Returns:
        Whether each hypothesis is rejected.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import ebh
        >>> ebh(np.array([100.0, 1.0, 35.0]), alpha=0.05)
        array([ True, False,  True])
    """
    order = np.argsort(-e, kind="stable")
    enough = np.flatnonzero(np.arange(1, e.size + 1) * e[order] >= e.size / alpha)
    rejected = np.zeros(e.size, dtype=bool)
    if enough.size:
        rejected[order[: enough[-1] + 1]] = True
    return rejected
