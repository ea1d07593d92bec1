"""Batches, and the calls to their service: gather requests, submit a batch, find it again, poll it until its end.

    create                      the reply arrived: the service has the batch
      the reply was lost        the list of batches has one with the key: that is the batch
                                it has none (openai): it is created again; else its requests are lost
    poll, with a growing pause  ended: its results are collected

Anthropic stores no metadata. There every unknown batch of the right time and number of requests is waited for, and
recognised by the ids in its results.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import NamedTuple

from adaptive_eval.base.errors import EndpointError, Rejected, Unavailable
from adaptive_eval.endpoints.batching import MAX_REQUESTS
from adaptive_eval.endpoints.failures import Failure, Refusal
from adaptive_eval.endpoints.types import Prompt
from adaptive_eval.launch.hosts import OnEvent
from adaptive_eval.machine.trial import Key, Request
from adaptive_eval.notes import BatchEnded, BatchPlanned, BatchTaken
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supplies.batches.types import BatchStage, BatchState
from adaptive_eval.supplies.batches.wire import MaybeCreated


class NoBatchAnswer(NamedTuple):
    """Why a request of a batch has no answer."""

    reason: str
    lost: bool = False
    """Whether it may have been generated, and paid for."""
    refused: bool = False
    """Whether it was refused; a second refusal is final."""
    pause: bool = False
    """Whether the service is overloaded."""
    excused: bool = False
    """Whether the request itself is not at fault."""


@dataclass(eq=False, slots=True)
class WaitingRequest:
    """A request for one answer, over all its batches."""

    request: Request
    prompt: Prompt
    seed: int
    since: float
    """When it was submitted, in seconds since 1970."""
    attempts: int = 0
    """Number of its batches."""
    failures: int = 0
    refusals: int = 0

    @property
    def id(self) -> str:
        """Its id at the service."""
        return trial_id(self.request.keys[0])


def trial_id(key: Key) -> str:
    """The id of a trial's request at the service."""
    return "-".join(map(str, key))


@dataclass(eq=False, slots=True)
class ServiceBatch:
    """One batch, from its submission until all its answers are stored."""

    record: PendingBatch
    """The batch as recorded in the run's notes."""
    bodies: Sequence[bytes] = ()
    """The requests, until the service has them; empty for a batch of an earlier start."""
    waiting: dict[str, WaitingRequest] = field(default_factory=dict)
    """Requests without a result."""
    unstored: set[str] = field(default_factory=set)
    """Ids of answers that are not on disk yet."""
    ended: BatchEnded | None = None
    """The event to note when all its answers are on disk."""
    is_begun: bool = False
    """Whether it is being processed; a batch of an earlier start is, once its requests were claimed."""
    is_noted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the plan of the batch is on disk."""
    is_handed_in: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service has it, or it has ended."""
    error: EndpointError | None = None
    """Why it has no results in this start."""
    ids: frozenset[str] = field(init=False)
    """Ids of all its requests, including those whose answers earlier starts have stored."""

    def __post_init__(self) -> None:
        self.ids = frozenset(self.record.requests)

    def remove_all(self) -> list[WaitingRequest]:
        """Remove and return the requests that wait for it."""
        removed = list(self.waiting.values())
        self.waiting.clear()
        return removed


CLOCK_SKEW_SECONDS = 120.0
"""Largest lag of a service's clock."""
POLL_GROWTH = 1.5
"""The pause between two polls grows by this factor."""
GONE = frozenset({404, 410})


