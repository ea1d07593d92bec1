"""How likely a boundary is still to be met, given where Brownian motion is now: what a change of horizon may spend.

A test whose plan is changed on the way keeps its error probability, whatever the change was made for, if the chance of
a false call that is still to come, given all that was seen, does not grow (the conditional error of Mueller and
Schaefer 2001, 2004). For the boundary c * t**(-kappa) on |z|, watched continuously over [start, 1], that chance has two
parts: what may happen until 1, and what may have happened unseen between two looks.

The first solves the same equation as `crossing`, from a point (t, w) instead of a normal start; for two boundaries the
sum of both densities does, by symmetry, with the first term for w and for -w. The second is that of a Brownian bridge
below a line (Doob 1949), here the tangent of the boundary, which lies above it: never too much is given back.
"""

import numpy as np

from scorio.moments import FloatArray
from scorio.sinf.crossing import normal_density

STEPS = 24
NEAR = 1e-12
"""An interval of information, or a distance, that counts as none."""
BLOCK = 64
"""Starts that are computed at once: what belongs to them should fit in the cache."""


def crossing_from(c: FloatArray, w: FloatArray, t: FloatArray, kappa: float, sides: int) -> FloatArray:
    """P(sup over (t, 1] of |W(s)| s**(kappa - 1/2) >= c | W(t) = w); sides=1: of W(s).

    (n, C) for n starts (t, w) with constants c (n, C) each. It is 1 where w is on the boundary or beyond it, and 0
    where t is 1. Error of the trapezium rule as in `crossing`.
    """
    probability = np.zeros(c.shape)
    height = np.abs(w) if sides == 2 else w
    met = height[:, None] >= c * t[:, None] ** (0.5 - kappa) - NEAR
    (on_the_way,) = np.nonzero((t < 1.0 - NEAR) & ~met.all(axis=1))
    for begin in range(0, len(on_the_way), BLOCK):
        block = on_the_way[begin : begin + BLOCK]
        coarse, fine = (_crossing(c[block], w[block], t[block], kappa, sides, steps) for steps in (STEPS, 2 * STEPS))
        probability[block] = np.clip(fine + (fine - coarse) / (2.0**1.5 - 1.0), 0.0, 1.0)
    return np.where(met, 1.0, probability)


def _crossing(c: FloatArray, w: FloatArray, t: FloatArray, kappa: float, sides: int, steps: int) -> FloatArray:
    """One trapezium rule in u, where s = t + (1 - t) u^3: the density may be steep at first, and is flat before.

    Times, and with them all but c, are those of a start; arrays are (steps, n) and (steps, n, C).
    """
    u = np.arange(1, steps + 1)[:, None] / steps
    exponent = 0.5 - kappa
    times = t + (1.0 - t) * u**3
    slope = 3.0 * (1.0 - t) * u**2 / steps
    shape = times**exponent  # the boundary is c times this
    tangent, lag = exponent * shape / times, times - t
    flow = np.zeros((steps, *c.shape))
    for start in (w, -w)[:sides]:
        distance = c * shape[:, :, None] - start[:, None]
        drift = c * tangent[:, :, None] - distance / lag[:, :, None]
        flow -= normal_density(distance, lag[:, :, None]) * drift
    flow *= slope[:, :, None]
    for i in range(1, steps):
        since = times[i] - times[:i]
        for distance in (shape[i] - shape[:i], shape[i] + shape[:i])[:sides]:
            kernel = np.exp((distance * distance / (-2.0 * since))[:, :, None] * (c * c))
            share = slope[i] * (tangent[i] - distance / since) / np.sqrt(2.0 * np.pi * since)
            flow[i] += c * np.einsum("in,inc->nc", share, kernel * flow[:i])
    flow[-1] /= 2.0
    return np.asarray(flow.sum(axis=0))


def unseen_crossing(
    c: FloatArray, w: tuple[FloatArray, FloatArray], t: tuple[FloatArray, FloatArray], kappa: float
) -> FloatArray:
    """Lower bound of the chance that W met c s**(1/2 - kappa) between two looks t[0] < t[1], and was below at both.

    exp(-2 (L(t0) - w0)(L(t1) - w1)/(t1 - t0)) with L the tangent of the boundary in the middle; 0 where no information
    came in between.
    """
    middle, exponent = 0.5 * (t[0] + t[1]), 0.5 - kappa
    at_middle = c * middle**exponent
    rise = exponent * at_middle / middle * 0.5 * (t[1] - t[0])
    first, second = at_middle - rise - w[0], at_middle + rise - w[1]
    between = t[1] - t[0] > NEAR
    gap = np.where(between, t[1] - t[0], 1.0)
    chance = np.exp(-2.0 * np.maximum(first, 0.0) * np.maximum(second, 0.0) / gap)
    return np.where(between, chance, 0.0)
