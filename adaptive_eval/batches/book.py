"""The batches of a model that are not over: who waits for which result, and which answers are not stored yet."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from adaptive_eval.base.errors import EndpointError, Rejected
from adaptive_eval.batches.calls import AwaitedAnswer, BatchCalls, CarriedBatch, NoBatchAnswer, trial_id, variants
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal, safe_excerpt
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import Answer, Notice, Prompt
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.store import BatchEnded
from adaptive_eval.supplies.batches.types import BatchResult, BatchStage, BatchState

CANCEL_SECONDS = 10.0
"""How long a run that ends waits for the service to cancel a batch."""


class BatchBook:
    """Gives requests the results of their batches, and ends a batch when all of its answers are stored."""

    def __init__(self, calls: BatchCalls, traffic: Traffic) -> None:
        self._calls, self._traffic = calls, traffic
        self._batches: dict[str, CarriedBatch] = {}

    def __iter__(self) -> Iterator[CarriedBatch]:
        return iter(list(self._batches.values()))

    @property
    def awaited(self) -> Sequence[CarriedBatch]:
        """The batches that are not collected."""
        return [one for one in self._batches.values() if one.collected is None]

    @property
    def pending(self) -> Sequence[PendingBatch]:
        """The batches that are not collected, with the requests that have no result."""
        return [replace(one.record, requests=tuple(one.ids)) for one in self.awaited]

    def add(self, batch: CarriedBatch) -> None:
        """Take up a batch that is handed in now, or was by an earlier start."""
        self._batches[batch.record.key] = batch

    def find(self, asked: AwaitedAnswer) -> bool:
        """Have a request wait for its result if it is in a batch, or take the one that is there; whether it is."""
        batch = next((one for one in self if asked.id in one.ids or asked.id in one.early), None)
        if batch is None:
            return False
        if (result := batch.early.pop(asked.id, None)) is not None:
            self._deliver(batch, asked, result, some_good=True)
            self._end_if_stored(batch)
        elif batch.error is not None:
            asked.fail(batch.error)
        else:
            batch.waiting[asked.id] = asked
        return True

    def mark_stored(self, prompt: Prompt, seeds: range) -> None:
        """End the batches whose last answers these are: they are with the store."""
        for seed in seeds:
            for known in variants(trial_id(prompt, seed)):
                batch = next((one for one in self if known in one.owed), None)
                if batch is not None:
                    batch.owed.discard(known)
                    self._end_if_stored(batch)
                    break

    async def collect(self, batch: CarriedBatch, state: BatchState) -> None:
        """Give every request of an ended batch its answer, or the reason why there is none."""
        if state.stage is BatchStage.FAILED:
            shown = safe_excerpt(state.reason, self._calls.service.wire.redactor) or "it does not say why"
            if state.busy:
                return self.give_up(batch, state.said, NoBatchAnswer(shown, pause=True, excused=True))
            self._calls.note(BatchEnded(self._calls.name, batch.record.key, state.said, missing=len(batch.ids)))
            self.forget(batch)
            raise Rejected(f"its batch service refuses a batch as a whole: {shown}")
        self._last_seconds = self._calls.now() - batch.record.since
        results = await self._calls.service.format.results(state)
        some_good = any(one.code == 200 and one.unanswered is None for one in results)
        made, came = frozenset(batch.ids), 0
        for result in results:
            name = result.custom_id.removeprefix(f"{batch.record.key}_")
            if name == result.custom_id or name not in batch.ids:
                self._note_stray(batch, name, twice=name != result.custom_id and name in made)
                continue
            batch.ids.discard(name)
            asked = batch.waiting.pop(name, None)
            if asked is None:
                batch.early[name] = result
            came += asked is None or self._deliver(batch, asked, result, some_good)
        cancelled = batch.record.cancelled
        lost = 0 if cancelled or state.said == "cancelled" else len(batch.ids)  # which lists what it has expired
        self._traffic.lost += lost
        batch.collected = BatchEnded(self._calls.name, batch.record.key, state.said, came, len(made) - came, lost)
        self._tell_missing(batch, NoBatchAnswer("the results do not have it", lost=lost > 0, direct=cancelled))
        self._end_if_stored(batch)
        return None

    def give_up(self, batch: CarriedBatch, said: str, missing: NoBatchAnswer) -> None:
        """End a batch that has no results."""
        number = len(batch.ids)
        lost = number if missing.lost else 0
        self._traffic.lost += lost
        self._calls.note(BatchEnded(self._calls.name, batch.record.key, said, missing=number, lost=lost))
        self._tell_missing(batch, missing)
        self._batches.pop(batch.record.key, None)

    def forget(self, batch: CarriedBatch) -> None:
        """Forget a batch that was never sent."""
        self._batches.pop(batch.record.key, None)

    async def abandon(self, batch: CarriedBatch) -> None:
        """Cancel a batch of a finished run, and count its unused answers as lost."""
        if batch.record.batch is not None and batch.collected is None and not batch.record.cancelled:
            with suppress(TimeoutError):  # then it ends by itself
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._calls.request_cancel(batch)
        unused = len(batch.ids) + len(batch.early)
        self._traffic.lost += unused
        before = batch.collected or BatchEnded(self._calls.name, batch.record.key, "abandoned")
        self._calls.note(replace(before, lost=before.lost + unused))
        self._batches.pop(batch.record.key, None)

    def _deliver(self, batch: CarriedBatch, asked: AwaitedAnswer, result: BatchResult, some_good: bool) -> bool:
        """Give a request its result; returns whether that is an answer."""
        outcome = self._read(batch, asked, result, some_good)
        answered = isinstance(outcome, Answer)
        if answered:
            batch.owed.add(asked.id)
        if isinstance(outcome, EndpointError):
            asked.fail(outcome)
        elif not asked.outcome.done():
            asked.outcome.set_result(outcome)
        return answered

    def _read(
        self, batch: CarriedBatch, asked: AwaitedAnswer, result: BatchResult, some_good: bool
    ) -> Answer | NoBatchAnswer | EndpointError:
        direct = batch.record.cancelled
        if result.unanswered is not None:
            return NoBatchAnswer(f"the request was {result.unanswered} with its batch", direct=direct, excused=True)
        seconds = max(0.0, self._calls.now() - batch.record.since)
        try:
            return self._calls.service.answer(result, asked.prompt, asked.seed, seconds, asked.attempt)
        except Failure as failure:
            lost = failure.kind is FailureKind.BAD_RESPONSE
            self._traffic.lost += lost
            return NoBatchAnswer(f"{failure.kind}: {failure}", lost=lost, direct=direct)
        except Rejected as error:
            if isinstance(error, Refusal) and some_good:  # others of the batch were answered: once more
                return NoBatchAnswer(str(error), refused=True, direct=direct)
            return Rejected(str(error))

    def _note_stray(self, batch: CarriedBatch, name: str, *, twice: bool) -> None:
        """Note a result that came before, or that was never asked for."""
        if not twice and name in batch.record.requests:  # an earlier start has stored it
            return
        kind, what = ("double_result", "twice") if twice else ("strange_result", "to requests that were not made")
        self._calls.service.wire.note(Notice(kind, f"its batch service gives results {what}: they are passed over"))

    def _tell_missing(self, batch: CarriedBatch, missing: NoBatchAnswer) -> None:
        """Tell every request without a result why there is none."""
        for name in batch.ids:
            asked = batch.waiting.pop(name, None)
            if asked is not None and not asked.outcome.done():
                asked.outcome.set_result(missing)
        batch.ids.clear()

    def _end_if_stored(self, batch: CarriedBatch) -> None:
        """End a batch when every answer of it is stored, so that no kill can lose one that was paid for."""
        if batch.collected is None or batch.owed or batch.early or batch.record.key not in self._batches:
            return
        del self._batches[batch.record.key]
        self._calls.note(batch.collected)
