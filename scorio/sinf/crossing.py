"""How often Brownian motion meets the boundary c * t**(1/2 - kappa) on [start, 1]: an integral equation, solved.

The density g(t) of the first crossing solves a Volterra equation of the second kind whose kernel vanishes on its
diagonal (Buonocore, Nobile and Ricciardi 1987; two boundaries: Buonocore, Giorno, Nobile and Ricciardi 1990):

    g(t) = -2 psi(t | start) + 2 int_start^t g(s) [psi(t | b(s), s) + psi(t | -b(s), s)] ds
    psi(t | y, s) = 1/2 f(b(t), t | y, s) [b'(t) - (b(t) - y)/(t - s)]

with b the boundary and f the transition density of W. W(start) is normal, so the first term has a closed form, and
every term keeps its relative precision far into the tail. One boundary: the terms in -b drop out.
"""

import numpy as np
from scipy.special import ndtr

from scorio.moments import FloatArray

STEPS = 32
"""Of the coarsest of three rules, each with twice as many steps as the one before."""


def crossing_probability(c: FloatArray, kappa: float, start: float, sides: int, steps: int = STEPS) -> FloatArray:
    """P(sup over [start, 1] of |W(t)| t**(kappa - 1/2) >= c) for an array of constants c >= 0; sides=1: of W(t).

    The trapezium rule's error has parts that fall as steps**(-3/2) (the kernel grows like sqrt(t - s) off its diagonal)
    and as steps**(-2). Two steps of Richardson's extrapolation remove them.
    """
    coarse, middle, fine = (_crossing(c, kappa, start, sides, steps * factor) for factor in (1, 2, 4))
    middle, fine = middle + (middle - coarse) / (2.0**1.5 - 1.0), fine + (fine - middle) / (2.0**1.5 - 1.0)
    return np.asarray(np.clip(fine + (fine - middle) / 3.0, 0.0, 1.0))


def _crossing(c: FloatArray, kappa: float, start: float, sides: int, steps: int) -> FloatArray:
    """The same by one trapezium rule in u, where ln t = cos^2(pi u/2) ln start.

    g is like (t - start)^(-1/2) at the start and, far in the tail, steep at 1; g dt/du is smooth at both ends.
    """
    u = np.arange(1, steps + 1) / steps
    t = np.exp(np.cos(0.5 * np.pi * u) ** 2 * np.log(start))
    slope = -0.5 * np.pi * np.log(start) * np.sin(np.pi * u) * t
    exponent = 0.5 - kappa
    boundary = c[:, None] * t**exponent
    first = c[:, None] * start**exponent
    flow = np.empty((steps + 1, c.size))
    flow[0] = normal_density(first[:, 0], start) * np.sqrt(-np.log(start) * start * np.pi / 2.0)
    flow[1:] = (slope * _first_term(boundary, first, t, kappa, start, sides)).T
    times = np.append(start, t)
    shape = times**exponent  # the boundary is c times this, so that exponents are c^2 times what all c have in common
    weights = np.full(steps + 1, 1.0 / steps)
    weights[0] /= 2.0
    for i in range(1, steps + 1):
        now, before, lag = shape[i], shape[:i], times[i] - times[:i]
        tangent = exponent * now / times[i]
        for distance in (now - before, now + before)[:sides]:
            kernel = np.exp(np.multiply.outer(distance * distance / (-2.0 * lag), c * c))
            share = weights[:i] * (tangent - distance / lag) / np.sqrt(2.0 * np.pi * lag)
            flow[i] += slope[i - 1] * c * (share @ (kernel * flow[:i]))
    weights[-1] /= 2.0
    return np.asarray(sides * (ndtr(-first[:, 0] / np.sqrt(start)) + weights @ flow))


def _first_term(
    boundary: FloatArray, first: FloatArray, t: FloatArray, kappa: float, start: float, sides: int
) -> FloatArray:
    """-2 times the integral of psi(t | y, start) over the normal W(start) = y inside the boundary, in closed form.

    Given W(t) = b(t), W(start) is normal with mean b start/t and variance start (t - start)/t.
    """
    mean, var = boundary * start / t, start * (t - start) / t
    inside, edge = ndtr((first - mean) / np.sqrt(var)), normal_density(first - mean, var)
    if sides == 2:
        inside = inside - ndtr((-first - mean) / np.sqrt(var))
        edge = edge - normal_density(first + mean, var)
    return normal_density(boundary, t) * ((0.5 + kappa) * boundary * inside + start * edge) / t


def normal_density(x: FloatArray, var: FloatArray | float) -> FloatArray:
    """The normal density with mean 0."""
    return np.exp(-x * x / (2.0 * var)) / np.sqrt(2.0 * np.pi * np.asarray(var))
