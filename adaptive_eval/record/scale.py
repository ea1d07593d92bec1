"""Formats of scores and differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Scale:
    """Range of a rubric's scores; a range within 0 to 1 is written in percent."""

    low: float
    high: float

    @classmethod
    def of(cls, weights: Sequence[float]) -> Self:
        """Range of a rubric's weights."""
        return cls(min(weights), max(weights))

    def score(self, value: float | None) -> str:
        """Format a score: three decimals, or percent with one."""
        if value is None or math.isnan(value):
            return "-"
        return f"{100 * value:.1f}%" if self.low >= 0.0 and self.high <= 1.0 else f"{value:.3f}"

    def width(self, value: float | None) -> str:
        """Format a difference or standard error, with one more digit than a score and no negative zero."""
        if value is None or math.isnan(value):
            return "-"
        return f"{100 * value:z.2f}%" if self.low >= 0.0 and self.high <= 1.0 else f"{value:z.4f}"

    def interval(self, lo: float | None, hi: float | None) -> str:
        """Format an interval, clipped to the scale."""
        if lo is None or hi is None:
            return "- .. -"
        return f"{self.score(max(lo, self.low))} .. {self.score(min(hi, self.high))}"

    def points(self, difference: float) -> str:
        """Format a difference of scores: 0.02 of scores in percent is 2 points, not 2% of anything."""
        if self.low < 0.0 or self.high > 1.0:
            return f"{difference:.10g}"
        return f"{100 * difference:.10g} point{'' if math.isclose(difference, 0.01) else 's'}"

    def rounded_points(self, difference: float) -> str:
        """Format a measured difference, with the digits of a score."""
        if self.low < 0.0 or self.high > 1.0:
            return f"{difference:z.3f}"
        return f"{100 * difference:z.1f} points"
