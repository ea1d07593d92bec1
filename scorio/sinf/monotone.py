"""A smooth curve through a falling table, which falls as the table does: a cubic between each two of its points.

The slope at a point is the harmonic mean of the two differences beside it, or 0 where one of them is (Fritsch and
Butland 1984), so that no cubic overshoots. These are the curves of `scipy.interpolate.PchipInterpolator` for evenly
spaced points, without the third of a second that loading it takes: reading a run needs one value of one curve.
"""

from dataclasses import dataclass

import numpy as np

from scorio.moments import FloatArray

PRECISION = 1e-12
"""Accuracy of the place of a value."""


@dataclass(frozen=True, eq=False)
class FallingCurve:
    """Values over evenly spaced points, at least three, none above the one before."""

    points: FloatArray
    values: FloatArray
    slopes: FloatArray

    @classmethod
    def through(cls, points: FloatArray, values: FloatArray) -> "FallingCurve":
        """The curve through these values."""
        step = np.diff(values) / (points[1] - points[0])
        before, after = step[:-1], step[1:]
        both = (before < 0.0) & (after < 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.where(both, 2.0 * before * after / (before + after), 0.0)
        slopes = np.concatenate(([_end(step[0], step[1])], inner, [_end(step[-1], step[-2])]))
        return cls(points, values, slopes)

    def __call__(self, at: FloatArray | float) -> FloatArray:
        """The height of the curve at places between its ends."""
        index = np.clip(np.searchsorted(self.points, at, side="right") - 1, 0, len(self.points) - 2)
        width = self.points[1] - self.points[0]
        u = (at - self.points[index]) / width
        v = 1.0 - u
        ends = v * v * (1.0 + 2.0 * u) * self.values[index] + u * u * (1.0 + 2.0 * v) * self.values[index + 1]
        height: FloatArray = ends + width * u * v * (v * self.slopes[index] - u * self.slopes[index + 1])
        return height

    def place(self, value: float) -> float:
        """The place at which the curve has a value between those of its ends, found by halving."""
        index = int(np.clip(np.searchsorted(-self.values, -value) - 1, 0, len(self.points) - 2))
        low, high = float(self.points[index]), float(self.points[index + 1])
        while high - low > PRECISION:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if float(self(middle)) > value else (low, middle)
        return 0.5 * (low + high)


def _end(step: float, next_step: float) -> float:
    """The slope at an end, from a parabola through three points, as far as the curve then keeps falling."""
    slope = 1.5 * step - 0.5 * next_step
    if slope >= 0.0:
        return 0.0
    return max(slope, 3.0 * step)
