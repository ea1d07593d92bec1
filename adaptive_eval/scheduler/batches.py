"""A model's round as a batch of its provider: gathered, written down, handed in, looked after, and collected.

What is asked of a model within a moment becomes one batch. Before anything is sent the store has its key and the ids
of its requests (`BatchPlanned`), and its id as soon as the service has told it (`BatchTaken`). It is over
(`BatchEnded`) when every answer that came is stored: a start that finds one which is not over goes on with it, and asks
for nothing again that is in it. What failed, expired or was left out is missing, and goes into the next batch.

Who has asked hears nothing of that: an answer comes, sooner or later, and is graded and judged as any other.
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
from adaptive_eval.scheduler.batch_calls import BatchCalls
from adaptive_eval.scheduler.batch_parts import (
    AwaitedAnswer,
    CarriedBatch,
    Journal,
    NoBatchAnswer,
    fail_asked,
    trial_id,
    variants,
)
from adaptive_eval.store import BatchEnded
from adaptive_eval.store.pending import PendingBatch

GATHER_SECONDS = 0.25
"""A batch is handed in when nothing was added to it for so long."""
EXCUSED_SECONDS = 432_000.0
"""A request may be in batches that expire, or are not taken yet, for so long."""
DEPART_SECONDS = 10.0
"""That a run which ends waits for the answer to a batch that is being handed in."""
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
        self._awaiting_leave = 0
        """Requests of which the caps have yet to say whether they may be asked again: the next batch waits for them."""
        self._batches: dict[str, CarriedBatch] = {}
        """Batches that are not over, by key."""
        self._home: dict[str, CarriedBatch] = {}
        """By the id of a request, the batch that has it."""
        self._asked: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._left = False
        self._took: float | None = None
        """Seconds from when the service had the batch that was collected last."""
        self._lost = self._prompt_tokens = self._completion_tokens = 0

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order, of the batches that have them."""
        return list(await asyncio.gather(*(self._one(prompt, seed, again) for seed in seeds)))

    async def check(self) -> Health:
        """Whether the model answers directly: a batch would take its time to say so."""
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
            in_flight=direct.in_flight + len(self._asked),
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
    def back_in(self) -> float | None:
        """Seconds until the next batch is back, if it takes as long as the one before, or else as `expected` says."""
        expected = self._service.settings.expected if self._took is None else self._took
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

    # -- what the scheduler says ---------------------------------------------------------------------------------

    def bind(self, journal: Journal) -> None:
        """From now on batches are written down there."""
        self._calls.journal = journal

    def adopt(self, pending: Sequence[PendingBatch], stored: set[str], known: set[str]) -> int:
        """Take over the batches of earlier starts; gives how many of their requests are not stored.

        `stored` are the ids of the trials that are, `known` those that services gave to batches.
        """
        self._calls.known |= known
        for one in pending:
            batch = CarriedBatch(one.key, one.planned, ids=set(one.requests) - stored, batch=one.batch, since=one.since)
            batch.stored = set(one.requests) & stored
            batch.number, batch.cancelled = len(one.requests), one.cancelled
            self._batches[batch.key] = batch
            self._home |= dict.fromkeys(batch.ids, batch)
        return sum(len(batch.ids) for batch in self._batches.values())

    def begin(self) -> None:
        """Look after the batches that were taken over."""
        for batch in list(self._batches.values()):
            self._start(self._carry(batch))

    def kept(self, prompt: Prompt, seeds: range) -> None:
        """The answers to these are with the store."""
        for seed in seeds:
            for known in variants(trial_id(prompt, seed)):
                batch = self._home.get(known)
                if batch is not None and known in batch.owed:
                    batch.owed.discard(known)
                    del self._home[known]
                    self._end_if_stored(batch)
                    break

    def leave(self) -> None:
        """Nobody waits any more: what was handed in stays at the service."""
        self._left = True
        if self._gathering is not None:
            self._gathering.cancel()
        waiting = [asked for batch in self._batches.values() for asked in batch.waiting.values()]
        for asked in (*waiting, *(self._open.waiting.values() if self._open else ())):
            fail_asked(asked, NotAskedAgain(LEFT))
        self._open = None

    async def depart(self, at_once: bool, over: bool) -> None:
        """The end of a start: batches that are being handed in get their ids; where the run is over, all are given up.

        What is given up was asked for and paid, as far as anybody knows.
        """
        handing = [batch.handed_in.wait() for batch in self._batches.values() if batch.requests and not batch.batch]
        if handing and not at_once:
            await asyncio.wait([asyncio.ensure_future(one) for one in handing], timeout=DEPART_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if over:
            for batch in list(self._batches.values()):
                await self._abandon(batch)

    # -- one answer ----------------------------------------------------------------------------------------------

    async def _one(self, prompt: Prompt, seed: int, again: Again | None) -> Answer:
        name = next(one for one in variants(trial_id(prompt, seed)) if one not in self._asked)
        self._asked.add(name)
        try:
            return await self._insist(name, prompt, seed, again)
        finally:
            self._asked.discard(name)

    async def _insist(self, name: str, prompt: Prompt, seed: int, again: Again | None) -> Answer:
        """Put a request into one batch after the other until it is answered."""
        refusals, failures, since = 0, 0, self._now()
        for attempt in count(1):
            if self._left:
                raise NotAskedAgain(LEFT)
            outcome = await self._outcome(name, prompt, seed, attempt)
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
        """Whether it may be asked again; meanwhile what is gathered for the next batch is not handed in."""
        self._awaiting_leave += 1
        try:
            return await again()
        finally:
            self._awaiting_leave -= 1

    async def _outcome(self, name: str, prompt: Prompt, seed: int, attempt: int) -> "Answer | NoBatchAnswer":
        asked = AwaitedAnswer(name, prompt, seed, attempt, asyncio.get_running_loop().create_future())
        batch = self._home.get(name)
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
        """Put it into the batch that is gathered now, or into a new one where that is full."""
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
        self._home[asked.id] = batch
        if len(batch.requests) >= self._service.settings.most_requests:
            self._flush()
        elif self._gathering is None or self._gathering.done():
            self._gathering = asyncio.create_task(self._flush_when_quiet())
        return None

    async def _flush_when_quiet(self) -> None:
        before: tuple[CarriedBatch | None, int] = (None, 0)
        while self._open is not None and (self._awaiting_leave or before != (self._open, len(self._open.requests))):
            before = self._open, len(self._open.requests)
            await self._sleep(GATHER_SECONDS)
        self._flush()

    def _flush(self) -> None:
        """Hand in what was gathered."""
        batch, self._open = self._open, None
        if batch is not None:
            batch.number = len(batch.requests)
            self._batches[batch.key] = batch
            self._start(self._carry(batch))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, batch: CarriedBatch) -> None:
        """A batch from its intent to its results; who waits for it hears of whatever breaks."""
        try:
            state = await self._calls.ended(batch)
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
        """Hand every answer to who waits for it; what has none is missing."""
        if state.stage is BatchStage.FAILED:
            shown = safe_excerpt(state.reason, self._service.wire.secrets) or "it does not say why"
            if not state.busy:
                self._calls.note(BatchEnded(self._name, batch.key, state.said, missing=len(batch.ids)))
                self._forget(batch)
                raise Rejected(f"its batch service refuses a batch as a whole: {shown}")
            self._give_up(batch, state.said, NoBatchAnswer(shown, pause=True, excused=True))
            return
        self._took = self._now() - batch.since
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
            self._miss(batch, name, NoBatchAnswer("the results do not have it", lost=lost > 0, direct=batch.cancelled))
        self._lost += lost
        batch.collected = BatchEnded(self._name, batch.key, state.said, came, missing + unsaid, lost)
        self._end_if_stored(batch)

    def _deliver(self, batch: CarriedBatch, asked: AwaitedAnswer, result: BatchResult, some_good: bool) -> bool:
        """Read a result for who waits for it; whether it is an answer."""
        outcome = self._read(batch, asked, result, some_good)
        answered = isinstance(outcome, Answer)
        if answered:
            batch.owed.add(asked.id)
        else:
            self._home.pop(asked.id, None)
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
        """A result that nobody waits for: one that came before, or that was never asked for."""
        if name in batch.stored:
            return
        kind, what = ("double_result", "twice") if twice else ("strange_result", "to requests that were not made")
        self._service.note(kind, f"its batch service gives results {what}: they are passed over")

    def _miss(self, batch: CarriedBatch, name: str, missing: NoBatchAnswer) -> None:
        batch.ids.discard(name)
        self._home.pop(name, None)
        asked = batch.waiting.pop(name, None)
        if asked is not None and not asked.outcome.done():
            asked.outcome.set_result(missing)

    def _give_up(self, batch: CarriedBatch, said: str, missing: NoBatchAnswer) -> None:
        """Nothing of it will come."""
        number = len(batch.ids)
        lost = number if missing.lost else 0
        self._lost += lost
        self._calls.note(BatchEnded(self._name, batch.key, said, missing=number, lost=lost))
        for name in list(batch.ids):
            self._miss(batch, name, missing)
        self._batches.pop(batch.key, None)

    def _forget(self, batch: CarriedBatch) -> None:
        """Take a batch for one that was never sent."""
        for name in batch.ids:
            self._home.pop(name, None)
        self._batches.pop(batch.key, None)

    async def _abandon(self, batch: CarriedBatch) -> None:
        """The run is over: what is in it is not wanted any more, and may be paid for all the same."""
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
