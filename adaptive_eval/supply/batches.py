"""The endpoint of a model that is asked in batches: requests are gathered, recorded, handed in, polled and collected.

Requests that come within a moment become one batch. Before anything is sent, the store has the batch's key and the ids
of its requests (`BatchPlanned`), and then the id that the service gives it (`BatchTaken`). The batch is over
(`BatchEnded`) when every answer that came is stored. A start goes on with the batches that are not over, and asks again
for nothing that is in them. Requests that failed, expired or were left out go into the next batch.

The caller of `sample` sees nothing of that: an answer comes, sooner or later, and is graded as any other.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from secrets import token_hex

from adaptive_eval.endpoints.batches.opening import BatchService
from adaptive_eval.endpoints.batches.types import BatchResult, BatchStage, BatchState, ResultStatus
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal, safe_excerpt
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, EndpointStats, Health, Prompt
from adaptive_eval.errors import EndpointError, NotAskedAgain, Rejected, Unavailable
from adaptive_eval.store import BatchEnded
from adaptive_eval.store.pending import PendingBatch
from adaptive_eval.supply.batch_calls import BatchCalls
from adaptive_eval.supply.batch_parts import (
    AwaitedAnswer,
    CarriedBatch,
    NoBatchAnswer,
    fail_asked,
    trial_id,
    variants,
)
from adaptive_eval.supply.types import Journal

GATHER_SECONDS = 0.25
"""A batch is handed in when nothing was added to it for this long."""
EXCUSED_SECONDS = 432_000.0
"""A request is given up after this long in batches that expire or are not taken."""
DEPART_SECONDS = 10.0
"""How long a run that ends waits for a batch that is being handed in."""
LEFT = "left at the batch service: the next start collects it"


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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name, self._direct, self._service, self._attempts = name, direct, service, attempts
        self._now, self._sleep = now, sleep
        self._calls = BatchCalls(name, service, attempts, now, sleep)
        self._open: CarriedBatch | None = None
        """The batch that is gathered now."""
        self._gathering: asyncio.Task[None] | None = None
        self._awaiting_caps = 0
        """Lost requests that the caps have not allowed or refused yet: the next batch waits for them."""
        self._batches: dict[str, CarriedBatch] = {}
        """Batches that are not over, by key."""
        self._batch_of: dict[str, CarriedBatch] = {}
        """The batch of each request, by the request's id."""
        self._asked_ids: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_left = False
        self._last_seconds: float | None = None
        """How long the service took for the batch that was collected last."""
        self._lost = self._prompt_tokens = self._completion_tokens = 0

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order, as soon as all are there."""
        return list(await asyncio.gather(*(self._ask(prompt, seed, again) for seed in seeds)))

    async def check(self) -> Health:
        """Check the model's own server: a batch would take its time."""
        return await self._direct.check()

    async def close(self) -> None:
        """Forget the batches, and close every connection."""
        for task in (*self._tasks, *([self._gathering] if self._gathering else ())):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._service.wire.close()
        await self._direct.close()

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far, both ways."""
        direct = self._direct.stats
        errors = dict(direct.errors)
        for kind, number in self._service.wire.errors.items():
            errors[kind] = errors.get(kind, 0) + number
        return replace(
            direct,
            in_flight=direct.in_flight + len(self._asked_ids),
            requests=direct.requests + self._calls.sent,
            errors=errors,
            last_error=self._service.wire.last_error or direct.last_error,
            lost=direct.lost + self._lost,
            prompt_tokens=direct.prompt_tokens + self._prompt_tokens,
            completion_tokens=direct.completion_tokens + self._completion_tokens,
            notices=(*direct.notices, *self._service.notices),
        )

    @property
    def is_pending(self) -> bool:
        """Whether a batch is not collected."""
        return any(batch.collected is None for batch in self._batches.values())

    @property
    def expected_wait(self) -> float | None:
        """Seconds until the next batch is expected: it takes as long as the one before, or as the setting says."""
        expected = self._service.settings.expected if self._last_seconds is None else self._last_seconds
        since = [one.since if one.batch else self._now() for one in self._batches.values() if one.collected is None]
        return expected - (self._now() - min(since)) if expected is not None and since else None

    @property
    def pending(self) -> list[PendingBatch]:
        """The batches that are not collected."""
        waited_for = (batch for batch in self._batches.values() if batch.collected is None)
        return [
            PendingBatch(
                self._name,
                batch.key,
                tuple(batch.ids),
                batch.planned,
                batch.batch,
                batch.since,
                batch.cancelled,
            )
            for batch in waited_for
        ]

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
            batch = CarriedBatch(one.key, one.planned, ids=set(one.requests) - stored, batch=one.batch, since=one.since)
            batch.stored = set(one.requests) & stored
            batch.number, batch.cancelled = len(one.requests), one.cancelled
            self._batches[batch.key] = batch
            self._batch_of |= dict.fromkeys(batch.ids, batch)
        return sum(len(batch.ids) for batch in self._batches.values())

    def start(self) -> None:
        """Look after the batches that were taken over."""
        for batch in list(self._batches.values()):
            self._spawn(self._run_batch(batch))

    def mark_stored(self, prompt: Prompt, seeds: range) -> None:
        """End the batches whose last answers these are: they are with the store."""
        for seed in seeds:
            for known in variants(trial_id(prompt, seed)):
                batch = self._batch_of.get(known)
                if batch is not None and known in batch.owed:
                    batch.owed.discard(known)
                    del self._batch_of[known]
                    self._end_if_stored(batch)
                    break

    def leave(self) -> None:
        """Fail every request that waits: the batches stay at the service."""
        self._is_left = True
        if self._gathering is not None:
            self._gathering.cancel()
        waiting = [asked for batch in self._batches.values() for asked in batch.waiting.values()]
        for asked in (*waiting, *(self._open.waiting.values() if self._open else ())):
            fail_asked(asked, NotAskedAgain(LEFT))
        self._open = None

    async def depart(self, at_once: bool, finished: bool) -> None:
        """Wait for the ids of batches that are being handed in; where the run is finished, abandon all batches.

        The requests of an abandoned batch count as paid.
        """
        handing = [batch.handed_in.wait() for batch in self._batches.values() if batch.requests and not batch.batch]
        if handing and not at_once:
            await asyncio.wait([asyncio.ensure_future(one) for one in handing], timeout=DEPART_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if finished:
            for batch in list(self._batches.values()):
                await self._abandon(batch)

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
        refusals, failures, since = 0, 0, self._now()
        for attempt in count(1):
            if self._is_left:
                raise NotAskedAgain(LEFT)
            outcome = await self._next_outcome(name, prompt, seed, attempt)
            if isinstance(outcome, Answer):
                self._prompt_tokens += outcome.prompt_tokens
                self._completion_tokens += outcome.completion_tokens
                return outcome
            if outcome.direct:
                (answer,) = await self._direct.sample(prompt, range(seed, seed + 1), again)
                return answer
            refusals += outcome.refused
            if refusals > 1:
                raise Rejected(outcome.why)
            failures += not outcome.excused
            if failures >= self._attempts or self._now() - since > EXCUSED_SECONDS:
                raise Unavailable(f"given up after {attempt} batches; in the last one: {outcome.why}")
            if outcome.lost and again is not None and not await self._allowed(again):
                raise NotAskedAgain("an answer was lost, and the budget does not allow asking for it again")
            if outcome.pause:
                settings = self._service.settings
                await self._sleep(min(settings.longest_poll, settings.first_poll * 2.0**attempt))
        raise AssertionError("unreachable")

    async def _allowed(self, again: Again) -> bool:
        """Whether a lost request may be asked again; the next batch is not handed in meanwhile."""
        self._awaiting_caps += 1
        try:
            return await again()
        finally:
            self._awaiting_caps -= 1

    async def _next_outcome(self, name: str, prompt: Prompt, seed: int, attempt: int) -> "Answer | NoBatchAnswer":
        asked = AwaitedAnswer(name, prompt, seed, attempt, asyncio.get_running_loop().create_future())
        batch = self._batch_of.get(name)
        if batch is None:
            self._gather(asked)
        elif (result := batch.early.pop(name, None)) is not None:
            self._deliver(batch, asked, result, some_good=True)
            self._end_if_stored(batch)
        else:
            batch.waiting[name] = asked
        return await asked.outcome

    # -- one batch -----------------------------------------------------------------------------------------------

    def _gather(self, asked: AwaitedAnswer) -> None:
        """Add a request to the batch that is gathered now, or to a new one if that is full."""
        batch = self._open or CarriedBatch(token_hex(8), self._now())
        request = self._service.sized(f"{batch.key}_{asked.id}", asked.prompt, asked.seed)
        if batch.requests and batch.size + len(request) > self._service.format.most_bytes:
            self._flush()
            return self._gather(asked)
        self._open = batch
        batch.ids.add(asked.id)
        batch.waiting[asked.id] = asked
        batch.requests.append(request)
        batch.size += len(request)
        self._batch_of[asked.id] = batch
        if len(batch.requests) >= self._service.settings.most_requests:
            self._flush()
        elif self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._flush_when_quiet())
        return None

    async def _flush_when_quiet(self) -> None:
        before: tuple[CarriedBatch | None, int] = (None, 0)
        while self._open is not None and (self._awaiting_caps or before != (self._open, len(self._open.requests))):
            before = self._open, len(self._open.requests)
            await self._sleep(GATHER_SECONDS)
        self._flush()

    def _flush(self) -> None:
        """Hand in the batch that was gathered."""
        batch, self._open = self._open, None
        if batch is not None:
            batch.number = len(batch.requests)
            self._batches[batch.key] = batch
            self._spawn(self._run_batch(batch))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_batch(self, batch: CarriedBatch) -> None:
        """Hand a batch in, poll and collect it; an error goes to every request that waits for it."""
        try:
            state = await self._calls.wait_for_end(batch)
            if isinstance(state, NoBatchAnswer):
                self._give_up(batch, "lost" if state.lost else "not created", state)
            else:
                await self._collect(batch, state)
        except EndpointError as error:
            shown = safe_excerpt(str(error), self._service.wire.secrets)
            kind = Rejected if isinstance(error, Rejected) else Unavailable
            if batch.batch is None:
                self._forget(batch)
            for asked in list(batch.waiting.values()):
                fail_asked(asked, kind(shown))
        except Exception as error:
            for asked in list(batch.waiting.values()):
                fail_asked(asked, error)
        finally:
            batch.handed_in.set()

    # -- results -------------------------------------------------------------------------------------------------

    async def _collect(self, batch: CarriedBatch, state: BatchState) -> None:
        """Give every request of an ended batch its answer, or the reason why there is none."""
        if state.stage is BatchStage.FAILED:
            shown = safe_excerpt(state.reason, self._service.wire.secrets) or "it does not say why"
            if not state.busy:
                self._calls.note(BatchEnded(self._name, batch.key, state.said, missing=len(batch.ids)))
                self._forget(batch)
                raise Rejected(f"its batch service refuses a batch as a whole: {shown}")
            self._give_up(batch, state.said, NoBatchAnswer(shown, pause=True, excused=True))
            return
        self._last_seconds = self._now() - batch.since
        results = [one async for one in self._service.format.results(state)]
        some_good = any(one.code == 200 and one.status is ResultStatus.RESPONSE for one in results)
        came = missing = 0
        made = frozenset(batch.ids)
        for result in results:
            name = result.custom_id.removeprefix(f"{batch.key}_")
            if name == result.custom_id or name not in batch.ids:
                self._tell_stray(batch, name, twice=name != result.custom_id and name in made)
                continue
            batch.ids.discard(name)
            asked = batch.waiting.pop(name, None)
            if asked is None:
                batch.early[name] = result
                came += 1
            elif self._deliver(batch, asked, result, some_good):
                came += 1
            else:
                missing += 1
        unsaid = len(batch.ids)
        lost = 0 if batch.cancelled or state.said == "cancelled" else unsaid  # which lists what it has expired
        for name in list(batch.ids):
            self._tell_missing(
                batch, name, NoBatchAnswer("the results do not have it", lost=lost > 0, direct=batch.cancelled)
            )
        self._lost += lost
        batch.collected = BatchEnded(self._name, batch.key, state.said, came, missing + unsaid, lost)
        self._end_if_stored(batch)

    def _deliver(self, batch: CarriedBatch, asked: AwaitedAnswer, result: BatchResult, some_good: bool) -> bool:
        """Give a request its result; returns whether that is an answer."""
        outcome = self._read(batch, asked, result, some_good)
        answered = isinstance(outcome, Answer)
        if answered:
            batch.owed.add(asked.id)
        else:
            self._batch_of.pop(asked.id, None)
        if isinstance(outcome, EndpointError):
            fail_asked(asked, outcome)
        elif not asked.outcome.done():
            asked.outcome.set_result(outcome)
        return answered

    def _read(
        self, batch: CarriedBatch, asked: AwaitedAnswer, result: BatchResult, some_good: bool
    ) -> Answer | NoBatchAnswer | EndpointError:
        direct = batch.cancelled
        if result.status is not ResultStatus.RESPONSE:
            return NoBatchAnswer(f"the request was {result.status} with its batch", direct=direct, excused=True)
        seconds = max(0.0, self._now() - batch.since)
        try:
            return self._service.answer(result, asked.prompt, asked.seed, seconds, asked.attempt)
        except Failure as failure:
            lost = failure.kind is FailureKind.BAD_RESPONSE
            self._lost += lost
            return NoBatchAnswer(f"{failure.kind}: {failure}", lost=lost, direct=direct)
        except Refusal as refusal:
            if some_good:  # others of the batch were answered: once more
                return NoBatchAnswer(str(refusal), refused=True, direct=direct)
            return Rejected(str(refusal))
        except Rejected as error:
            return Rejected(str(error))

    def _tell_stray(self, batch: CarriedBatch, name: str, *, twice: bool) -> None:
        """Report a result that came before, or that was never asked for."""
        if name in batch.stored:
            return
        kind, what = ("double_result", "twice") if twice else ("strange_result", "to requests that were not made")
        self._service.note(kind, f"its batch service gives results {what}: they are passed over")

    def _tell_missing(self, batch: CarriedBatch, name: str, missing: NoBatchAnswer) -> None:
        batch.ids.discard(name)
        self._batch_of.pop(name, None)
        asked = batch.waiting.pop(name, None)
        if asked is not None and not asked.outcome.done():
            asked.outcome.set_result(missing)

    def _give_up(self, batch: CarriedBatch, said: str, missing: NoBatchAnswer) -> None:
        """End a batch that has no results."""
        number = len(batch.ids)
        lost = number if missing.lost else 0
        self._lost += lost
        self._calls.note(BatchEnded(self._name, batch.key, said, missing=number, lost=lost))
        for name in list(batch.ids):
            self._tell_missing(batch, name, missing)
        self._batches.pop(batch.key, None)

    def _forget(self, batch: CarriedBatch) -> None:
        """Forget a batch that was never sent."""
        for name in batch.ids:
            self._batch_of.pop(name, None)
        self._batches.pop(batch.key, None)

    async def _abandon(self, batch: CarriedBatch) -> None:
        """Cancel a batch of a finished run, and count its unused answers as lost."""
        if batch.batch is not None and batch.collected is None and not batch.cancelled:
            with suppress(EndpointError, TimeoutError):  # else it ends by itself
                async with asyncio.timeout(DEPART_SECONDS):
                    await self._calls.cancel(batch)
        unused = len(batch.ids) + len(batch.early)
        self._lost += unused
        before = batch.collected or BatchEnded(self._name, batch.key, "abandoned")
        self._calls.note(replace(before, lost=before.lost + unused))
        self._batches.pop(batch.key, None)

    def _end_if_stored(self, batch: CarriedBatch) -> None:
        """End a batch when every answer of it is stored, so that no kill can lose one that was paid for."""
        if batch.collected is None or batch.owed or batch.early or batch.key not in self._batches:
            return
        del self._batches[batch.key]
        self._calls.note(batch.collected)