class BatchCalls:
    """Calls of one model's batches to their service; each call is recorded."""

    first_poll = 1.0
    """Seconds from sending a batch to its first poll."""
    longest_poll = 300.0
    """Longest pause between two polls in seconds."""
    retry_pause = 10.0
    """Seconds between two tries: to find a batch in a list, and, doubled each time, to send it."""

    def __init__(
        self, name: str, service: BatchService, attempts: int, now: Callable[[], float], note: OnEvent
    ) -> None:
        self.name, self.service, self.attempts, self.now, self.note = name, service, attempts, now, note
        self.known_ids: set[str] = set()
        """Ids of batches whose owner is known."""
        self.sent = 0
        """Number of requests in created batches."""

    async def wait_for_end(self, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
        """Wait until a batch has ended; returns its state, or why it has no results."""
        state = await self._taken_state(batch)
        return state if isinstance(state, NoBatchAnswer) else await self._polled(state)

    # -- the start of a batch --------------------------------------------------------------------------------------

    async def _taken_state(self, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
        if batch.record.batch is not None:
            try:
                known_state = await self.service.format.state(batch.record.batch)
            except Refusal as refusal:
                if refusal.status not in GONE:
                    raise
                return NoBatchAnswer("its batch service no longer knows the batch", lost=True)
            if known_state.key in (None, batch.record.key):
                return known_state
            return NoBatchAnswer("its batch service has another batch by that id", lost=True)
        # without bodies it is of an earlier start, which was killed before it got the reply
        state = await (self._create(batch) if batch.bodies else self._find(batch.record))
        if isinstance(state, BatchState):
            batch.record, batch.bodies = replace(batch.record, batch=state.id, since=self.now()), ()
            self.known_ids.add(state.id)
            size = len(batch.record.requests)
            self.note(BatchTaken(self.name, batch.record.key, state.id, size, batch.record.since))
            batch.is_handed_in.set()
        return state

    async def _create(self, batch: ServiceBatch) -> BatchState | NoBatchAnswer:
        """Create the batch; if the reply is lost, look for the batch before creating it again."""
        record = batch.record
        self.note(BatchPlanned(self.name, record.key, record.requests, record.planned, self.service.kind))
        await batch.is_noted.wait()
        for _ in range(self.attempts):
            try:
                state = await self.service.format.create(record.key, batch.bodies)
            except (MaybeCreated, Failure):
                listed = await self._find(record)
                if isinstance(listed, BatchState) or listed.lost:
                    return listed
            except EndpointError:
                self.note(BatchEnded(self.name, record.key, "refused", missing=len(batch.waiting)))
                raise
            else:
                self.sent += len(batch.bodies)
                return state
        return NoBatchAnswer(f"its batch service did not take a batch in {self.attempts} attempts")

    async def _find(self, batch: PendingBatch) -> BatchState | NoBatchAnswer:
        """Find the batch with this key in the service's list, where it may appear with a delay."""
        has_keys = self.service.kind == "openai"  # one that is not in the list does not exist
        since, states = batch.planned - CLOCK_SKEW_SECONDS, []
        for is_second_try in (False, True):
            if is_second_try:
                await asyncio.sleep(self.retry_pause)
            try:
                states = await self.service.format.listed(since)
            except (Rejected, Failure) as error:
                if has_keys:
                    raise Unavailable(f"its batch service does not list its batches: {error}") from None
                return NoBatchAnswer("it is unknown whether the batch was created", lost=True)
            if (match := next((state for state in states if state.key == batch.key), None)) is not None:
                return match
        for state in states:
            if self._may_be(state, batch, since) and await self._has_its_ids(state, batch):
                return state
        return NoBatchAnswer("the batch was not created" if has_keys else "the batch is not found", lost=not has_keys)

    def _may_be(self, state: BatchState, batch: PendingBatch, since: float) -> bool:
        is_recent = state.created is None or state.created >= since
        return (
            state.key is None
            and state.id not in self.known_ids
            and state.total in (None, len(batch.requests))
            and is_recent
        )

    async def _has_its_ids(self, state: BatchState, batch: PendingBatch) -> bool:
        """Whether an unknown batch has results of this one; waits for them."""
        try:
            results = await self.service.format.results(await self._polled(state))
        except (Rejected, Failure):  # another client's batch
            return False
        return any(result.custom_id.startswith(f"{batch.key}_") for result in results)

    # -- until it has ended ------------------------------------------------------------------------------------------

    async def _polled(self, state: BatchState) -> BatchState:
        """Poll with a growing pause until a batch has ended."""
        pause = self.first_poll
        while state.stage is BatchStage.RUNNING:
            await asyncio.sleep(pause)
            pause = min(POLL_GROWTH * pause, self.longest_poll)
            state = await self.service.format.state(state.id)
        return state


GATHER_SECONDS = 0.25
"""A batch is submitted when nothing was added to it for this long."""


class BatchGatherer:
    """Gathers requests until none is added for a moment, or the batch is full, and then submits the batch."""

    def __init__(self, calls: BatchCalls, hand_in: Callable[[ServiceBatch], None]) -> None:
        self._calls, self._hand_in = calls, hand_in
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
        body = service.encode(f"{self._key}_{waiting.id}", waiting.prompt, waiting.seed)
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
