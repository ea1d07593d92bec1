"""Parses the wait that a server asks for (`Retry-After`)."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple


class RetryAfter(NamedTuple):
    """Wait that a server asks for."""

    seconds: float | None
    """None if it cannot be read."""
    header: str


def read_retry_after(headers: Mapping[str, str], now: float | None = None) -> RetryAfter | None:
    """Read `retry-after-ms`, or `Retry-After` in seconds or as a date; None if there is neither."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (header := headers.get(name)) is not None:
            return RetryAfter(_seconds(header.strip(), unit, time.time() if now is None else now), header)
    return None


def _seconds(header: str, unit: float, now: float) -> float | None:
    try:
        if re.fullmatch(r"\d+(\.\d+)?", header):
            return float(header) * unit
        return max(0.0, parsedate_to_datetime(header).timestamp() - now) if unit == 1.0 else None
    except (ValueError, OverflowError):
        return None
