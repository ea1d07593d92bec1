"""Calling and giving up, computed together: when to stop a comparison that costs information and pays for a call.

Of a pair, Brownian motion x(t) = W(t) + theta t is seen at information t from `start` to 1. Theta is drawn from a
normal prior of standard deviation `PRIOR_SD`, so that every pair is somewhere between an exact tie and a plain winner.
The way to the horizon costs 1, a right call pays `worth`, and under an exact tie a call may have probability alpha,
no more; a price on such calls (a Lagrange multiplier) makes sure of that. The rule with the highest value comes from
backward induction over a grid (Wald and Wolfowitz 1950; Chernoff 1961): at each t it calls above a boundary on |z|,
gives up below another one, and goes on between them.

Giving up is paid for: paths that were given up are never called, and the boundary is lower for it. So a pair that was
given up must stay so. And whoever chose the looks could avoid those at which a pair is given up. So the price is such
that the worst schedule calls a tie with probability alpha: one that knows all looks so far and chooses the next one,
at most `step` and `stride` times the present information ahead. The chance of a call under it, given what was seen, is
a supermartingale under any such schedule; a change of the horizon may spend that much, and no more (see `exchange`).

Between two times of the grid the boundary may be watched more often, every `finest`, or all the time where that is 0:
it is lowered there by 0.5826 (sqrt(dt) - sqrt(finest)), as much further as a path overshoots it on average where it is
watched at those times alone (Siegmund 1985; Broadie, Glasserman and Kou 1997).
"""

from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from scorio.moments import FloatArray

PRIOR_SD = 3.0
"""Standard deviation of the prior of the drift: a pair with this drift is called in 90% of runs of a fixed design."""
MIN_INFORMATION = 0.02
"""Minimum information for a decision: before it the grid is too coarse."""
MAX_STEP = 1.0 / 80.0
GROWTH = 0.25
"""The longest step of the grid, as a share of the information so far."""
CELL, GRID_END = 0.03, 6.0
"""Width of the grid's cells, and its end on either side."""
OVERSHOOT = 0.5826
ROUNDING = 1e-9
LAGS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""How many steps of the grid the worst schedule may leave out, besides as many as it can."""


@dataclass(frozen=True, eq=False)
class Stopping:
    """The boundaries that belong together, over information; between two times they are straight lines."""

    times: FloatArray
    call: FloatArray
    """On |z|: at or above it a pair is called."""
    give: FloatArray
    """On |z|: below it a pair is given up; 0 where none is."""
    chances: FloatArray
    """(times, cells): the chance of a call under an exact tie and the worst schedule, from each point of the grid."""

    def boundary(self, t: FloatArray) -> FloatArray:
        """The boundary on |z| at information t; infinite before the first time, the last value beyond the horizon."""
        return np.where(t < self.times[0] * (1.0 - ROUNDING), np.inf, np.interp(t, self.times, self.call))

    def gives_up(self, z: FloatArray, t: FloatArray) -> NDArray[np.bool_]:
        """Whether a pair ends without a call where it is now."""
        seen = t >= self.times[0] * (1.0 - ROUNDING)
        return np.asarray(seen & (np.abs(z) < np.interp(t, self.times, self.give)))

    def chance_left(self, z: FloatArray, t: FloatArray) -> FloatArray:
        """The chance of a call still to come under an exact tie, given |z| at information t: the smaller of the
        grid's values before and after t, and all of it before the first time."""
        x = np.abs(z) * np.sqrt(t)
        place = np.clip(np.searchsorted(self.times, t) - 1, 0, max(len(self.times) - 2, 0))
        ends = (place, np.minimum(place + 1, len(self.times) - 1))
        chances_at_ends = [
            [np.interp(at, _cells(), self.chances[row]) for at, row in zip(x, rows, strict=True)] for rows in ends
        ]
        chance: FloatArray = np.minimum(*np.asarray(chances_at_ends, dtype=float).reshape(2, len(x)))
        start = float(_first_look(self.times[0]) @ self.chances[0])
        return np.where(t < self.times[0] * (1.0 - ROUNDING), start, chance)


@lru_cache(maxsize=64)
def optimal_stopping(
    alpha: float, start: float, worth: float, stride: float = inf, step: float = 0.0, finest: float = 0.0
) -> Stopping:
    """The boundaries with which the worst schedule calls an exact tie with probability alpha, two-sided.

    No look at information t is followed by one beyond t (1 + stride) + step; there are at most 1 / finest of them.
    Looks before `MIN_INFORMATION` decide nothing, but they allow a choice of the first look that counts.
    """
    if start >= 1.0 - ROUNDING:
        height = float(-ndtri(0.5 * alpha))
        return Stopping(np.ones(1), np.full(1, height), np.full(1, height), (_cells() >= height)[None].astype(float))
    times = _times(max(start, MIN_INFORMATION))
    looked = np.append(start, times) if start < MIN_INFORMATION * (1.0 - ROUNDING) else times
    right, densities = _likelihoods(times)
    first = _first_look(looked[0])

    def call_chances(call: FloatArray, give: FloatArray) -> FloatArray:
        before = len(looked) - len(times)
        return _call_chances(
            looked, np.append([GRID_END] * before, call), np.append([0.0] * before, give), (stride, step, finest)
        )

    @cache  # the search begins at prices that were tried
    def excess(price: float) -> float:
        chances = call_chances(*_solve(times, right, densities, worth, price))
        return float(np.log(max(first @ chances[0], 1e-300) / alpha))

    highest = worth
    while excess(highest) > 0.0:
        highest *= 4.0
    price = float(brentq(excess, 0.0, highest, xtol=1e-4 * highest, rtol=1e-6))
    price *= 1.0 + 1e-3  # on the safe side of what the search leaves open
    call, give = _solve(times, right, densities, worth, price)
    root = np.sqrt(times)
    return Stopping(times, call / root, give / root, call_chances(call, give)[-len(times) :])


