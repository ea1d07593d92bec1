"""The batches of one model: requests are gathered, recorded, submitted, polled and collected.

Requests that arrive together become one batch. Before anything is sent, the log has the batch's key and the ids of its
requests (`BatchPlanned`), and then the service's id (`BatchTaken`). The batch has ended (`BatchEnded`) when every
received answer is on disk, so that no kill can lose a paid answer. A start continues the batches that have not ended: a
request in one of them waits for its result. Requests that failed, expired or are missing in the results go into the
next batch.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adaptive_eval.base.errors import EndpointError, Rejected, Unavailable
from adaptive_eval.endpoints.failures import Failure, Refusal, UnknownFinish, safe_excerpt
from adaptive_eval.endpoints.types import Answer, EndpointStats
from adaptive_eval.machine.events import Answered, Failed, Noted, Wasted
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.records import Note
from adaptive_eval.machine.supply import Demand, Post, Supply, receive
from adaptive_eval.machine.trial import Key, Request
from adaptive_eval.notes import BatchEnded, BatchPlanned, Event
from adaptive_eval.notes.batches import PendingBatch
from adaptive_eval.supplies.batches.calls import (
    GONE,
    BatchCalls,
    BatchGatherer,
    NoBatchAnswer,
    ServiceBatch,
    WaitingRequest,
    trial_id,
)
from adaptive_eval.supplies.batches.service import BatchService
from adaptive_eval.supplies.batches.types import ID, BatchResult, BatchStage, BatchState
from adaptive_eval.supplies.opening import SuppliedModel

GIVE_UP_SECONDS = 432_000.0
"""Time after which a request is given up whose batches expire or are not accepted."""
HAND_IN_SECONDS = 10.0
"""How long an ending run waits for a batch that is being submitted."""
STOPPING = "the run is stopping"


class ModelBatches(Supply):
    """One model at a batch service."""

    def __init__(
        self,
        number: int,
        model: SuppliedModel,
        service: BatchService,
        attempts: int,
        post: Post,
        on_error: Callable[[BaseException], None],
        *,
        is_capped: bool,
        has_answered: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._number, self._model, self._post = number, model, post
        self._on_error, self._is_capped = on_error, is_capped
        self._traffic = service.wire.traffic
        self._traffic.has_answered = has_answered
        self._calls = BatchCalls(model.name, service, attempts, now, self._note)
        self._gatherer = BatchGatherer(self._calls, self._begin)
        self._batches: dict[str, ServiceBatch] = {}
        """Batches that have not ended, by key."""
        self._waiting: dict[int, WaitingRequest] = {}
        """Requests without an answer."""
        self._tasks: set[asyncio.Task[object]] = set()
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        """Requests that wait until the service may have room."""
        self._is_stopping = False
        self._has_new = False
        """Whether this start has asked for trials that no earlier start had in flight."""

    def take_over(self, pending: Sequence[PendingBatch], known_ids: Collection[str]) -> None:
        """Continue batches of earlier starts; `known_ids` are the batch ids returned by services."""
        self._calls.known_ids |= set(known_ids)
        for record in pending:
            if record.batch is not None and not ID.fullmatch(record.batch):  # not a service's id: look for the batch
                record = replace(record, batch=None)
            self._batches[record.key] = ServiceBatch(record)

    # -- calls of the driver -----------------------------------------------------------------------------------------

    def claims(self, keys: Collection[Key]) -> Collection[Key]:
        """Trials among these that are in a batch which has not ended."""
        return {key for key in keys if self._batch_with(trial_id(key)) is not None}

    def submit(self, request: Request, *, claimed: bool) -> None:
        """Let a request wait for its batch if it is in one, else put it into the next batch."""
        assert request.size == 1, "a request of a batch is for one answer"
        prompt, seed = self._model.prompt(request.question), self._model.seed(request.question, request.first)
        waiting = self._waiting[request.id] = WaitingRequest(request, prompt, seed, self._calls.now())
        self._has_new |= not claimed
        if (batch := self._batch_with(waiting.id)) is None:
            self._ask(waiting)
        elif batch.error is not None:
            self._fail_with(waiting, batch.error)
        else:
            batch.waiting[waiting.id] = waiting

    def allow(self, request: int, allowed: bool) -> None:
        if (waiting := self._waiting.get(request)) is None:
            return
        if allowed:
            self._ask(waiting)
        else:
            self._fail(waiting, RequestFailure.NOT_ALLOWED)

    def cancel(self, requests: Collection[int]) -> None:
        """Give up requests; a batch without any remaining request is abandoned."""
        requests = set(requests)
        for batch in list(self._batches.values()):
            cancelled = [waiting for waiting in batch.waiting.values() if waiting.request.id in requests]
            for waiting in cancelled:
                del batch.waiting[waiting.id]
                self._fail(waiting, RequestFailure.CUT_OFF)
            if cancelled and not batch.waiting and batch.ended is None:
                self._abandon(batch, len(cancelled))
        for number in requests:
            if (unsent := self._waiting.get(number)) is not None:
                self._gatherer.remove(unsent.id)
                self._fail(unsent, RequestFailure.NOT_SENT)

    def on_stored(self, keys: Sequence[Key]) -> None:
        """End the batches whose last answers are among these."""
        for name in map(trial_id, keys):
            for batch in [batch for batch in self._batches.values() if name in batch.unstored]:
                batch.unstored.discard(name)
                self._end_if_stored(batch)

    def on_noted(self, note: Note) -> None:
        """Submit a batch once its plan is on disk."""
        if note.kind == BatchPlanned.KIND and (batch := self._batches.get(note.body["key"])) is not None:
            batch.is_noted.set()

    def leave(self) -> None:
        """Return requests without a batch, and do not wait for batches: the next start collects them."""
        self._is_stopping = True
        unsent = [*self._gatherer.remove_all(), *(self._waiting[request] for request in self._pauses)]
        for waiting in unsent:
            self._fail(waiting, RequestFailure.NOT_SENT, STOPPING)

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Continue the batches of earlier starts, whose requests are claimed by now.

        A batch that an earlier start could not read has no claims: its requests are asked for anew, which may come.
        """
        may_come = not self._has_new and self._number in demand and demand[self._number].is_owed
        for batch in list(self._batches.values()):
            if not batch.is_begun and batch.waiting:
                self._begin(batch)
            elif not (batch.is_begun or may_come):  # a run that ends at once must not leave it pending
                self._drop(batch, "no answer is awaited")

    async def close(self) -> None:
        """Leave the batches to the next start, once the service has those that are being submitted."""
        self._gatherer.remove_all()
        for pause in self._pauses.values():
            pause.cancel()
        handing_in = [
            asyncio.ensure_future(batch.is_handed_in.wait())
            for batch in self._batches.values()
            if batch.bodies and batch.is_noted.is_set()
        ]
        if handing_in:
            await asyncio.wait(handing_in, timeout=HAND_IN_SECONDS)
        for task in (*self._tasks, *handing_in):
            task.cancel()
        await asyncio.gather(*self._tasks, *handing_in, return_exceptions=True)
        await self._calls.service.wire.close()

    def stats(self, model: int) -> EndpointStats:
        notices = tuple(self._calls.service.wire.notices)
        return replace(self._traffic.stats(), in_flight=len(self._waiting), requests=self._calls.sent, notices=notices)

    def _note(self, event: Event) -> None:
        self._post(Noted(note_of(event, {self._model.name: self._number})))

    # -- requests ----------------------------------------------------------------------------------------------------

    def _ask(self, waiting: WaitingRequest) -> None:
        """Put a request into the next batch."""
        self._pauses.pop(waiting.request.id, None)
        if self._is_stopping:
            self._fail(waiting, RequestFailure.NOT_SENT, STOPPING)
        else:
            waiting.attempts += 1
            self._gatherer.add(waiting)

    def _answer(self, waiting: WaitingRequest, answer: Answer) -> None:
        self._traffic.has_answered = True
        self._traffic.prompt_tokens += answer.prompt_tokens
        self._traffic.completion_tokens += answer.completion_tokens
        request = waiting.request
        del self._waiting[request.id]
        reserve = self._model.reserve(answer, request.question)
        self._post(Answered(request.id, [receive(answer, request.first, self._model.cost(answer), reserve)]))

    def _retry(self, waiting: WaitingRequest, outcome: NoBatchAnswer) -> None:
        """Request an answer again that a batch did not return, or give up the request."""
        calls = self._calls
        waiting.refusals += outcome.refused
        waiting.failures += not outcome.excused
        if waiting.refusals > 1:
            self._fail(waiting, RequestFailure.REFUSED, outcome.reason)
        elif waiting.failures >= calls.attempts or calls.now() - waiting.since > GIVE_UP_SECONDS:
            reason = f"given up after {waiting.attempts} batches; in the last one: {outcome.reason}"
            self._fail(waiting, RequestFailure.UNAVAILABLE, reason)
        elif outcome.lost and self._is_capped:
            self._post(Wasted(self._number, 0, None, waiting.request.id))
        elif outcome.pause and not self._is_stopping:
            pause = min(calls.longest_poll, calls.retry_pause * 2.0 ** min(waiting.attempts, 10))
            timer = asyncio.get_running_loop().call_later(pause, self._ask, waiting)
            self._pauses[waiting.request.id] = timer
        else:
            self._ask(waiting)

    def _fail(self, waiting: WaitingRequest, kind: RequestFailure, reason: str = "") -> None:
        request = waiting.request.id
        if self._waiting.pop(request, None) is not None:
            if (pause := self._pauses.pop(request, None)) is not None:
                pause.cancel()
            self._post(Failed(request, kind, reason))

    def _fail_with(self, waiting: WaitingRequest, error: EndpointError) -> None:
        kind = RequestFailure.REFUSED if isinstance(error, Rejected) else RequestFailure.UNAVAILABLE
        self._fail(waiting, kind, str(error))

    def _lose(self, answers: int) -> None:
        """Count answers that may have been generated but did not arrive."""
        if answers:
            self._traffic.lost += answers
            self._post(Wasted(self._number, answers))

    # -- batches -----------------------------------------------------------------------------------------------------

    def _batch_with(self, name: str) -> ServiceBatch | None:
        """The newest batch of a request, unless it was collected: older batches failed to answer it."""
        newest = next((batch for batch in reversed(self._batches.values()) if name in batch.ids), None)
        return None if newest is None or newest.ended is not None else newest

    def _begin(self, batch: ServiceBatch) -> None:
        self._batches[batch.record.key], batch.is_begun = batch, True
        self._start(self._carry_out(batch))

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # a bug of this program
            self._on_error(error)

    async def _carry_out(self, batch: ServiceBatch) -> None:
        """Submit, poll and collect a batch; an error fails all its requests."""
        is_inherited = not batch.bodies
        try:
            state = await self._calls.wait_for_end(batch)
            if isinstance(state, NoBatchAnswer):
                self._give_up(batch, "lost" if state.lost else "not created", state)
            else:
                await self._collect(batch, state, is_inherited=is_inherited)
        except EndpointError as error:
            if batch.record.batch is None:
                self._forget(batch)
            excerpt = safe_excerpt(str(error), self._calls.service.wire.redactor)
            batch.error = Rejected(excerpt) if isinstance(error, Rejected) else Unavailable(excerpt)
            for waiting in batch.remove_all():
                self._fail_with(waiting, batch.error)
        finally:
            batch.is_handed_in.set()

    async def _collect(self, batch: ServiceBatch, state: BatchState, *, is_inherited: bool) -> None:
        """Post the answers of an ended batch, and request missing ones again; `is_inherited`: an earlier start made it,
        so that its results may have been deleted since."""
        if state.stage is BatchStage.FAILED:
            excerpt = safe_excerpt(state.reason, self._calls.service.wire.redactor) or "it does not say why"
            if state.busy:
                self._give_up(batch, state.status, NoBatchAnswer(excerpt, pause=True, excused=True))
                return
            self._drop(batch, state.status, missing=len(batch.waiting))
            raise Rejected(f"its batch service refuses a batch as a whole: {excerpt}")
        try:
            results = await self._calls.service.format.results(state)
        except Refusal as refusal:
            if refusal.status not in GONE or not is_inherited:
                raise
            self._give_up(batch, "lost", NoBatchAnswer("its batch service no longer has the results", lost=True))
            return
        is_any_answered = any(result.code == 200 and result.unanswered is None for result in results)
        size, failed = len(batch.waiting), list[tuple[WaitingRequest, NoBatchAnswer]]()
        unknown = list[tuple[WaitingRequest, UnknownFinish]]()
        for result in results:
            name = result.custom_id.removeprefix(f"{batch.record.key}_")
            waiting = batch.waiting.pop(name, None) if name != result.custom_id else None
            if waiting is None:  # it was never asked for, or is there twice, or an earlier start has stored it
                continue
            outcome = self._read(batch, waiting, result, is_any_answered=is_any_answered)
            if isinstance(outcome, NoBatchAnswer):
                failed.append((waiting, outcome))
            elif isinstance(outcome, UnknownFinish):
                unknown.append((waiting, outcome))
            elif isinstance(outcome, Rejected):
                self._fail_with(waiting, outcome)
            else:
                batch.unstored.add(name)
                self._answer(waiting, outcome)
        for waiting, finish in unknown:
            if self._traffic.has_answered:  # other answers have a known finish reason
                failed.append((waiting, NoBatchAnswer(finish.among_others, lost=True)))
            else:
                self._lose(1)
                self._fail_with(waiting, finish)
        # a cancelled batch lists its expired requests
        lost = 0 if state.status == "cancelled" else len(batch.waiting)
        answered = len(batch.unstored)
        batch.ended = BatchEnded(self._calls.name, batch.record.key, state.status, answered, size - answered, lost)
        no_result = NoBatchAnswer("the results do not have it", lost=lost > 0)
        failed += [(waiting, no_result) for waiting in batch.remove_all()]
        self._retry_all(failed)
        self._end_if_stored(batch)

    def _give_up(self, batch: ServiceBatch, status: str, answer_missing: NoBatchAnswer) -> None:
        """End a batch that has no results."""
        missing = len(batch.waiting)
        self._drop(batch, status, missing=missing, lost=missing * answer_missing.lost)
        self._retry_all([(waiting, answer_missing) for waiting in batch.remove_all()])

    def _retry_all(self, failed: Sequence[tuple[WaitingRequest, NoBatchAnswer]]) -> None:
        """Request answers again that a batch did not return; all losses are charged first."""
        self._lose(sum(outcome.lost for _, outcome in failed))
        for waiting, outcome in failed:
            self._retry(waiting, outcome)

    def _abandon(self, batch: ServiceBatch, unused: int) -> None:
        """End a batch whose answers are no longer needed: they count as paid."""
        self._drop(batch, "abandoned", missing=unused, lost=unused)
        if batch.record.batch is not None:
            self._start(self._calls.service.cancel(batch.record.batch))  # if that fails, it ends by itself

    def _drop(self, batch: ServiceBatch, status: str, *, missing: int = 0, lost: int = 0) -> None:
        """Forget a batch without results."""
        self._forget(batch)
        self._note(BatchEnded(self._model.name, batch.record.key, status, missing=missing, lost=lost))

    def _forget(self, batch: ServiceBatch) -> None:
        self._batches.pop(batch.record.key, None)

    def _end_if_stored(self, batch: ServiceBatch) -> None:
        if batch.ended is not None and not batch.unstored and batch.record.key in self._batches:
            self._forget(batch)
            self._note(batch.ended)

    def _read(
        self, batch: ServiceBatch, waiting: WaitingRequest, result: BatchResult, *, is_any_answered: bool
    ) -> Answer | NoBatchAnswer | Rejected:
        """Read the answer in a result, or why there is none."""
        if result.unanswered is not None:
            reason = f"the request was {result.unanswered} with its batch"
            return NoBatchAnswer(reason, pause=True, excused=True)  # a service may end every batch at once
        seconds, attempts = max(0.0, self._calls.now() - batch.record.since), max(waiting.attempts, 1)
        try:
            return self._calls.service.answer(result, waiting.prompt, waiting.seed, seconds, attempts)
        except Failure as failure:
            return NoBatchAnswer(f"{failure.kind}: {failure}", lost=result.code == 200 and failure.may_have_cost)
        except UnknownFinish as finish:
            return finish
        except Rejected as error:
            if isinstance(error, Refusal) and is_any_answered:  # others of the batch were answered: once more
                return NoBatchAnswer(str(error), refused=True)
            return Rejected(str(error))
