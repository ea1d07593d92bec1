"""The wait that a server asks for (`Retry-After`), as far as it is believed."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple


class RetryAfter(NamedTuple):
    """When a server wants to be asked again."""

    seconds: float | None
    """None if it cannot be read."""
    said: str


def read_retry_after(headers: Mapping[str, str], now: float | None = None) -> RetryAfter | None:
    """Read `retry-after-ms`, or `Retry-After` in seconds or as a date; None if there is neither."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (said := headers.get(name)) is not None:
            return RetryAfter(_seconds(said.strip(), unit, time.time() if now is None else now), said)
    return None


def _seconds(said: str, unit: float, now: float) -> float | None:
    try:
        if re.fullmatch(r"\d+(\.\d+)?", said):
            return float(said) * unit
        return max(0.0, parsedate_to_datetime(said).timestamp() - now) if unit == 1.0 else None
    except (ValueError, OverflowError):
        return None
