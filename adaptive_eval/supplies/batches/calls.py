"""Batches, and the calls to their service: hand one in, find it again, poll it until it has ended, cancel it.

    create                      the reply came: the service has the batch
      the reply was lost        the list of batches has one with the key: that is the batch
                                it has none (openai): it is created anew; else its requests are lost
    poll, with a growing pause  ended, or older than `cancel_after`: it is cancelled, and what it has is collected

Anthropic and OpenRouter keep no metadata: there every unknown batch of the time that has as many requests is waited
for, and recognised by the ids among its results.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, Rejected, Unavailable
from adaptive_eval.endpoints.failures import Failure, Refusal
from adaptive_eval.launch.hosts import OnEvent
from adaptive_eval.machine.trial import Request
from adaptive_eval.notes import BatchCancelled, BatchEnded, BatchPlanned, BatchTaken
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supplies.batches.types import BatchStage, BatchState
from adaptive_eval.supplies.batches.wire import MaybeCreated


class NoBatchAnswer(NamedTuple):
    """Why a request of a batch has no answer."""

    why: str
    lost: bool = False
    """It may have been generated, and paid for."""
    refused: bool = False
    """Asked for once more, it is believed."""
    pause: bool = False
    """The service has too much to do."""
    excused: bool = False
    """It says nothing of the request."""
    direct: bool = False
    """There is no more patience with batches."""


@dataclass(eq=False, slots=True)
class WaitingRequest:
    """A request for one answer, over all batches that it was in."""

    request: Request
    since: float
    """When it came, in seconds since 1970."""
    attempts: int = 0
    """Batches that it was in."""
    failures: int = 0
    refusals: int = 0

    @property
    def id(self) -> str:
        """Its id at the service: model, question and number of its trial."""
        return f"{self.request.model}-{self.request.question}-{self.request.first}"


@dataclass(eq=False, slots=True)
class ServiceBatch:
    """One batch, from when it is handed in until all its answers are stored."""

    record: PendingBatch
    """The batch as the notes of the run have it."""
    bodies: Sequence[bytes] = ()
    """The requests, until the service has them; empty for a batch of an earlier start."""
    waiting: dict[str, WaitingRequest] = field(default_factory=dict)
    """Requests without a result."""
    unstored: set[str] = field(default_factory=set)
    """Ids of answers that are not on disk yet."""
    ended: BatchEnded | None = None
    """The event to note when all its answers are on disk."""
    is_begun: bool = False
    """Whether it is looked after: one of an earlier start is once its requests were claimed."""
    is_noted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is on disk that the batch is planned."""
    is_handed_in: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service has it, or it is over."""
    error: EndpointError | None = None
    """Why nothing of it comes in this start."""
    ids: frozenset[str] = field(init=False)
    """Ids of all its requests, also of those that earlier starts have stored."""

    def __post_init__(self) -> None:
        self.ids = frozenset(self.record.requests)

    def remove_all(self) -> list[WaitingRequest]:
        """Remove and return the requests that wait for it."""
        removed = list(self.waiting.values())
        self.waiting.clear()
        return removed


EARLIER_SECONDS = 120.0
"""How far the clock of a service may be behind."""
GROWTH = 1.5
"""The pause between two polls grows by this factor."""
GONE = frozenset({404, 410})


class BatchCalls:
    """Calls of one model's batches to their service, each of which is noted."""

    first_poll = 1.0
    """Seconds from sending a batch to its first poll."""
    longest_poll = 300.0
    """Longest pause between two polls in seconds."""
    retry_pause = 10.0
    """Seconds between two tries: to cancel a batch, to find it in a list, and, doubled each time, to send it."""

    def __init__(
        self, name: str, service: BatchService, attempts: int, now: Callable[[], float], note: OnEvent
    ) -> None:
        self.name, self.service, self.attempts, self.now, self.note = name, service, attempts, now, note
        self.known: set[str] = set()
        """Ids of batches whose owner is known."""
        self.sent = 0
        """How many requests were in batches that were created."""

    async def wait_for_end(self, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
        """Wait until a batch has ended; returns its state, or why nothing of it will come."""
        state = await self._taken_state(batch)
        return state if isinstance(state, NoBatchAnswer) else await self._polled(state, batch)

    async def cancel(self, batch: ServiceBatch) -> None:
        """Cancel the batch; one that has just ended is not cancelled, nor one whose service does not say that it is."""
        if await self.request_cancel(batch):
            batch.record = replace(batch.record, cancelled=True)
            self.note(BatchCancelled(self.name, batch.record.key))

    async def request_cancel(self, batch: ServiceBatch) -> bool:
        """Ask the service to cancel the batch; returns whether it will."""
        assert batch.record.batch is not None
        try:
            await self.service.format.cancel(batch.record.batch)
        except (EndpointError, Failure):
            return False
        return True

    # -- the beginning of a batch ----------------------------------------------------------------------------------

    async def _taken_state(self, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
        if batch.record.batch is not None:
            try:
                found = await self.service.format.state(batch.record.batch)
            except Refusal as refusal:
                if refusal.status not in GONE:
                    raise
                return NoBatchAnswer("its batch service no longer knows the batch", lost=True)
            if found.key in (None, batch.record.key):
                return found
            return NoBatchAnswer("its batch service has another batch by that id", lost=True)
        # without bodies it is of an earlier start, which was killed before it got the reply
        state = await (self._create(batch) if batch.bodies else self._find(batch.record))
        if isinstance(state, BatchState):
            batch.record, batch.bodies = replace(batch.record, batch=state.id, since=self.now()), ()
            self.known.add(state.id)
            size = len(batch.record.requests)
            self.note(BatchTaken(self.name, batch.record.key, state.id, size, batch.record.since))
            batch.is_handed_in.set()
        return state

    async def _create(self, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
        """Create the batch; if the reply is lost, look for the batch before creating it again."""
        record = batch.record
        self.note(BatchPlanned(self.name, record.key, record.requests, record.planned))
        await batch.is_noted.wait()
        for _ in range(self.attempts):
            try:
                state = await self.service.format.create(record.key, batch.bodies)
            except (MaybeCreated, Failure):
                found = await self._find(record)
                if isinstance(found, BatchState) or found.lost:
                    return found
            except EndpointError:
                self.note(BatchEnded(self.name, record.key, "refused", missing=len(batch.waiting)))
                raise
            else:
                self.sent += len(batch.bodies)
                return state
        return NoBatchAnswer(f"its batch service did not take a batch in {self.attempts} attempts")

    async def _find(self, batch: PendingBatch) -> BatchState | NoBatchAnswer:
        """Find the batch with this key in the service's list, where it may show a little late."""
        marked = self.service.settings.kind == "openai"  # one that is not in the list does not exist
        since, states = batch.planned - EARLIER_SECONDS, []
        for late in (False, True):
            if late:
                await asyncio.sleep(self.retry_pause)
            try:
                states = await self.service.format.listed(since)
            except (Rejected, Failure) as error:
                if marked:
                    raise Unavailable(f"its batch service does not list its batches: {error}") from None
                return NoBatchAnswer("it is unknown whether the batch was created", lost=True)
            if (ours := next((one for one in states if one.key == batch.key), None)) is not None:
                return ours
        for one in states:
            if self._may_be(one, batch, since) and await self._has_its_ids(one, batch):
                return one
        return NoBatchAnswer("the batch was not created" if marked else "the batch is not found", lost=not marked)

    def _may_be(self, state: BatchState, batch: PendingBatch, since: float) -> bool:
        late = state.created is None or state.created >= since
        return state.key is None and state.id not in self.known and state.total in (None, len(batch.requests)) and late

    async def _has_its_ids(self, state: BatchState, batch: PendingBatch) -> bool:
        """Whether an unknown batch has results of this one; waits for them."""
        try:
            results = await self.service.format.results(await self._polled(state))
        except (Rejected, Failure):  # another's
            return False
        return any(result.custom_id.startswith(f"{batch.key}_") for result in results)

    # -- until it has ended ------------------------------------------------------------------------------------------

    async def _polled(self, state: BatchState, batch: ServiceBatch | None = None) -> BatchState:
        """Poll with a growing pause until a batch has ended; cancel the given one when patience ends."""
        pause = self.first_poll
        while state.stage is BatchStage.RUNNING:
            await asyncio.sleep(pause if batch is None else min(pause, self._seconds_left(batch) or pause))
            pause = min(GROWTH * pause, self.longest_poll)
            if batch is not None and not self._seconds_left(batch):
                await self.cancel(batch)
                pause = self.retry_pause
            state = await self.service.format.state(state.id)
        return state

    def _seconds_left(self, batch: ServiceBatch) -> float:
        """Seconds after which a batch is to be cancelled; endless if it was, or there is no limit."""
        patience = self.service.settings.cancel_after
        if patience is None or batch.record.cancelled:
            return inf
        return max(0.0, batch.record.since + patience - self.now())
