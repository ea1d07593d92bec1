"""Parts of a JSON value as what they should be: a log may hold anything in any place."""

from collections.abc import Mapping, Sequence
from typing import Any

from adaptive_eval.questions.load import as_text

LARGEST = 2**53
"""Up to here every whole number is a float, too."""
__all__ = ["LARGEST", "as_text", "mapping", "number", "sequence", "whole_number"]


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[Any]:
    """A list, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def number(value: object) -> float | None:
    """A number that is one, else None."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    return float(value) if known and isinstance(value, int | float) else None


def whole_number(value: object) -> int | None:
    """An integer that a table can hold, else None."""
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    return int(value) if whole and isinstance(value, int) else None
