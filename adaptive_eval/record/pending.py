"""What is pending at batch services, from what has happened to the run."""

from collections.abc import Iterable, Sequence

from adaptive_eval.record.results import BatchRow
from adaptive_eval.store import Event
from adaptive_eval.store.pending import PendingBatch, pending_batches


def batch_rows(events: Sequence[Event]) -> tuple[BatchRow, ...]:
    """The batches that are not over, the oldest first."""
    return rows_of(pending_batches(events))


def rows_of(pending: Iterable[PendingBatch]) -> tuple[BatchRow, ...]:
    """A row for each of these batches."""
    rows = (
        BatchRow(one.model, one.batch, len(one.requests), one.since or one.planned, one.cancelled) for one in pending
    )
    return tuple(sorted(rows, key=lambda row: (row.since, row.model)))
