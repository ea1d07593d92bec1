"""Formats of scores and differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of scores that a rubric gives; a range within 0 to 1 is written in percent."""

    low: float
    high: float

    @classmethod
    def of(cls, weights: Sequence[float]) -> Self:
        """The range of a rubric's weights."""
        return cls(min(weights), max(weights))

    def score(self, value: float | None) -> str:
        """A score with three decimals, or in percent with one."""
        if value is None or math.isnan(value):
            return "-"
        return f"{100 * value:.1f}%" if self.low >= 0.0 and self.high <= 1.0 else f"{value:.3f}"

    def width(self, value: float | None) -> str:
        """A difference or a standard error: one digit more than a score, and no minus before nothing."""
        if value is None or math.isnan(value):
            return "-"
        return f"{100 * value:z.2f}%" if self.low >= 0.0 and self.high <= 1.0 else f"{value:z.4f}"

    def interval(self, lo: float | None, hi: float | None) -> str:
        """An interval without what lies beyond the scale, where no score can be: few trials make it wide."""
        if lo is None or hi is None:
            return "- .. -"
        return f"{self.score(max(lo, self.low))} .. {self.score(min(hi, self.high))}"

    def points(self, difference: float) -> str:
        """A difference of scores in words: 0.02 of scores in percent is 2 points, not 2% of anything."""
        if self.low < 0.0 or self.high > 1.0:
            return f"{difference:.10g}"
        return f"{100 * difference:.10g} point{'' if math.isclose(difference, 0.01) else 's'}"

    def rounded_points(self, difference: float) -> str:
        """The same of what was measured, with the digits of a score."""
        if self.low < 0.0 or self.high > 1.0:
            return f"{difference:z.3f}"
        return f"{100 * difference:z.1f} points"
