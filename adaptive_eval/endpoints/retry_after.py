"""Parses the wait that a server asks for (`Retry-After`), and decides how long to wait.

up to `LONGEST` seconds               as it says
more, but what one request may wait   `LONGEST` seconds, then it is asked again
still more: hours, years              ignored: pauses that double up to `LONGEST` seconds
negative, not a number, no date       ignored: no wait

A past date asks for no wait. What is ignored gives a notice. Rate limits are per minute, so an honest server asks for
at most a minute, and asking once a minute costs next to nothing.
"""

import re
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from math import isnan
from typing import NamedTuple

from adaptive_eval.endpoints.types import Notice

LONGEST = 60.0
FIRST_PAUSE = 0.5


class RetryAfter(NamedTuple):
    """When a server wants to be asked again."""

    seconds: float | None
    """None if it cannot be read."""
    said: str


def read_retry_after(headers: Mapping[str, str], now: float | None = None) -> RetryAfter | None:
    """Read `retry-after-ms`, or `Retry-After` in seconds or as a date; None if there is neither."""
    for name, read in (("retry-after-ms", _milliseconds), ("retry-after", _seconds)):
        if (said := headers.get(name)) is not None:
            return RetryAfter(read(said.strip(), time.time() if now is None else now), said)
    return None


def _milliseconds(said: str, now: float) -> float | None:
    try:
        number = float(said) / 1000.0
    except ValueError:
        return None
    return None if isnan(number) or number < 0.0 else number


def _seconds(said: str, now: float) -> float | None:
    try:
        if re.fullmatch(r"\d+(\.\d+)?", said):
            return float(said)
        return max(0.0, parsedate_to_datetime(said).timestamp() - now)
    except (ValueError, OverflowError):
        return None


class RetryAfterPolicy:
    """Decides how long to wait for one model's servers that ask for a wait."""

    def __init__(
        self, most: float, clock: Callable[[], float], note: Callable[[Notice], None], clean: Callable[[str], str]
    ) -> None:
        """`most`: seconds for which one request waits out refusals; `clean` makes a server's text safe to show."""
        self._most = most
        self._clock = clock
        self._note = note
        self._clean = clean
        self._put_off: dict[str, tuple[int, float]] = {}
        """For each replica, its implausible waits in a row, and the time of the last one."""

    def on_answer(self, url: str) -> None:
        """Record that a replica gives answers."""
        self._put_off.pop(url, None)

    def believed_seconds(self, url: str, told: RetryAfter | None, sent_at: float) -> float:
        """Seconds to leave a replica alone, given its reply to a request sent at `sent_at`."""
        if told is None:
            return 0.0
        if told.seconds is None:
            self._tell("unreadable_wait", told, "cannot be parsed, and is ignored")
            return 0.0
        if told.seconds <= LONGEST:
            return told.seconds
        if told.seconds <= self._most:
            self._tell("long_wait", told, f"is more than a minute: it is asked again every {LONGEST:g} s")
            return LONGEST
        times, last = self._put_off.get(url, (0, -float("inf")))
        if sent_at >= last:  # requests that were on their way together count once
            times += 1
            self._put_off[url] = times, self._clock()
        self._tell("absurd_wait", told, f"is not believed: it is asked again after pauses of {LONGEST:g} s at most")
        return min(LONGEST, FIRST_PAUSE * 2.0 ** min(times - 1, 16))

    def _tell(self, kind: str, told: RetryAfter, what: str) -> None:
        self._note(Notice(kind, f"the Retry-After of its server ({self._clean(told.said)!r}) {what}"))
