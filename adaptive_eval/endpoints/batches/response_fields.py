"""Reading what a batch service says: whatever is not what it should be is a `Failure`, or nothing."""

import re
from collections.abc import Mapping

from adaptive_eval.endpoints.failures import Failure, FailureKind

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
"""What a service may give as an id: fit to stand in a path."""
_SHOWN_WORD = 40


def bad(what: str) -> Failure:
    """A response of a batch service that makes no sense."""
    return Failure(FailureKind.BAD_RESPONSE, f"the batch service replied with something that is not a batch: {what}")


def fields_of(value: object, what: str) -> Mapping[str, object]:
    """The value as an object; raises `Failure` if it is none."""
    if not isinstance(value, dict):
        raise bad(f"{what} is of type {type(value).__name__}")
    return value


def identifier(value: object, what: str) -> str:
    """An id as a service gives it; raises `Failure` for what is none."""
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise bad(f"{what} is no id")
    return value


def word_of(value: object) -> str:
    """A service's word, with the characters that may be shown."""
    return re.sub(r"[^A-Za-z0-9_ -]", "", value)[:_SHOWN_WORD] if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """The value as a count; None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def time_of(value: object) -> float | None:
    """The value as seconds since 1970; None if it is no time."""
    return float(value) if isinstance(value, int | float) and 0 < value < 2**36 else None