def _times(start: float) -> FloatArray:
    """The grid's times: a quarter more each, until that is the longest step."""
    early = [start]
    while early[-1] * GROWTH < MAX_STEP * (1.0 - ROUNDING) and early[-1] * (1.0 + GROWTH) < 1.0:
        early.append(early[-1] * (1.0 + GROWTH))
    steps = max(int(np.ceil((1.0 - early[-1]) / MAX_STEP - ROUNDING)), 1)
    return np.append(early[:-1], np.linspace(early[-1], 1.0, steps + 1))


def _cells() -> FloatArray:
    """|x|, from 0 on: everything is symmetric."""
    return np.arange(0.0, GRID_END + CELL / 2, CELL)


def _likelihoods(times: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(times, cells), against an exact tie: of the drifts upwards, and of all, weighted by the prior."""
    theta = np.linspace(0.0, 4.0 * PRIOR_SD, 81)
    prior = np.exp(-0.5 * (theta / PRIOR_SD) ** 2)
    prior[0] /= 2.0
    prior /= 2.0 * prior.sum()
    x = np.append(-_cells()[:0:-1], _cells())
    weights = prior * np.exp(-0.5 * np.outer(times, theta**2))
    up = weights @ np.exp(np.outer(theta, x))
    half = slice(len(_cells()) - 1, None)
    return up[:, half], (up + up[:, ::-1])[:, half]


@lru_cache(maxsize=2048)
def _kernel(lag: float) -> FloatArray:
    """How |x| spreads over cells in so much more information; kept, since a search for the price asks again."""
    reach = int(np.ceil(5.0 * np.sqrt(lag) / CELL))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * CELL) ** 2 / lag)
    return np.asarray(kernel / kernel.sum())


def _onwards(values: FloatArray, lag: float) -> FloatArray:
    """The mean of a symmetric function, given on |x|, after so much more information under an exact tie."""
    kernel = _kernel(lag)
    reach = len(kernel) // 2
    padded = np.concatenate([values[reach:0:-1], values, np.full(reach, values[-1])])
    return np.convolve(padded, kernel, "valid")


def _solve(
    times: FloatArray, right: FloatArray, densities: FloatArray, worth: float, price: float
) -> tuple[FloatArray, FloatArray]:
    """Backward induction: |x| from which on to call, and up to which to give up."""
    called, goes_on = worth * right - price, np.zeros_like(right)
    ended, steps = np.maximum(called, 0.0), np.diff(times)
    running = steps[:, None] * densities[:-1]
    value = ended[-1]
    for at in range(len(steps) - 1, -1, -1):
        goes_on[at] = _onwards(value, steps[at]) - running[at]
        value = np.maximum(ended[at], goes_on[at])
    call = _first_above(called - np.maximum(goes_on, 0.0))
    return call, np.minimum(_first_above(np.maximum(goes_on, called)), call)


def _first_above(values: FloatArray) -> FloatArray:
    """(times,): |x| where values (times, cells) rise above 0 for good, between cells by a straight line; the end of
    the grid where they do not."""
    rows, end = np.arange(len(values)), values.shape[1] - 1
    below = values <= 0.0
    last = end - np.argmax(below[:, ::-1], axis=1)
    before = np.minimum(last, end - 1)
    low, high = values[rows, before], values[rows, before + 1]
    crossing = _cells()[before] - np.divide(low, high - low, out=np.zeros(len(rows)), where=last < end) * CELL
    return np.where(below.any(axis=1), np.where(last < end, crossing, GRID_END), 0.0)


def _call_chances(
    times: FloatArray, call: FloatArray, give: FloatArray, spacing: tuple[float, float, float]
) -> FloatArray:
    """(times, cells): the chance of a call under an exact tie and the worst schedule, when a look is taken there."""
    x, last, (stride, step, finest) = _cells(), len(times) - 1, spacing
    steps = np.diff(times)
    watched = call - OVERSHOOT * np.maximum(np.sqrt(np.append(steps, steps[-1])) - np.sqrt(finest), 0.0)
    watched[last] = call[last]
    calls: FloatArray = np.clip((x - watched[:, None]) / CELL + 0.5, 0.0, 1.0)
    lasts = np.where(give[:, None] > 0.0, np.clip((x - give[:, None]) / CELL + 0.5, 0.0, 1.0), 1.0)
    on = (1.0 - calls) * lasts
    furthest = np.searchsorted(times, times * (1.0 + stride) + step - ROUNDING)
    chances = calls
    for at in range(last - 1, -1, -1):
        furthest_index = min(max(int(furthest[at]), at + 1), last)
        ahead = {at + lag for lag in LAGS if at + lag < furthest_index} | {furthest_index}
        chances[at] += on[at] * reduce(np.maximum, (_onwards(chances[then], times[then] - times[at]) for then in ahead))
    return chances


def _first_look(t: float) -> FloatArray:
    """The chance of each cell of |x| at the first look, under an exact tie."""
    edges = np.append(np.maximum(_cells() - CELL / 2, 0.0), np.inf) / np.sqrt(t)
    return np.asarray(2.0 * np.diff(ndtr(edges)))
