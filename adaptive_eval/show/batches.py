"""What is pending at batch services, in words."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from adaptive_eval.record.lines import duration, safe_line
from adaptive_eval.record.results import BatchRow
from adaptive_eval.show.text import count

WIDEST_ID = 40


def pending_in_short(rows: Sequence[BatchRow], now: float | None = None) -> str | None:
    """How much is pending, and for how long the oldest of it is `now`; None where nothing is."""
    if not rows:
        return None
    now = time.time() if now is None else now
    requests, oldest = sum(row.requests for row in rows), max(0.0, now - min(row.since for row in rows))
    batches = f"{len(rows)} batch{'es' if len(rows) > 1 else ''}"
    return f"{batches} pending ({count(requests)} requests, the oldest for {duration(oldest)})"


def where_pending(row: BatchRow) -> str:
    """Where the requests of a batch are."""
    if row.batch is None:
        return "being handed in"
    cancelled = ", being cancelled" if row.cancelled else ""
    return f"{safe_line(row.batch, WIDEST_ID)}{cancelled}"


def since_when(row: BatchRow) -> str:
    """When a batch was handed in."""
    return f"{datetime.fromtimestamp(row.since, UTC):%Y-%m-%d %H:%M} UTC"
