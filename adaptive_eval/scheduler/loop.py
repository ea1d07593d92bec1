"""The event loop of a run: the one place where values move between the decision core, the servers, the graders and
the store.

    ask -> wait for a slot -> sample -> grade -> commit -> apply -> decide -> commit

Everything that happens is put on one queue. `Loop` turns each happening into records to be stored and requests to be
sent. A record is applied to the state, and the core told of it, once it is on disk: so everything that a decision rests
on can be read back.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from adaptive_eval.base.errors import EndpointError, RetryNotAllowed
from adaptive_eval.core.types import Cause, Look, Lost
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.answer_grader import AnswerGrader
from adaptive_eval.scheduler.committer import Observer, RepeatGuard, RunJournal
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.meter import RunMeter
from adaptive_eval.scheduler.requests import ModelDemand, Requests
from adaptive_eval.scheduler.run_end import Halt, RunEnd
from adaptive_eval.scheduler.state import RunState, committed_records
from adaptive_eval.scheduler.trials import Step
from adaptive_eval.scheduler.troubles import ServerWatch
from adaptive_eval.store import AnswersLost, CommitBatch, Event, ModelSetAside, Store
from adaptive_eval.supply.happenings import (
    Abandoned,
    Answered,
    Committed,
    Happening,
    Judged,
    LossFound,
    Noted,
    PlaceFreed,
    PlacesLost,
    Recorded,
    RefusalsHeard,
    ServerDown,
    ServerUp,
    TaskEnded,
    Ticked,
    Unanswered,
)
from adaptive_eval.supply.supplies import OpenSupply, Supplies
from adaptive_eval.supply.types import Request

REFUSALS_SECONDS = 2.0
"""How long the run waits for further refusals when a model refuses its first request, to report them together."""


class Loop:
    """Takes happenings from the queue, and does what follows from each."""

    def __init__(
        self,
        state: RunState,
        questions: Sequence[Question],
        grading: Grading,
        store: Store,
        observer: Observer,
        supplies: Sequence[OpenSupply] = (),
        removed_gpu_seconds: float = 0.0,
    ) -> None:
        """`removed_gpu_seconds`: of models that were taken out of the run."""
        self._happenings: deque[Happening] = deque()
        self._happened = asyncio.Event()
        say = self.say
        self.state, self.ending = state, RunEnd(state)
        self.supply = Supplies(state.lanes, supplies, say, self)
        self.meter = RunMeter(state.lanes, self.supply, store.reader, removed_gpu_seconds)
        self.journal = RunJournal(store, self.meter, observer, say)
        guard = RepeatGuard(state, self.journal.committer, say)
        self.grader = AnswerGrader(state, questions, grading, guard, say)
        self.requests = Requests(state, self.supply, self.grader, self.journal, guard, say)
        self.patience = max(lane.timeout for lane in state.lanes)  # seconds for which a stop waits for answers
        self._demand = ModelDemand(state, self.requests)
        self._watch = ServerWatch(state.lanes, state.models, grading)

    def say(self, happening: Happening) -> None:
        """Put something that has happened on the queue, and remove secrets from its error."""
        self.journal.store.redactor.error(getattr(happening, "error", None))
        self._happenings.append(happening)
        self._happened.set()

    def note(self, event: Event) -> None:
        """Record an event, and tell the observer."""
        self.journal.note(event)

    async def safe(self) -> None:
        await self.journal.committer.safe()

    async def listen(self) -> None:
        """Take happenings as they come, until cancelled."""
        while True:
            await self._happened.wait()
            self._happened.clear()
            self.take_all()
            self.end_if_over()

    def take_all(self) -> None:
        while self._happenings:
            try:
                self._take(self._happenings.popleft())
            except Exception as error:  # it ends the run, and graded answers are still committed
                self.ending.abort(error)

    def _take(self, happening: Happening) -> None:
        models = self.state.models
        match happening:
            case Answered(request):
                self.state.trials.move_request(request, Step.ANSWERED)
                self.requests.slots.release(request.model)
                models.answers[request.model] += 1
                self._fill(request.model)  # the slot is free; grading takes none
            case Recorded(request, trials):
                self.journal.committer.next_batch().trials.extend(trials)
                self.supply.mark_stored(request)
            case Committed(batch, waiting):
                self._on_committed(batch)
                for one in waiting:
                    if not one.done():
                        one.set_result(None)
            case Judged(verdict, reserved):
                self.grader.enter_verdict(verdict, reserved, self.journal.committer.next_batch())
            case Unanswered(request, error):
                self._on_unanswered(request, error)
            case Abandoned(request, failed):
                self._on_abandoned(request, failed=failed)
            case LossFound(loss, counted):
                self.count_losses() if loss is None else self._count_loss(loss)
                if not counted.done():  # else its request was given up meanwhile
                    counted.set_result(None)
            case TaskEnded(error):
                if error is not None:
                    raise error
            case Noted(event):
                self.note(event)
            case ServerUp(model):
                self._fill(model)
            case PlaceFreed():
                self.fill_all()
            case ServerDown(model, error):
                self._note_set_aside(models.drop_unserved(model, error))
            case PlacesLost(model, error):
                self.set_aside(model, error)
            case RefusalsHeard():
                raise models.refusals()
            case Ticked():
                self._on_tick()

    def _on_committed(self, batch: CommitBatch) -> None:
        """Apply the records of a commit, decide, and go on."""
        for record in committed_records(batch):
            self.state.apply(record)
        if not self.ending.over:
            self.grader.judge(batch)
        self.decide()
        over = self.ending.is_ending or self.state.controller.finished is not None
        self.requests.send_booked(batch, ending=over)
        if not self.ending.over:
            self.fill_all()

    def _on_unanswered(self, request: Request, error: EndpointError) -> None:
        """End the run if the model refuses its first request, and set the model aside if it fails later."""
        self.requests.slots.release(request.model)
        self.count_losses()  # only these cost something, a refusal does not
        if self.state.controller.is_paused(request.model):
            self.requests.give_back(request)  # nobody waits for it now
            return
        self.requests.lose(request)
        if isinstance(error, RetryNotAllowed):
            return
        if self.state.models.refuses(request.model, error):
            if len(self.state.models.refused) == 1:
                asyncio.get_running_loop().call_later(REFUSALS_SECONDS, self.say, RefusalsHeard())
        else:
            self.set_aside(request.model, error)

    def _on_abandoned(self, request: Request, *, failed: bool) -> None:
        """Cross out a request that a server had; if the run is to go on under caps, the next start does so.

        One that has `failed` costs nothing. A batch service keeps its requests, or has said what it loses of them.
        """
        self.requests.slots.release(request.model)
        is_cut_off = not failed and request.model not in self.supply.batched
        if is_cut_off and self.state.capped and self.state.controller.finished is None:
            self.state.trials.move_request(request, Step.LOST)
        else:
            self.requests.lose(request, cut_off=is_cut_off)

    def _on_tick(self) -> None:
        self.tell_time()
        self.journal.committer.beat()
        self.tell_troubles()
        self._serve()
        if (seconds := self.ending.seconds()) is not None:
            self._give_up_hopeless(seconds)
            if self.ending.halt is Halt.DRAINED and seconds >= self.patience:
                self.stop()

    # -- what follows --------------------------------------------------------------------------------------------

    def decide(self, *, resuming: bool = False) -> Sequence[Look]:
        """Have the core decide on the new records, and record the decision. The observer knows looks of earlier starts,
        which are taken again when `resuming`."""
        stopping = self.ending.halt is not None or self.ending.out_of_time
        decision = self.state.decide(self.meter.launched, stopping=stopping)
        self._note_set_aside(decision.set_aside)
        self.journal.note_looks(decision.looks, self.state.roster.models, self.state.controller.plan)
        if decision.looks and not resuming:
            self.journal.observer.looked(decision.looks)
        for event in decision.events:
            self.note(event)
        self.requests.waiting.core_was_told()
        if self.state.alarms.stopped is not None and self.ending.halt is None:
            self.stop()  # what is in flight comes back
        return decision.looks

    def _note_set_aside(self, events: Iterable[Event]) -> None:
        for event in events:
            self.note(event)
            if isinstance(event, ModelSetAside):
                self.requests.waiting.forget(self.state.roster.models.position(event.model))

    def set_aside(self, model: int, error: EndpointError) -> None:
        """Go on without a model whose servers cannot be used."""
        self._note_set_aside(self.state.models.set_aside(model, Lost(Cause.SERVER, str(error))))

    def count_losses(self) -> None:
        """Count answers that servers have generated and lost; if this reaches a cap, ask nothing more."""
        for event in self.requests.new_losses():
            self._count_loss(event)

    def _count_loss(self, event: AnswersLost) -> None:
        event = self.state.placed(event)
        self.note(event)
        self.state.apply(event)
        self.decide()
        if self.state.controller.finished is not None:
            self.requests.waiting.clear()

    def stop(self) -> None:
        """Stop asking and let what is in flight come back while patience lasts; called again, stop at once."""
        self.ending.stop()
        self.requests.waiting.clear()
        self.supply.leave()
        self.end_if_over()

    def end_if_over(self) -> None:
        """End the run if there is nothing left to wait for."""
        committer, busy = self.journal.committer, self.requests.tasks + self.grader.tasks > 0
        committer.gathers = busy
        quiet = not busy and committer.idle and not self._happenings
        self.ending.end_if_over(quiet=quiet)
        if quiet and not (self.ending.done or self.supply.is_moving or self._demand.is_any_waiting):
            self.ending.abort(RuntimeError("the decision core is neither finished nor asks for trials"))

    def _unserved(self) -> Iterator[int]:
        """Models that the whole run waits for: nothing is under way, and none of their servers is up or on its way."""
        busy = self.requests.tasks + self.grader.tasks > 0 or self.supply.is_moving
        if not (busy or self.ending.is_ending):
            for model in range(len(self.state.lanes)):
                if not self.supply.servers(model) and self._demand.is_wanted(model):
                    yield model

    def tell_time(self) -> None:
        gpu_seconds = self.meter.gpu_seconds(self.state.spent, self.requests.in_flight)
        self.ending.out_of_time = self.state.controller.tick(self.meter.elapsed(), gpu_seconds)

    def tell_troubles(self) -> None:
        self.count_losses()
        for event in chain(self._watch.news(), self._watch.awaited(list(self._unserved()))):
            self.note(event)
        self.requests.make_room(self._watch.failing_requests)

    def _give_up_hopeless(self, seconds: float) -> None:
        """Give up models whose requests only fail, at the end of a run, and models whose servers are gone for good."""
        hopeless = set(self._watch.hopeless(seconds))
        if self.ending.halt is None and self.state.capped:  # a request has cost nothing only if it fails
            hopeless = set()
        for model in hopeless | set(self.supply.deserted):
            self.requests.give_up(model)

    def _fill(self, model: int) -> None:
        if not self.ending.is_ending:
            self.requests.fill(model)

    def fill_all(self) -> None:
        """Start all requests and servers that can be started."""
        for model in range(len(self.state.lanes)):
            self._fill(model)
        self._serve()

    def _serve(self) -> None:
        if self.ending.halt is None and not self.ending.done:
            self.supply.serve(self._demand)
