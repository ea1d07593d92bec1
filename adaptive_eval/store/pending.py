"""Batches that have not ended, reconstructed from the events of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adaptive_eval.store.events.answers import BatchCancelled, BatchEnded, BatchPlanned, BatchTaken
from adaptive_eval.store.events.event import Event


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that a service has, or is about to get."""

    model: str
    key: str
    requests: tuple[str, ...]
    """The ids of all its requests."""
    planned: float
    """Seconds since 1970."""
    batch: str | None = None
    """The service's id of the batch; None until the service has replied."""
    since: float = 0.0
    """When the service accepted it."""
    cancelled: bool = False


def pending_batches(events: Sequence[Event]) -> list[PendingBatch]:
    """The batches that have not ended, in the order in which they were planned."""
    found: dict[str, PendingBatch] = {}
    for event in events:
        match event:
            case BatchPlanned():
                found[event.key] = PendingBatch(event.model, event.key, event.requests, event.planned)
            case BatchTaken() if event.key in found:
                found[event.key] = replace(found[event.key], batch=event.batch, since=event.since)
            case BatchCancelled() if event.key in found:
                found[event.key] = replace(found[event.key], cancelled=True)
            case BatchEnded():
                found.pop(event.key, None)
    return list(found.values())
