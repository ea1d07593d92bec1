"""The error that a test has left, exchanged for an equal chance on another horizon, at every level at once.

Write a path's height as |z| t**kappa (or z t**kappa, one-sided); the test of constant c calls when a height reaches c.
Let left(c) be the chance, given what the looks have shown, that the height under the old horizon reaches c after all:
between two looks, unseen, or after the last. Let ahead(h) be the chance that the height under the new horizon will
reach h. The new height h then counts as the old height c with left(c) = ahead(h), so that the largest height of all
is distributed under an exact tie as it was: a changed horizon keeps the error probability of every level, and the
p-values, whatever the change was made for, and however often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scorio.moments import FloatArray
from scorio.sinf.continuation import crossing_from, unseen_crossing

MAX_RISE = 7.0
"""Heights are tabulated up to this much above the current one; beyond it the last value applies."""
POINTS = 24
"""Points of a table: dense near the current height, where the chance falls fastest."""
MIN_CHANCE = 1e-12
"""Smaller chances, or less information, count as none."""
MAX_DEPTH = float(np.sqrt(-np.log(100.0 * MIN_CHANCE)))
"""No error is left at this depth of a table."""


class LookValues(NamedTuple):
    """One look at the pairs: z, and the information of the horizon at that time."""

    z: FloatArray
    t: FloatArray


@dataclass(frozen=True, eq=False)
class Exchange:
    """For each pair two tables, of old and new heights, with the depths sqrt(-ln chance), nearly straight lines."""

    old: FloatArray
    remaining: FloatArray
    new: FloatArray
    ahead: FloatArray

    def old_height(self, new: FloatArray) -> FloatArray:
        """The height under the old horizon that a height under the new one counts as."""
        return _read(_read(new, self.new, self.ahead), self.remaining, self.old)

    def new_height(self, old: FloatArray) -> FloatArray:
        """The height under the new horizon that counts as this one under the old; infinite where nothing is left."""
        depth = _read(old, self.old, self.remaining)
        return np.where(depth < MAX_DEPTH, _read(depth, self.ahead, self.new), np.inf)

    def chance_left(self, old: FloatArray) -> FloatArray:
        """The chance of reaching this old height after all, under an exact tie."""
        depth = _read(old, self.old, self.remaining)
        return np.where(depth < MAX_DEPTH, np.exp(-depth * depth), 0.0)


def exchange(looks: Sequence[LookValues], now: FloatArray, kappa: float, start: float, sides: int) -> Exchange:
    """The exchange after these looks under the old horizon, to one under which the information is `now`."""
    raw = [np.clip(look.t, max(start, MIN_CHANCE), 1.0) for look in looks]
    information = [np.maximum.accumulate(raw, axis=0)[place] for place in range(len(raw))]
    paths = [look.z * np.sqrt(t) for look, t in zip(looks, information, strict=True)]
    last, at, t_now = looks[-1].z, information[-1], np.clip(now, MIN_CHANCE, 1.0)
    spread = np.linspace(0.0, 1.0, POINTS) ** 2 * MAX_RISE
    height = np.abs(last) if sides == 2 else last
    old = np.maximum(height * at**kappa, 0.0)[:, None] + spread
    new = np.maximum(height * t_now**kappa, 0.0)[:, None] + spread
    missed = 1.0 - crossing_from(old, paths[-1], at, kappa, sides)
    for w, t in zip(
        zip(paths[:-1], paths[1:], strict=True), zip(information[:-1], information[1:], strict=True), strict=True
    ):
        ends, times = [path_ends[:, None] for path_ends in w], (t[0][:, None], t[1][:, None])
        unseen = unseen_crossing(old, (ends[0], ends[1]), times, kappa)
        if sides == 2:  # at least as likely as the likelier of the two
            unseen = np.maximum(unseen, unseen_crossing(old, (-ends[0], -ends[1]), times, kappa))
        missed *= 1.0 - unseen
    ahead = crossing_from(new, last * np.sqrt(t_now), t_now, kappa, sides)
    return Exchange(old, _depth(1.0 - missed), new, _depth(ahead))


def height_for(chance: FloatArray, z: FloatArray, t: FloatArray, kappa: float) -> FloatArray:
    """The height |z| t**kappa that each pair, where it is now, will reach with this chance; infinite for none."""
    spread = np.linspace(0.0, 1.0, POINTS) ** 2 * MAX_RISE
    heights = (np.abs(z) * t**kappa)[:, None] + spread
    ahead = _depth(crossing_from(heights, z * np.sqrt(t), t, kappa, 2))
    depth = np.sqrt(-np.log(np.clip(chance, MIN_CHANCE, 1.0)))
    return np.where(depth < MAX_DEPTH, _read(depth, ahead, heights), np.inf)


def _depth(chance: FloatArray) -> FloatArray:
    """sqrt(-ln) of the chances, rising strictly."""
    depth = np.sqrt(-np.log(np.clip(np.minimum.accumulate(chance, axis=1), MIN_CHANCE, 1.0)))
    return np.asarray(depth + 1e-9 * np.arange(depth.shape[1]))


def _read(x: FloatArray, at: FloatArray, values: FloatArray) -> FloatArray:
    """Each row's table, interpolated: its `values` over the rising `at`."""
    interpolated = [np.interp(*row) for row in zip(np.broadcast_to(x, len(at)), at, values, strict=True)]
    return np.array(interpolated, dtype=float)
