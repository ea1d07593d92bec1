"""Memory-saving sets and columns of numbers, which with millions of answers take most of the memory of a resume."""

from array import array
from bisect import bisect_left
from collections import defaultdict
from itertools import count

import numpy as np

MOST_RECENT = 128
"""Numbers that may be kept as Python integers, of 70 bytes each."""
SHARE_RECENT = 16
"""In large sets, the part of the numbers that may be kept so: one in this many."""

_NUMBERS: defaultdict[str, int] = defaultdict(count().__next__)


def question_number(question: str) -> int:
    """The index of a question in every `Column`, stable as long as the process lives."""
    return _NUMBERS[question]


class NumberSet:
    """A set of 64-bit numbers that takes about 8 bytes each."""

    __slots__ = ("_recent", "_sorted")

    def __init__(self) -> None:
        self._sorted, self._recent = array("q"), set[int]()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def add(self, number: int) -> bool:
        """Add a number; returns whether it was there before."""
        if number in self._recent:
            return True
        at = bisect_left(self._sorted, number)
        if at < len(self._sorted) and self._sorted[at] == number:
            return True
        self._recent.add(number)
        if len(self._recent) > max(MOST_RECENT, len(self._sorted) // SHARE_RECENT):
            recent = np.fromiter(self._recent, np.int64, len(self._recent))
            self._sorted = array("q", np.sort(np.append(self._sorted, recent)).tobytes())
            self._recent = set()
        return False


class Column:
    """A number for each question, -1 by default."""

    __slots__ = ("_values",)

    def __init__(self, kind: str) -> None:
        """`kind` is an array type code: i for 4 bytes, q for 8."""
        self._values = array(kind)

    def __getitem__(self, number: int) -> int:
        return int(self._values[number]) if number < len(self._values) else -1

    def __setitem__(self, number: int, value: int) -> None:
        if number >= len(self._values):
            self._values.extend([-1] * (number + 1 - len(self._values)))
        self._values[number] = value
