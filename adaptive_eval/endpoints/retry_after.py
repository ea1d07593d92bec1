"""Parses the wait that a server asks for (`Retry-After`)."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def read_retry_after(headers: Mapping[str, str], now: float | None = None) -> float:
    """Seconds of `retry-after-ms`, or of `Retry-After` as a number or a date; 0 if there is neither, or no such
    value."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (header := headers.get(name)) is not None:
            return _seconds(header.strip(), unit, time.time() if now is None else now)
    return 0.0


def _seconds(header: str, unit: float, now: float) -> float:
    try:
        if re.fullmatch(r"\d+(\.\d+)?", header):
            return float(header) * unit
        return max(0.0, parsedate_to_datetime(header).timestamp() - now) if unit == 1.0 else 0.0
    except (ValueError, OverflowError):
        return 0.0
