"""The endpoint of a model that is asked in batches: requests are gathered, recorded, handed in, polled and collected.

Requests that come within a moment become one batch. Before anything is sent, the store has the batch's key and the ids
of its requests (`BatchPlanned`), and then the id that the service gives it (`BatchTaken`). The batch is over
(`BatchEnded`) when every answer that came is stored. A start goes on with the batches that are not over, and asks again
for nothing that is in them. Requests that failed, expired or were left out go into the next batch.

The caller of `sample` sees nothing of that: an answer comes, sooner or later, and is graded as any other.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import count
from secrets import token_hex

from adaptive_eval.base.errors import EndpointError, Rejected, RetryNotAllowed, Unavailable
from adaptive_eval.batches.book import BatchBook
from adaptive_eval.batches.calls import AwaitedAnswer, BatchCalls, CarriedBatch, NoBatchAnswer, trial_id, variants
from adaptive_eval.endpoints.failures import safe_excerpt
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, EndpointStats, Health, Prompt, summed_stats
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supplies.batches.types import ID
from adaptive_eval.supply.types import Journal

GATHER_SECONDS = 0.25
"""A batch is handed in when nothing was added to it for this long."""
EXCUSED_SECONDS = 432_000.0
"""A request is given up after this long in batches that expire or are not taken."""
DEPART_SECONDS = 10.0
"""How long a run that ends waits for a batch that is being handed in."""
LEFT = "left at the batch service: the next start collects it"


class BatchGatherer:
    """Gathers requests until none is added for a moment, or the batch is full, and then hands the batch in."""

    def __init__(self, calls: BatchCalls, hand_in: Callable[[CarriedBatch], None]) -> None:
        self._calls, self._hand_in = calls, hand_in
        self.awaiting_caps = 0
        """Lost requests that the caps have not allowed or refused yet: the batch waits for them."""
        self._key = ""
        self._bodies: list[bytes] = []
        self._size = 0
        """Bytes of the bodies."""
        self.waiting: dict[str, AwaitedAnswer] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, asked: AwaitedAnswer) -> None:
        """Add a request to the batch that is gathered now, or to a new one if that is full."""
        service = self._calls.service
        self._key = self._key or token_hex(8)
        body = service.encode(f"{self._key}_{asked.id}", asked.prompt, asked.seed)
        if self._bodies and self._size + len(body) > service.format.most_bytes:
            self._flush()
            return self.add(asked)
        self.waiting[asked.id] = asked
        self._bodies.append(body)
        self._size += len(body)
        if len(self._bodies) >= service.settings.most_requests:
            self._flush()
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_when_quiet())
        return None

    def cancel(self) -> None:
        """Hand nothing in any more."""
        if self._task is not None:
            self._task.cancel()

    async def _flush_when_quiet(self) -> None:
        before = ("", 0)
        while self._bodies and (self.awaiting_caps or before != (self._key, len(self._bodies))):
            before = self._key, len(self._bodies)
            await asyncio.sleep(GATHER_SECONDS)
        self._flush()

    def _flush(self) -> None:
        if self._bodies:
            record = PendingBatch(self._calls.name, self._key, tuple(sorted(self.waiting)), self._calls.now())
            batch = CarriedBatch(record, set(self.waiting), self._bodies, self.waiting)
            self._key, self._bodies, self._size, self.waiting = "", [], 0, {}
            self._hand_in(batch)


class BatchedEndpoint:
    """The `Endpoint` of a model that is asked through a batch service, and directly where patience ends."""

    def __init__(
        self,
        name: str,
        direct: Endpoint,
        service: BatchService,
        attempts: int,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._direct, self._traffic = direct, Traffic()
        self._calls = BatchCalls(name, service, attempts, now)
        self.book = BatchBook(self._calls, self._traffic)
        self._gatherer = BatchGatherer(self._calls, self._begin)
        self._asked_ids: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_left = False

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order, as soon as all are there."""
        return list(await asyncio.gather(*(self._ask(prompt, seed, again) for seed in seeds)))

    async def check(self) -> Health:
        """Check the model's own server: a batch would take its time."""
        return await self._direct.check()

    async def close(self) -> None:
        """Forget the batches, and close every connection."""
        self._gatherer.cancel()
        await self._cancel_tasks()
        await self._calls.service.wire.close()
        await self._direct.close()

    @property
    def stats(self) -> EndpointStats:
        service = self._calls.service
        batched = replace(
            self._traffic.stats(),
            in_flight=len(self._asked_ids),
            requests=self._calls.sent,
            errors=service.wire.errors,
            last_error=service.wire.last_error,
            notices=tuple(service.wire.notices),
        )
        return summed_stats([self._direct.stats, batched])

    # -- for the supply ------------------------------------------------------------------------------------------

    def use_journal(self, journal: Journal) -> None:
        """Record batches in this journal."""
        self._calls.journal = journal

    def take_over(self, pending: Sequence[PendingBatch], stored: set[str], known: set[str]) -> int:
        """Take over the batches of earlier starts; gives how many of their requests are not stored.

        `stored` are the ids of the stored trials, `known` the ids that services gave to batches.
        """
        self._calls.known |= known
        for one in pending:
            if one.batch is not None and not ID.fullmatch(one.batch):  # no service has given it: it is looked for
                one = replace(one, batch=None)
            self.book.add(CarriedBatch(one, set(one.requests) - stored))
        return sum(len(batch.ids) for batch in self.book)

    def start(self) -> None:
        """Look after the batches that were taken over."""
        for batch in self.book:
            self._spawn(self._carry(batch))

    def leave(self) -> None:
        """Fail every request that waits: the batches stay at the service."""
        self._is_left = True
        self._gatherer.cancel()
        for waiting in (*(batch.waiting for batch in self.book), self._gatherer.waiting):
            for asked in waiting.values():
                asked.fail(RetryNotAllowed(LEFT))

    async def depart(self, at_once: bool, finished: bool) -> None:
        """Wait for the ids of batches that are being handed in; where the run is finished, abandon all batches.

        The requests of an abandoned batch count as paid.
        """
        handing = [asyncio.ensure_future(one.handed_in.wait()) for one in self.book if one.bodies and not at_once]
        if handing:
            await asyncio.wait(handing, timeout=DEPART_SECONDS)
        await self._cancel_tasks()
        if finished:
            for batch in self.book:
                await self.book.abandon(batch)

    # -- one answer ----------------------------------------------------------------------------------------------

    async def _ask(self, prompt: Prompt, seed: int, again: Again | None) -> Answer:
        name = next(one for one in variants(trial_id(prompt, seed)) if one not in self._asked_ids)
        self._asked_ids.add(name)
        try:
            return await self._ask_until_answered(name, prompt, seed, again)
        finally:
            self._asked_ids.discard(name)

    async def _ask_until_answered(self, name: str, prompt: Prompt, seed: int, again: Again | None) -> Answer:
        """Put a request into one batch after the other until it is answered."""
        calls, refusals, failures, since = self._calls, 0, 0, self._calls.now()
        for attempt in count(1):
            if self._is_left:
                raise RetryNotAllowed(LEFT)
            asked = AwaitedAnswer(name, prompt, seed, attempt, asyncio.get_running_loop().create_future())
            if not self.book.find(asked):
                self._gatherer.add(asked)
            outcome = await asked.outcome
            if isinstance(outcome, Answer):
                self._traffic.prompt_tokens += outcome.prompt_tokens
                self._traffic.completion_tokens += outcome.completion_tokens
                return outcome
            if outcome.direct:
                return await self._ask_directly(prompt, seed, again)
            refusals += outcome.refused
            if refusals > 1:
                raise Rejected(outcome.why)
            failures += not outcome.excused
            if failures >= calls.attempts or calls.now() - since > EXCUSED_SECONDS:
                raise Unavailable(f"given up after {attempt} batches; in the last one: {outcome.why}")
            if outcome.lost and again is not None and not await self._is_allowed(again):
                raise RetryNotAllowed("an answer was lost, and the budget does not allow asking for it again")
            if outcome.pause:
                await asyncio.sleep(min(calls.longest_poll, calls.retry_pause * 2.0 ** min(attempt, 10)))
        raise AssertionError("unreachable")

    async def _ask_directly(self, prompt: Prompt, seed: int, again: Again | None) -> Answer:
        try:
            (answer,) = await self._direct.sample(prompt, range(seed, seed + 1), again)
        except asyncio.CancelledError:
            self._traffic.lost += 1  # requests in a batch are counted with their batch
            raise
        return answer

    async def _is_allowed(self, again: Again) -> bool:
        """Whether a lost request may be asked again; the next batch is not handed in meanwhile."""
        self._gatherer.awaiting_caps += 1
        try:
            return await again()
        finally:
            self._gatherer.awaiting_caps -= 1

    # -- one batch -----------------------------------------------------------------------------------------------

    def _begin(self, batch: CarriedBatch) -> None:
        self.book.add(batch)
        self._spawn(self._carry(batch))

    async def _carry(self, batch: CarriedBatch) -> None:
        """Hand a batch in, poll and collect it; an error goes to every request that waits for it."""
        try:
            state = await self._calls.wait_for_end(batch)
            if isinstance(state, NoBatchAnswer):
                self.book.give_up(batch, "lost" if state.lost else "not created", state)
            else:
                await self.book.collect(batch, state)
        except EndpointError as error:
            if batch.record.batch is None:
                self.book.forget(batch)
            shown = safe_excerpt(str(error), self._calls.service.wire.redactor)
            batch.fail(Rejected(shown) if isinstance(error, Rejected) else Unavailable(shown))
        except Exception as error:
            batch.fail(error)
        finally:
            batch.handed_in.set()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
