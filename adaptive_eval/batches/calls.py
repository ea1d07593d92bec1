"""Batches, and the calls to their service: hand one in, find it again, poll it until it has ended, cancel it.

    create                      the answer came: it is taken
      the answer was lost       the list of batches has one with the key: it is taken
                                it has none (openai): it is created anew; else what was in it is lost
    poll, with a growing pause  ended, or older than `cancel_after`: it is cancelled, and what it has is collected

Anthropic and OpenRouter keep no metadata: there every batch of the time that nobody knows and that has as many requests
is waited for and recognised by the ids among its results.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import inf
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, Rejected, Unavailable
from adaptive_eval.endpoints.failures import Failure, Refusal
from adaptive_eval.endpoints.types import Answer, Prompt
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.store import BatchCancelled, BatchEnded, BatchPlanned, BatchTaken, Event
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supplies.batches.types import BatchResult, BatchStage, BatchState
from adaptive_eval.supplies.batches.wire import MaybeCreated
from adaptive_eval.supply.types import Journal


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
class AwaitedAnswer:
    """A request that waits for its answer."""

    id: str
    prompt: Prompt
    seed: int
    attempt: int
    outcome: "asyncio.Future[Answer | NoBatchAnswer]"

    def fail(self, error: Exception) -> None:
        """Have the request fail, unless it has its answer."""
        if not self.outcome.done():
            self.outcome.set_exception(error)


@dataclass(eq=False, slots=True)
class CarriedBatch:
    """One batch, from when it is handed in to the last answer that is stored."""

    record: PendingBatch
    """The batch as the events of the run have it."""
    ids: set[str]
    """Ids of the requests without a result yet."""
    bodies: Sequence[bytes] = ()
    """The requests, until the service has taken them; empty for a batch of an earlier start."""
    waiting: dict[str, AwaitedAnswer] = field(default_factory=dict)
    early: dict[str, BatchResult] = field(default_factory=dict)
    """Results that nobody has asked for since this start."""
    owed: set[str] = field(default_factory=set)
    """Ids of answers that are not stored yet."""
    collected: BatchEnded | None = None
    """The event to record when all its answers are stored."""
    handed_in: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    """Why nothing of it comes in this start."""

    def fail(self, error: Exception) -> None:
        """Have the requests that wait for it fail, and those that are still to come."""
        self.error = error
        for asked in self.waiting.values():
            asked.fail(error)


def trial_id(prompt: Prompt, seed: int) -> str:
    """The id of a request, made of what it asks, so that a later start finds it again."""
    asked = prompt.text if prompt.messages is None else [(one.role, one.content) for one in prompt.messages]
    return f"{blake2b(repr(asked).encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}-{seed}"


def variants(name: str) -> list[str]:
    """Ids for the first and for further requests that are the same in every way."""
    return [name, *(f"{name}-{number}" for number in range(2, MOST_ALIKE + 1))]


MOST_ALIKE = 64
"""Questions with the same prompt and seed that may be asked at a time."""


EARLIER_SECONDS = 120.0
"""How far the clock of a service may be behind."""
GROWTH = 1.5
"""The pause between two polls grows by this factor."""
GONE = frozenset({404, 410})


class BatchCalls:
    """Calls of one model's batches to their service, each recorded in the journal."""

    journal: Journal
    """Set before anything is asked."""
    first_poll = 1.0
    """Seconds from sending a batch to its first poll."""
    longest_poll = 300.0
    """Longest pause between two polls in seconds."""
    retry_pause = 10.0
    """Seconds between two tries: to cancel a batch, to find it in a list, and, doubled each time, to send it."""

    def __init__(self, name: str, service: BatchService, attempts: int, now: Callable[[], float]) -> None:
        self.name, self.service, self.attempts, self.now = name, service, attempts, now
        self.known: set[str] = set()
        """Ids of batches whose owner is known."""
        self.sent = 0
        """How many requests were in batches that were created."""

    def note(self, event: Event) -> None:
        """Record an event."""
        self.journal.note(event)

    async def wait_for_end(self, batch: CarriedBatch) -> BatchState | NoBatchAnswer:
        """Wait until a batch has ended; returns its state, or why nothing of it will come."""
        state = await self._taken_state(batch)
        return state if isinstance(state, NoBatchAnswer) else await self._polled(state, batch)

    async def cancel(self, batch: CarriedBatch) -> None:
        """Cancel the batch; one that has just ended is not cancelled, nor one whose service does not say that it is."""
        if await self.request_cancel(batch):
            batch.record = replace(batch.record, cancelled=True)
            self.note(BatchCancelled(self.name, batch.record.key))

    async def request_cancel(self, batch: CarriedBatch) -> bool:
        """Ask the service to cancel the batch; returns whether it will."""
        assert batch.record.batch is not None
        try:
            await self.service.format.cancel(batch.record.batch)
        except (EndpointError, Failure):
            return False
        return True

    # -- the beginning of a batch ----------------------------------------------------------------------------------

    async def _taken_state(self, batch: CarriedBatch) -> BatchState | NoBatchAnswer:
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
        # without bodies it is of an earlier start, which was killed before it heard of it
        state = await (self._create(batch) if batch.bodies else self._find(batch.record))
        if isinstance(state, BatchState):
            batch.record, batch.bodies = replace(batch.record, batch=state.id, since=self.now()), ()
            self.known.add(state.id)
            self.note(BatchTaken(self.name, batch.record.key, state.id, len(batch.ids), batch.record.since))
            batch.handed_in.set()
        return state

    async def _create(self, batch: CarriedBatch) -> BatchState | NoBatchAnswer:
        """Create the batch; if the reply is lost, look for the batch before creating it again."""
        record = batch.record
        self.note(BatchPlanned(self.name, record.key, record.requests, record.planned))
        await self.journal.safe()
        for _ in range(self.attempts):
            try:
                state = await self.service.format.create(record.key, batch.bodies)
            except (MaybeCreated, Failure):
                found = await self._find(record)
                if isinstance(found, BatchState) or found.lost:
                    return found
            except EndpointError:
                self.note(BatchEnded(self.name, record.key, "refused", missing=len(batch.ids)))
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
                return NoBatchAnswer("nobody knows whether the batch was created", lost=True)
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

    async def _polled(self, state: BatchState, batch: CarriedBatch | None = None) -> BatchState:
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

    def _seconds_left(self, batch: CarriedBatch) -> float:
        """Seconds after which a batch is to be cancelled; endless if it was, or there is no limit."""
        patience = self.service.settings.cancel_after
        if patience is None or batch.record.cancelled:
            return inf
        return max(0.0, batch.record.since + patience - self.now())
