"""Boundaries on |z| that hold under repeated looks: Wang-Tsiatis up to a horizon, normal mixture without one.

The estimates of a pair, seen at information t (1 at the horizon), behave like Brownian motion with drift: under an
exact tie z(t) = W(t)/sqrt(t). A constant threshold on |z| is crossed sooner or later by chance alone; a boundary that
is high early and low late is not.

What is promised. Let c have a two-sided crossing probability of 2 alpha under an exact tie, and let the first
crossing latch. By symmetry the first crossing is upwards with probability alpha; a drift downwards only lowers that.
So a wrong order has probability at most alpha whatever the drift, and a call between exact ties at most 2 alpha.
The two-sided p-value halved is not a one-sided p-value (a path may set a record downwards and then a larger one
upwards), so procedures over one-sided hypotheses, such as Holm's, take `sides=1`: the crossing probability of the
upper boundary alone, which is valid for every drift <= 0 at any set of looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from scorio import _validate
from scorio.moments import FloatArray
from scorio.sinf.crossing import crossing_probability
from scorio.sinf.monotone import FallingCurve

# p-values are tabulated for boundary constants up to here (about 1e-31); beyond it the last value stands.
MAX_CRITICAL = 12.0
TABLED = np.arange(0.0, MAX_CRITICAL + 0.025, 0.05)
ROUGH_STEPS = 8
"""Enough to know between which of the tabled constants a crossing probability lies, give or take one."""
NEIGHBOURS = 4
"""Tabled constants on either side: a cubic depends on the points at its ends and on one more beyond each."""
SQRT2 = float(np.sqrt(2.0))
ROUNDING = 1e-9
"""A look this close before the start is at the start: t is a ratio of sums."""


@dataclass(frozen=True)
class WangTsiatis:
    """The boundary c * t**(-kappa) on |z| for information t in [start, 1] (Wang and Tsiatis 1987).

    kappa 0 is Pocock's constant, 0.5 is O'Brien-Fleming. c comes from the continuous limit, so that no schedule of
    looks can break the promise.

    Attributes:
        kappa: How much higher the boundary is early on, in [0, 0.5].
        start: The information from which looks count, between 0 and 1.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import WangTsiatis
        >>> boundary = WangTsiatis(kappa=0.25, start=0.05)
        >>> c = boundary.critical(0.1)
        >>> np.round(boundary.at(np.array([0.01, 0.25, 1.0]), c), 3)
        array([  inf, 2.989, 2.114])
    """

    kappa: float = 0.25
    start: float = 0.05

    def __post_init__(self) -> None:
        if not 0.0 <= self.kappa <= 0.5:
            raise ValueError(f"kappa must lie in [0, 0.5] (Pocock to O'Brien-Fleming), got {self.kappa!r}")
        _validate.probability(self.start, "start")

    def crossing(self, c: float, sides: int = 2) -> float:
        """P(sup over [start, 1] of |W(t)|/sqrt(t) * t**kappa >= c); with sides=1, of W(t) in place of |W(t)|.

        Args:
            c: The constant of the boundary.
            sides: 2 for both directions, 1 for the upper one.

        Returns:
            The probability.

        Examples:
            >>> from scorio.sinf import WangTsiatis
            >>> round(WangTsiatis().crossing(2.5), 4)
            0.0363
        """
        return float(np.exp(_log_crossing(self.kappa, self.start, sides)(min(max(c, 0.0), MAX_CRITICAL))))

    def critical(self, alpha: float, sides: int = 2) -> float:
        """The constant c that is crossed with probability alpha under an exact tie.

        Args:
            alpha: The crossing probability, between 0 and 1.
            sides: 2 for both directions, 1 for the upper one.

        Returns:
            The constant c.

        Examples:
            >>> from scorio.sinf import WangTsiatis
            >>> round(WangTsiatis().critical(0.1), 3)
            2.114
        """
        return _critical(self.kappa, self.start, alpha, sides)

    def at(self, t: FloatArray | float, c: float) -> FloatArray:
        """The boundary on |z| at information t: infinite before the start, its value at 1 beyond the horizon.

        Args:
            t: Information, 1 at the horizon.
            c: The constant of the boundary.

        Returns:
            The boundary at each t.

        Examples:
            >>> import numpy as np
            >>> from scorio.sinf import WangTsiatis
            >>> np.round(WangTsiatis().at(np.array([0.01, 0.25, 1.0]), c=2.5), 3)
            array([  inf, 3.536, 2.5  ])
        """
        t = np.asarray(t, dtype=float)
        return np.where(self._early(t), np.inf, c * np.clip(t, self.start, 1.0) ** -self.kappa)

    def p_value(self, z: FloatArray | float, t: FloatArray | float, sides: int = 2) -> FloatArray:
        """Sequential p-value of one look: the crossing probability at |z| t**kappa (sides=1: at z t**kappa).

        The minimum over the looks taken so far is a p-value at any time: under the null it falls below u with
        probability at most u. It is 1 before the start and, with sides=1, for z <= 0.

        Args:
            z: The z-score of the pair.
            t: Information, 1 at the horizon.
            sides: 2 for both directions, 1 for the upper one.

        Returns:
            The p-value of each look.

        Examples:
            >>> import numpy as np
            >>> from scorio.sinf import WangTsiatis
            >>> np.round(WangTsiatis().p_value(np.array([2.0, 4.0]), 0.5), 4)
            array([0.2639, 0.0023])
        """
        t = np.asarray(t, dtype=float)
        height = (np.abs(z) if sides == 2 else np.maximum(z, 0.0)) * np.clip(t, self.start, 1.0) ** self.kappa
        p = np.exp(_log_crossing(self.kappa, self.start, sides)(np.minimum(height, MAX_CRITICAL)))
        return np.where(self._early(t) | (height <= 0.0), 1.0, p)

    def _early(self, t: FloatArray) -> NDArray[np.bool_]:
        return t < self.start * (1.0 - ROUNDING)


@dataclass(frozen=True)
class Mixture:
    """The normal-mixture boundary (Robbins 1970): |z| >= sqrt((1 + 1/r)(ln(1 + r) + 2 ln(1/alpha))), for ever.

    r is proportional to information; at information fraction `optimum` the boundary is tightest, where
    r* - ln(1 + r*) = 2 ln(1/alpha). alpha is two-sided.

    Attributes:
        alpha: The two-sided crossing probability, between 0 and 1.
        optimum: The information at which the boundary is tightest, above 0.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import Mixture
        >>> np.round(Mixture(alpha=0.1).at(np.array([0.1, 0.5, 2.0])), 3)
        array([3.091, 2.764, 2.867])
    """

    alpha: float = 0.10
    optimum: float = 0.5

    def __post_init__(self) -> None:
        _validate.probability(self.alpha, "alpha")
        _validate.positive(self.optimum, "optimum")

    def at(self, t: FloatArray | float) -> FloatArray:
        """The boundary on |z| at information t > 0, without an upper limit; infinite at 0.

        Args:
            t: Information, 1 at the horizon.

        Returns:
            The boundary at each t.

        Examples:
            >>> from scorio.sinf import Mixture
            >>> round(float(Mixture().at(0.5)), 3)
            2.764
        """
        r = self.r(t)
        with np.errstate(divide="ignore"):
            boundary: FloatArray = np.sqrt((1.0 + 1.0 / r) * (np.log1p(r) - 2.0 * np.log(self.alpha)))
        return boundary

    def log_e_value(self, z: FloatArray | float, t: FloatArray | float, sides: int = 2) -> FloatArray:
        """ln e = z^2 r / (2(1 + r)) - ln(1 + r)/2.

        sides=1 mixes over upward drifts only, which adds ln(2 Phi(x)) with x = z sqrt(r/(1 + r)); for x < 0 the sum
        with x^2/2 is ln erfcx(-x/sqrt(2)), which does not cancel.

        Args:
            z: The z-score of the pair.
            t: Information, 1 at the horizon.
            sides: 2 for both directions, 1 for the upper one.

        Returns:
            The logarithm of the e-value of each look.

        Examples:
            >>> from scorio.sinf import Mixture
            >>> round(float(Mixture().log_e_value(3.0, 0.5)), 3)
            2.894
        """
        r = self.r(t)
        x = np.asarray(z) * np.sqrt(r / (1.0 + r))
        if sides == 2:
            log_e: FloatArray = 0.5 * (x * x - np.log1p(r))
            return log_e
        up, down = np.maximum(x, 0.0), np.minimum(x, 0.0)
        with np.errstate(divide="ignore"):
            folded = np.where(x > 0.0, 0.5 * up * up + np.log(2.0) + log_ndtr(up), np.log(erfcx(-down / SQRT2)))
        one_sided: FloatArray = folded - 0.5 * np.log1p(r)
        return one_sided

    def e_value(self, z: FloatArray | float, t: FloatArray | float, sides: int = 2) -> FloatArray:
        """A martingale of mean 1 under an exact tie (sides=1: at most 1 under drifts <= 0), inf if it overflows.

        Args:
            z: The z-score of the pair.
            t: Information, 1 at the horizon.
            sides: 2 for both directions, 1 for the upper one.

        Returns:
            The e-value of each look.

        Examples:
            >>> from scorio.sinf import Mixture
            >>> round(float(Mixture().e_value(3.0, 0.5)), 3)
            18.07
        """
        with np.errstate(over="ignore"):
            e: FloatArray = np.exp(self.log_e_value(z, t, sides))
        return e

    def p_value(self, z: FloatArray | float, t: FloatArray | float, sides: int = 2) -> FloatArray:
        """1/e, at most 1; the minimum over all looks is a p-value at any time (Ville's inequality).

        Args:
            z: The z-score of the pair.
            t: Information, 1 at the horizon.
            sides: 2 for both directions, 1 for the upper one.

        Returns:
            The p-value of each look.

        Examples:
            >>> from scorio.sinf import Mixture
            >>> round(float(Mixture().p_value(4.0, 0.5)), 4)
            0.0026
        """
        return np.exp(np.minimum(-self.log_e_value(z, t, sides), 0.0))

    def r(self, t: FloatArray | float) -> FloatArray:
        """Information t in the units of the mixture.

        Args:
            t: Information, 1 at the horizon.

        Returns:
            r at each t.

        Examples:
            >>> from scorio.sinf import Mixture
            >>> round(float(Mixture(alpha=0.1, optimum=0.5).r(0.5)), 3)
            6.638
        """
        return np.asarray(t, dtype=float) * (_tightest(self.alpha) / self.optimum)


@lru_cache(maxsize=32)
def _log_crossing(kappa: float, start: float, sides: int) -> FallingCurve:
    """ln P(crossing) over the boundary constant."""
    return FallingCurve.through(TABLED, _logs(TABLED, kappa, start, sides))


def _logs(c: FloatArray, kappa: float, start: float, sides: int) -> FloatArray:
    if sides not in (1, 2):
        raise ValueError(f"sides must be 1 or 2, got {sides!r}")
    return np.log(np.minimum.accumulate(crossing_probability(c, kappa, start, sides)))


@lru_cache(maxsize=256)
def _critical(kappa: float, start: float, alpha: float, sides: int) -> float:
    """The place of alpha on the whole curve, of which only the points around it are computed."""
    index = int(np.searchsorted(-crossing_probability(TABLED, kappa, start, sides, ROUGH_STEPS), -alpha))
    around = slice(max(index - NEIGHBOURS, 0), index + NEIGHBOURS)
    logs = _logs(np.concatenate((TABLED[:1], TABLED[around], TABLED[-1:])), kappa, start, sides)
    smallest, largest = float(np.exp(logs[-1])), float(np.exp(logs[0]))
    if not smallest < alpha < largest:
        raise ValueError(f"alpha must lie strictly between {smallest:.1g} and {largest:.3g}, got {alpha!r}")
    target = float(np.log(alpha))
    enough = logs.size > 2 * NEIGHBOURS and logs[2] > target > logs[-3]  # not at an end of what was computed
    curve = FallingCurve.through(TABLED[around], logs[1:-1]) if enough else _log_crossing(kappa, start, sides)
    return curve.place(target)


@lru_cache(maxsize=64)
def _tightest(alpha: float) -> float:
    """The r at which the mixture boundary is lowest: r - ln(1 + r) = 2 ln(1/alpha)."""
    from scipy.optimize import brentq

    target = -2.0 * np.log(alpha)
    return float(brentq(lambda r: r - np.log1p(r) - target, 0.0, 2.0 * target + 4.0, xtol=1e-12))
