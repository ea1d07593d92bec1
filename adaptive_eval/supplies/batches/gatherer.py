"""Gathers requests that arrive together into one batch."""

import asyncio
from collections.abc import Callable
from secrets import token_hex

from adaptive_eval.endpoints.batching import MAX_REQUESTS
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.supplies.batches.calls import BatchCalls, ServiceBatch, WaitingRequest

GATHER_SECONDS = 0.25
"""A batch is submitted when nothing was added to it for this long."""


class BatchGatherer:
    """Gathers requests until none is added for a moment, or the batch is full, and then submits the batch."""

    def __init__(
        self,
        calls: BatchCalls,
        encode: Callable[[str, WaitingRequest], bytes],
        hand_in: Callable[[ServiceBatch], None],
    ) -> None:
        """`encode` makes the body of a request with a custom id."""
        self._calls, self._encode, self._hand_in = calls, encode, hand_in
        self._task: asyncio.Task[None] | None = None
        self._reset()

    def _reset(self) -> None:
        self._key = token_hex(8)
        self._waiting: dict[str, WaitingRequest] = {}
        self._bodies: dict[str, bytes] = {}
        self._size = 0
        """Bytes of the bodies."""

    def add(self, waiting: WaitingRequest) -> None:
        """Add a request to the batch that is gathered now, or to a new one if that is full."""
        service = self._calls.service
        body = self._encode(f"{self._key}_{waiting.id}", waiting)
        if self._bodies and self._size + len(body) > service.format.max_bytes:
            self._flush()
            self.add(waiting)
            return
        self._waiting[waiting.id] = waiting
        self._bodies[waiting.id] = body
        self._size += len(body)
        if len(self._bodies) >= MAX_REQUESTS[service.kind]:
            self._flush()
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_when_quiet())

    def remove(self, name: str) -> None:
        """Remove this request, if it is in the gathered batch."""
        if self._waiting.pop(name, None) is not None:
            self._size -= len(self._bodies.pop(name))

    def remove_all(self) -> list[WaitingRequest]:
        """Submit nothing; returns the gathered requests."""
        removed = list(self._waiting.values())
        if self._task is not None:
            self._task.cancel()
        self._reset()
        return removed

    async def _flush_when_quiet(self) -> None:
        previous = ("", 0)
        while self._bodies and previous != (self._key, len(self._bodies)):
            previous = self._key, len(self._bodies)
            await asyncio.sleep(GATHER_SECONDS)
        self._flush()

    def _flush(self) -> None:
        if self._bodies:
            record = PendingBatch(self._calls.name, self._key, tuple(sorted(self._waiting)), self._calls.now())
            batch = ServiceBatch(record, list(self._bodies.values()), self._waiting)
            self._reset()
            self._hand_in(batch)
