"""Parses fields of a batch service's responses: an unexpected value is a `Failure`, or is ignored."""

import re
from collections.abc import Mapping

from adaptive_eval.endpoints.failures import Failure, FailureKind

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
"""Valid ids from a service: safe within a path."""
_SHOWN_WORD = 40


def bad(what: str) -> Failure:
    """The error for an invalid response of a batch service."""
    return Failure(FailureKind.BAD_RESPONSE, f"the reply of the batch service is not a batch: {what}")


def require_object(value: object, what: str) -> Mapping[str, object]:
    """The value as an object; raises `Failure` if it is not one."""
    if not isinstance(value, dict):
        raise bad(f"{what} is of type {type(value).__name__}")
    return value


def identifier(value: object, what: str) -> str:
    """A service's id; raises `Failure` if it is invalid."""
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise bad(f"{what} is not a valid id")
    return value


def safe_word(value: object) -> str:
    """A service's word, reduced to characters that are safe to show."""
    return re.sub(r"[^A-Za-z0-9_ -]", "", value)[:_SHOWN_WORD] if isinstance(value, str) else ""


def parse_count(value: object) -> int | None:
    """The value as a count; None if it is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def parse_time(value: object) -> float | None:
    """The value as seconds since 1970; None if it is not a time."""
    return float(value) if isinstance(value, int | float) and 0 < value < 2**36 else None
