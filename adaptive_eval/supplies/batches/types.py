"""Batches, requests and results common to all services, and safe fields of replies.

A batch is found again by its key. The key is in its metadata, if the service supports that, and at the start of each
request's id (`custom_id`), which is returned with the result. An unexpected value in a reply is a `Failure`, or
ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from adaptive_eval.endpoints.failures import Failure, FailureKind

METADATA_KEY = "adaptive_eval"
"""The metadata key for a batch's own key."""
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
"""Valid ids from a service: safe within a path."""
_MAX_WORD_CHARS = 40


class BatchStage(StrEnum):
    """Progress of a batch."""

    RUNNING = "running"
    ENDED = "ended"
    """There are results, though perhaps not for all requests."""
    FAILED = "failed"
    """The batch was refused as a whole."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """State of a batch, as reported by its service."""

    id: str
    stage: BatchStage
    status: str
    """The service's own name of the state."""
    key: str | None = None
    """The key in its metadata, if it has any."""
    total: int | None = None
    """Number of requests, if the service reports it."""
    created: float | None = None
    """Seconds since 1970."""
    files: tuple[str, ...] = ()
    """Ids of the files with results."""
    reason: str = ""
    """Why it failed."""
    busy: bool = False
    """Whether it failed because the service is too busy, and may be accepted later."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One result."""

    custom_id: str
    unanswered: str | None = None
    """How the request ended without a response: expired or cancelled."""
    code: int = 200
    """HTTP status of the response."""
    payload: object = None
    """The response in the form of the chat or completions API."""
    error: Mapping[str, object] = field(default_factory=dict)
    """The body of an error."""


# -- fields of replies -------------------------------------------------------------------------------------------------


def bad_reply(problem: str) -> Failure:
    """The error for an invalid response of a batch service."""
    return Failure(FailureKind.BAD_RESPONSE, f"the reply of the batch service is not a batch: {problem}")


def require_object(value: object, name: str) -> Mapping[str, object]:
    """The value as an object; raises `Failure` if it is not one."""
    if not isinstance(value, dict):
        raise bad_reply(f"{name} is of type {type(value).__name__}")
    return value


def identifier(value: object, name: str) -> str:
    """A service's id; raises `Failure` if it is invalid."""
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise bad_reply(f"{name} is not a valid id")
    return value


def safe_word(value: object) -> str:
    """A service's word, reduced to characters that are safe to show."""
    return re.sub(r"[^A-Za-z0-9_ -]", "", value)[:_MAX_WORD_CHARS] if isinstance(value, str) else ""


def parse_count(value: object) -> int | None:
    """The value as a count; None if it is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def parse_time(value: object) -> float | None:
    """The value as seconds since 1970; None if it is not a time."""
    return float(value) if isinstance(value, int | float) and 0 < value < 2**36 else None
