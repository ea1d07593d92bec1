"""Events of batches at batch services, and the batches that have not ended according to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from adaptive_eval.notes.event import Event


@dataclass(frozen=True, slots=True)
class BatchPlanned(Event, kind="batch_planned"):
    """A batch of requests is about to be submitted to a provider's batch service."""

    model: str
    key: str
    """Our own key, sent with the batch so that it can be found again."""
    requests: tuple[str, ...] = ()
    """The ids of its requests."""
    planned: float = 0.0
    """Seconds since 1970."""
    service: str = ""
    """The kind of the service."""


@dataclass(frozen=True, slots=True)
class BatchTaken(Event, kind="batch_taken"):
    """The batch service has accepted a batch."""

    model: str
    key: str
    batch: str = ""
    """The service's id of the batch."""
    size: int = 0
    """Requests in it."""
    since: float = 0.0
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class BatchEnded(Event, kind="batch_ended"):
    """A batch has ended, and all answers that arrived are stored."""

    model: str
    key: str
    status: str = ""
    """The final status that the service reported, or what became of the batch without one."""
    came: int = 0
    missing: int = 0
    """Answers to be requested again."""
    lost: int = 0
    """Number of missing answers that may have been generated and paid for."""


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch at a service, or about to be submitted."""

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
    service: str = ""
    """The kind of the service."""


def pending_batches(events: Sequence[Event]) -> list[PendingBatch]:
    """The batches that have not ended, in the order in which they were planned."""
    pending: dict[str, PendingBatch] = {}
    for event in events:
        match event:
            case BatchPlanned():
                pending[event.key] = PendingBatch(
                    event.model, event.key, event.requests, event.planned, service=event.service
                )
            case BatchTaken() if event.key in pending:
                pending[event.key] = replace(pending[event.key], batch=event.batch, since=event.since)
            case BatchEnded():
                pending.pop(event.key, None)
    return list(pending.values())
