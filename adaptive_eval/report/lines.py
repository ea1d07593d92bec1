"""Texts, times and scores on one line, for a terminal, a page or a document.

Model names, server messages and answers come from outside: `safe_line` removes everything that a terminal would obey.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from adaptive_eval.base.numbers import plain_number

LONGEST = 200
BREAKS = "\n\r\t\u2028\u2029"
MAX_DECIMALS = 6
_SCALE = ("", "k", "M", "G", "T")


def safe_line(text: str, longest: int = LONGEST) -> str:
    """Make a text one line, without control characters, escape sequences or changes of writing direction."""
    clean = "".join(" " if ch in BREAKS else ch if unicodedata.category(ch)[0] != "C" else "�" for ch in text)
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def safe_name(name: str, longest: int) -> str:
    """Make a name one safe line; a long one loses its middle, since checkpoints of a model differ at the end."""
    clean = safe_line(name, len(name))
    if len(clean) <= longest:
        return clean
    tail = (longest - 1) // 2
    return f"{clean[: longest - 1 - tail]}…{clean[len(clean) - tail :]}"


def capitalised(text: str) -> str:
    """Make a text begin with a capital."""
    return f"{text[:1].upper()}{text[1:]}"


def several(number: int, of: str) -> str:
    """Number and noun: 1 answer, 1,759 answers."""
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def count(value: float) -> str:
    """Format a count: 4321 -> 4,321; 1234567 -> 1.23M."""
    if not math.isfinite(value):
        return "-"
    if abs(value) < 100_000:
        return f"{value:,.0f}"
    power = min(int(math.log10(abs(value)) // 3), len(_SCALE) - 1)
    shown = float(f"{value / 1000**power:.3g}")
    if abs(shown) >= 1000 and power < len(_SCALE) - 1:
        shown, power = shown / 1000, power + 1
    return f"{shown:g}{_SCALE[power]}"


def amount(value: float, among: Iterable[float], decimals: int = 2) -> str:
    """Format a number `among` others of its column: two significant digits of the smallest, and at least `decimals`."""
    smallest = min((abs(number) for number in (value, *among) if number and math.isfinite(number)), default=1.0)
    places = min(max(decimals, 1 - math.floor(math.log10(smallest))), MAX_DECIMALS)
    return f"{value:,.{places}f}"


def duration(seconds: float) -> str:
    """75 -> 1m15s; 9000 -> 2h30m."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded}s"
    if rounded < 3600:
        return f"{rounded // 60}m{rounded % 60:02d}s"
    return f"{rounded // 3600}h{rounded % 3600 // 60:02d}m"


def minute(at: float) -> str:
    """Seconds since 1970 as date, hour and minute in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


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
        lo, hi = (min(max(end, self.low), self.high) for end in (lo, hi))
        return f"{self.score(lo)} .. {self.score(hi)}"

    def points(self, difference: float) -> str:
        """Format a difference of scores: 0.02 of scores in percent is 2 points, not 2% of anything."""
        if self.low < 0.0 or self.high > 1.0:
            return plain_number(difference, 10)
        return f"{plain_number(100 * difference, 10)} point{'' if math.isclose(difference, 0.01) else 's'}"

    def rounded_points(self, difference: float) -> str:
        """Format a measured difference, with the digits of a score."""
        if self.low < 0.0 or self.high > 1.0:
            return f"{difference:z.3f}"
        return f"{100 * difference:z.1f} points"
