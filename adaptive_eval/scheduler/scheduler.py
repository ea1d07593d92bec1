"""The one asyncio loop: it moves values between the decision core and the servers, the graders and the store.

    ask -> wait for a slot -> sample -> grade -> commit -> tell -> look -> commit

A trial is told to the core only when it is committed: whatever the core has decided on can be read back. What waits and
is sent is in `waiting` and `sending`, how answers are graded and kept in `keeping`, what was lost in `ledger`, who is
asked nothing more in `departures`, and what has come in `intake`; here is what they do together, from the beginning of
a run to its end.

A start has two parts: first everything that is stored is restored (`restoring`), and only then is anything asked.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence

from adaptive_eval.core.types import Cause, Cost, Look, Lost, Outcome, SetAside
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.errors import StoreError
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.alarms import Alarms
from adaptive_eval.scheduler.batched_lanes import BatchedLanes
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.departures import DepartureCallbacks, Departures
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.intake import Intake
from adaptive_eval.scheduler.keeping import AnswerKeeper
from adaptive_eval.scheduler.ledger import Ledger, LostAnswers, at_least_elapsed
from adaptive_eval.scheduler.opening_fit import OpeningFit
from adaptive_eval.scheduler.regrading import Regrading
from adaptive_eval.scheduler.restoring import Restoring
from adaptive_eval.scheduler.sending import RequestSender, SendCallbacks
from adaptive_eval.scheduler.server_need import ServerNeed
from adaptive_eval.scheduler.server_times import HeldServers, ServerTimes
from adaptive_eval.scheduler.troubles import RunTroubles
from adaptive_eval.scheduler.turns import ServerHost, TurnCallbacks, Turns
from adaptive_eval.scheduler.types import Decider, Halt, Lane, Observer
from adaptive_eval.scheduler.verdict_costs import VerdictCosts
from adaptive_eval.scheduler.waiting import TrialGroup
from adaptive_eval.store import (
    CommitBatch,
    Event,
    HeldTime,
    ModelSetAside,
    Roster,
    Store,
    VerdictsWasted,
    events_of_kind,
)
from adaptive_eval.store.looks import plain_look
from adaptive_eval.store.pending import PendingBatch
from adaptive_eval.store.usage import TrialUsage

BEYOND = (
    "an answer used {} tokens with its prompt, and at most {} were reserved for it (prompt and max_tokens): its server "
    "does not keep to max_tokens, and no cap can hold; mend it and begin anew, or remove the caps"
)
TICK_SECONDS = 0.5
"""How often the decision core is told the time, and the servers are looked at."""


class Scheduler:
    """Runs one run until it is finished or stopped."""

    def __init__(
        self,
        controller: Decider,
        lanes: Sequence[Lane],
        questions: Sequence[Question],
        grading: Grading,
        store: Store,
        observer: Observer,
        hosts: Sequence[ServerHost] = (),
        alarms: Alarms | None = None,
        ledger: Ledger | None = None,
        opening_fit: OpeningFit | None = None,
        removed_gpu_seconds: float = 0.0,
    ) -> None:
        """`ledger`: where caps must hold through kills; `opening_fit`: where the rubric has thresholds to be fitted;
        `removed_gpu_seconds`: of models that are here no more."""
        self._removed_gpu_seconds = removed_gpu_seconds
        self.taken_up = (0, 0)
        """Trials and tokens that earlier starts of the run have stored."""
        self.halt: Halt | None = None
        self.over = False
        """Nothing more is asked, and nothing stops it any more."""
        self._controller, self._lanes, self._questions = controller, lanes, questions
        self._grading, self._store, self._observer, self._alarms = grading, store, observer, alarms
        self._names = [lane.name for lane in lanes]
        self._recorded = frozenset(model for model, lane in enumerate(lanes) if lane.recorded)
        self._roster = Roster.of(self._names, (question.id for question in questions))
        self._elapsed_before = at_least_elapsed(store.reader)
        self._started: float | None = None
        self._out_of_time = False
        self._launched = frozenset(model for host in hosts for model in host.models)
        self._batches = BatchedLanes(lanes, self)
        self._times = ServerTimes(lanes, self._launched, store.reader.held(), self._batches.models)
        self._ending_since: float | None = None
        by_id = {question.id: question for question in questions}
        self._losses = LostAnswers(ledger, lanes, controller, self.note)
        self._verdict_costs = VerdictCosts(grading, store, self._losses, controller, lanes)
        self._regrading = Regrading(grading, store, by_id, set(self._names), self._verdict_costs)
        self._intake = Intake(self._roster, alarms)
        self._departures = self._make_departures()
        self._troubles = RunTroubles(lanes, self._departures, grading, self.note)
        self._committer = self._make_committer()
        self._keeper = AnswerKeeper(
            lanes,
            questions,
            grading,
            self._verdict_costs,
            self._committer,
            self._intake,
            self._departures,
            opening_fit,
            self.abort,
        )
        self._sender = self._make_sender()
        self._need = ServerNeed(self._names, controller, self._departures, self._keeper, self._sender, self._batches)
        self._turns = self._make_turns(hosts)

    def _make_departures(self) -> Departures:
        tell = DepartureCallbacks(note=self.note, set_aside=self._ask_no_more, abort=self.abort)
        return Departures(self._names, self._controller, tell, self._recorded)

    def _make_committer(self) -> Committer:
        return Committer(
            self._store,
            committed=self._on_committed,
            elapsed=self.elapsed,
            held=self._times.held,
            more_expected=lambda: bool(self._sender.tasks),
        )

    def _make_sender(self) -> RequestSender:
        tell = SendCallbacks(
            gone=self._departures.gone,
            servers=lambda model: self._turns.servers(model),
            ending=self._ending,
            answered=self._on_answers,
            keep=self._keep,
            failed=self._departures.no_answer,
            ended=self._end_if_over,
            broken=self.abort,
        )
        is_here = self._keeper.is_here
        return RequestSender(self._lanes, self._controller, self._committer, self._times, self._losses, tell, is_here)

    def _make_turns(self, hosts: Sequence[ServerHost]) -> Turns:
        asking = TurnCallbacks(
            wanted=self._sender.wanted,
            with_servers=lambda model: not self._sender.booked(model),
            in_flight=lambda model: self.in_flight[model],
            owed=self._need.owed,
            crowded=self._sender.crowded,
            up=self._sender.fill,
            down=self._departures.no_server,
            given_up=lambda model, error: self._departures.set_aside(model, Lost(Cause.SERVER, str(error))),
            too_narrow=self._departures.too_narrow,
            no_further=self._departures.no_further_server,
            note=self.note,
            settled=self._need.settled,
            resting=self._need.rests,
            waits=self._need.waits,
            rests=lambda model: self.note(self._need.rest(model)),
            freed=self._pump,
            broken=self.abort,
        )
        return Turns(hosts, asking)

    # -- what others see -----------------------------------------------------------------------------------------

    @property
    def usages(self) -> Sequence[TrialUsage]:
        """What each model has used, over all starts."""
        return self._intake.usages

    @property
    def in_flight(self) -> Sequence[int]:
        """Requests of each model that its server has."""
        return self._sender.in_flight

    @property
    def under_way(self) -> int:
        """Requests that are to be answered, or whose answers are being graded."""
        return max(sum(self._sender.in_flight), len(self._sender.tasks))

    @property
    def lost(self) -> dict[int, Lost]:
        """Models that were set aside since this start."""
        return self._departures.lost

    @property
    def pending_batches(self) -> Sequence[PendingBatch]:
        """What batch services have now."""
        return self._batches.pending

    def elapsed(self) -> float:
        """Seconds the run has been active, over all its starts."""
        since = 0.0 if self._started is None else time.monotonic() - self._started
        return self._elapsed_before + since

    def held(self) -> Sequence[HeldTime | None]:
        """How long each model has held its servers, over all starts; None where that is unknown, or not a moment."""
        held = self._times.held() or {}
        return [held.get(name) for name in self._names]

    def servers(self) -> HeldServers:
        """How long each model has held its servers, and whose servers the run has started."""
        return HeldServers(self.held(), self._launched)

    def gpu_seconds(self) -> float:
        """What a cap on GPU time counts by now: of servers that the run starts, for how long they were held; of others
        the time of requests, those in flight and those that were lost at their worst."""
        owed = (
            count * lane.samples_per_request * lane.lost.gpu_seconds
            for lane, count in zip(self._lanes, self.in_flight, strict=True)
        )
        each = zip(self.usages, owed, self._losses.gpu_seconds, strict=True)
        requests = [usage.gpu_seconds + flying + lost for usage, flying, lost in each]
        return self._removed_gpu_seconds + self.servers().gpu_seconds(requests)

    def note(self, event: Event) -> None:
        """Record an event, and tell the observer."""
        self._times.hear(event)
        self._need.hear(event)
        self._committer.add_event(event)
        self._observer.happened(event)

    async def safe(self) -> None:
        """Wait until what was recorded by now is on disk."""
        await self._committer.safe()

    async def run(self) -> None:
        """Run until the core is finished or the user has stopped the run; what was graded by then is committed.

        Raises `Rejected` when a model refuses its first request, and `StoreError` when nothing can be written.
        """
        self._done = asyncio.get_running_loop().create_future()
        self._started = time.monotonic()
        try:
            await self._restore()
            await self._carry_on()
        finally:
            self.over = True
            self._committer.close()

    def stop(self) -> None:
        """Stop asking and let what is in flight come back; called again, stop at once."""
        if self.over:
            return
        self.halt = Halt.DRAINED if self.halt is None else Halt.AT_ONCE
        self._regrading.stop()
        self._sender.waiting.clear()
        self._batches.leave()
        self._end_if_over()

    def abort(self, error: BaseException) -> None:
        """Stop at once, because nothing good can come of going on; `run` raises the error."""
        self._regrading.stop()
        if not self._done.done():
            self._done.set_exception(error)

    # -- the beginning and the end -------------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Restore what earlier starts of the run have stored: nothing is committed or asked meanwhile."""
        restoring = Restoring(
            self._store,
            self._roster,
            self._controller,
            self._departures,
            self._regrading,
            self._keeper,
            self._intake,
            self._batches,
            self._losses,
            self._stop_beyond_stored,
            self._observer.happened,
        )
        looks = await restoring.run()
        self.taken_up = self._intake.total
        if restoring.unjudged and self.halt is None:  # nobody pays for their verdicts
            self._controller.end_over_budget()
        self._departures.note_set_aside()
        if looks and self._alarms is not None:
            self._alarms.look_up(self._store.reader)
            self._raise_alarms(self._store.reader.events())
        self._store.forget_looks(len(looks))
        self._store_looks(looks)
        self._departures.note_settled(self._launched)

    async def _carry_on(self) -> None:
        """Ask, commit and look until the end; what was noted on the way here is committed first."""
        helpers = [asyncio.create_task(self._committer.run()), asyncio.create_task(self._tick())]
        for helper in helpers:
            helper.add_done_callback(self._on_helper_end)
        try:
            self._out_of_time = self._controller.tick(self.elapsed(), self.gpu_seconds())
            self._batches.begin()
            self._pump()
            await self._done
            self._tell_troubles()
        finally:
            self.over = True
            await _cancelled(self._sender.tasks)
            finished = self._controller.finished is not None
            await self._batches.depart(at_once=self._cut_short, over=finished, lost=self.lost)
            self._sender.tell_losses()
            await _cancelled(helpers)
            await self._turns.close()
            self._times.close()
            self._committer.mark()
            await self._commit_the_rest()

    @property
    def _cut_short(self) -> bool:
        """The end waits for nothing: the user wants it so, or something is broken."""
        return self.halt is Halt.AT_ONCE or not self._done.done() or self._done.exception() is not None

    async def _commit_the_rest(self) -> None:
        """Commit what was graded before the end, and the looks that this completes; not after a failed commit."""
        error = self._done.exception() if self._done.done() and not self._done.cancelled() else None
        while not isinstance(error, StoreError) and not self._committer.idle:
            await self._committer.flush()

    def _end_if_over(self) -> None:
        if self._done.done():
            return
        quiet = not self._sender.tasks and self._committer.idle
        finished = self._controller.finished
        # else what is in flight of a model that was set aside comes back, for it is paid
        at_once = self.halt is Halt.AT_ONCE or self._out_of_time
        if self._departures.refused and (quiet or self._departures.heard_all):
            self._departures.give_up()
        elif at_once or (quiet and (finished is not None or self.halt is not None)):
            self._done.set_result(None)
        elif quiet and not self._turns.moving and self._sender.waiting.empty:
            self.abort(RuntimeError("the decision core is neither finished nor asks for trials"))

    def _ending(self) -> bool:
        """Nothing more is sent."""
        return self.over or self.halt is not None or self._done.done()

    def _on_helper_end(self, helper: asyncio.Task[None]) -> None:
        if not helper.cancelled() and (error := helper.exception()) is not None:
            self.abort(error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._out_of_time = self._controller.tick(self.elapsed(), self.gpu_seconds())
            self._committer.beat()
            self._tell_troubles()
            self._settle_turns()
            if self.halt is not None or self._controller.finished is not None:
                self._give_up_hopeless()
            self._end_if_over()

    def _give_up_hopeless(self) -> None:
        """The end waits for what was being answered when it began, not for what fails again and again, nor for servers
        that nobody brings up any more."""
        now = time.monotonic()
        self._ending_since = now if self._ending_since is None else self._ending_since
        since = now - self._ending_since
        repeating = {model for model in self._troubles.stuck if self._lanes[model].endpoint.stats.oldest <= since}
        if self.halt is None and self._losses.ledger is not None:  # only its failure says that it has cost nothing
            repeating = set()
        for model in repeating | self._turns.deserted:
            self._sender.give_up(model)

    def _tell_troubles(self) -> None:
        self._sender.tell_losses()
        self._troubles.tell()
        self._sender.make_room(self._troubles.aside)

    # -- what is asked, and what comes ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start whatever can be started."""
        for model in range(len(self._lanes)):
            self._sender.fill(model)
        self._settle_turns()
        self._end_if_over()

    def _settle_turns(self) -> None:
        if self.halt is None and not self._done.done():
            self._turns.settle()

    def _ask_no_more(self, model: int) -> None:
        self._sender.waiting.forget(model)

    def _on_answers(self, model: int, answers: Sequence[Answer]) -> None:
        self._departures.answers[model] += 1
        if self._losses.ledger is not None:
            for answer in answers:
                self._stop_beyond(model, self._lanes[model].cost(answer))

    async def _keep(self, model: int, group: TrialGroup, answers: Sequence[Answer]) -> None:
        """Grade the answers of a request, and have them stored."""
        await self._keeper.keep(model, group, answers)
        self._batches.kept(model, group)

    def _stop_beyond(self, model: int, cost: Cost) -> None:
        """Ask nothing more of a model whose server goes beyond what caps reserve for an answer."""
        reserved = self._lanes[model].lost.tokens - self._verdict_costs.reserved.tokens
        if self._losses.ledger is not None and 0 < reserved < cost.tokens:
            self._departures.set_aside(model, Lost(Cause.SERVER, BEYOND.format(cost.tokens, reserved)))

    def _stop_beyond_stored(self, model: int, cost: Cost) -> None:
        """`_stop_beyond` by what is stored of an answer, unless that has verdicts in it: then the model's next answer
        shows it."""
        if not self._grading.lasting:
            self._stop_beyond(model, cost)

    # -- what was committed --------------------------------------------------------------------------------------

    def _on_committed(self, batch: CommitBatch) -> None:
        told: list[Outcome | SetAside] = []
        for event in self._store.take_news():
            self._observer.happened(event)
        waited = self._keeper.waited(batch)
        told += self._keeper.graded(batch)
        for vain in events_of_kind(batch.events, VerdictsWasted):
            self._intake.hear_wasted(vain)
        for event in events_of_kind(batch.events, ModelSetAside):
            told.append(SetAside(self._roster.models.position_of(event.model), event.reason, event.cause))
        if self._controller.finished is not None:  # what was asked ahead comes all the same
            self._controller.tell(one for one in told if isinstance(one, Outcome))
        elif told or waited:
            looks = [*self._controller.tell(told), *(self._controller.take(waited) if waited else ())]
            self._sender.waiting.core_was_told()
            self._departures.note_set_aside()
            if looks:
                self._store_looks(looks)
                self._observer.looked(looks)
                self._raise_alarms()
                self._departures.note_settled(self._launched)
        self._sender.send_booked(batch)
        if self._controller.finished is None:
            self._keeper.end_opening(self.note)
        if not self.over:
            self._pump()

    def _raise_alarms(self, known: Sequence[Event] = ()) -> None:
        """At the first look; a run that ends for them lets what is in flight come back, as at a user's wish."""
        if self._alarms is None:
            return
        for event in self._alarms.judge(self._recorded | self._controller.set_aside.keys(), known):
            self.note(event)
        if self._alarms.stopped is not None:
            self.stop()

    def _store_looks(self, looks: Sequence[Look]) -> None:
        for look in looks:
            self._committer.add_look(plain_look(look, self._names))


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
