"""The one asyncio loop: it moves values between the decision core and the servers, the graders and the store.

    ask -> wait for a slot -> sample -> grade -> commit -> tell -> look -> commit

A trial is told to the core only when it is committed: whatever the core has decided on can be read back. Requests are
started from callbacks, as slots and trials appear; there is one task per request in flight and none for what waits.

A start has two parts. First everything that is stored is taken up, and nothing else goes on: no commit, no tick, no
server comes up. Only then does anything exist that could ask, so that nothing is ever asked that is there already.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from adaptive_eval.core.types import Cause, Cost, Look, Lost, Outcome, SetAside
from adaptive_eval.errors import EndpointError, NotAskedAgain, Rejected, StoreError
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.alarms import Alarms
from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.grading import Grading, grade_or_error, record_of
from adaptive_eval.scheduler.held import ServerTimes, gpu_seconds_used
from adaptive_eval.scheduler.ledger import Ledger, at_least_elapsed, cost_of, lost_so_far
from adaptive_eval.scheduler.regrading import Regrading
from adaptive_eval.scheduler.time_outs import to_be_asked_again
from adaptive_eval.scheduler.troubles import Troubles
from adaptive_eval.scheduler.turns import ServerHost, TurnCallbacks, Turns
from adaptive_eval.scheduler.types import Decider, Halt, Lane, Observer
from adaptive_eval.scheduler.waiting import TrialGroup, WaitingLine
from adaptive_eval.seeds import SEED_SPAN, trial_seed
from adaptive_eval.store import (
    AnswerUngraded,
    CommitBatch,
    Event,
    HeldTime,
    ModelSetAside,
    ModelSettled,
    Roster,
    ServersNoticed,
    SettingsChanged,
    Store,
    StoredOutcome,
    events_of_kind,
)
from adaptive_eval.store.looks import plain_look
from adaptive_eval.store.usage import TrialUsage

ASKED_AHEAD = 16
"""Requests whose trials wait besides those that fill the free slots, so that the core is not asked at every answer."""

BEYOND = (
    "an answer used {} tokens with its prompt, and at most {} were reserved for it (prompt and max_tokens): its server "
    "does not keep to max_tokens, and no cap can hold; mend it and begin anew, or remove the caps"
)
TICK_SECONDS = 0.5
"""How often the decision core is told the time, and the servers are looked at."""

REFUSALS_SECONDS = 2.0
"""How long the run waits for more when a model refuses its first request: whatever is wrong is told at once.

Models that have not said a word by then may refuse, too.
"""

ELSEWHERE = "\nwhich of the other models can be used: adaptive-eval check CONFIG"
"""Ends the error that names them, since the other models were not all heard."""


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
    ) -> None:
        """`ledger`: where caps must hold through kills."""
        self.usages = [TrialUsage() for _ in lanes]
        self.in_flight = [0] * len(lanes)
        """Requests of each model that its server has."""
        self.taken_up = (0, 0)
        """Trials and tokens that earlier starts of the run have stored."""
        self.halt: Halt | None = None
        self.over = False
        """Nothing more is asked, and nothing stops it any more."""
        self.lost: dict[int, Lost] = {}
        """Models that were set aside since this start."""
        self._controller, self._lanes, self._questions = controller, lanes, questions
        self._grading, self._store, self._observer = grading, store, observer
        self._alarms, self._ledger = alarms, ledger
        self._roster = Roster.of((lane.name for lane in lanes), (question.id for question in questions))
        self._booked: list[tuple[int, TrialGroup, range]] = []
        """Requests that are sent as soon as it is written down that they will be."""
        by_id = {question.id: question for question in questions}
        self._regrading = Regrading(grading, store, by_id, set(self._roster.models))
        self._waiting = [WaitingLine() for _ in lanes]
        self._dry = [False] * len(lanes)
        """Models that the core has no further trials for until it issues more."""
        self._rounds_issued = 0
        """Rounds that the core had issued when it was told last."""
        self._troubles = [Troubles(lane.name) for lane in lanes]
        self._answers = [0] * len(lanes)
        """Requests of each model that were answered since this start."""
        self._refused: dict[int, str] = {}
        """Models that refused their first request, and why."""
        self.settled: set[int] = set()
        """Models that nothing can want again, as far as the run goes today."""
        self._told_settled = _settled_since_the_settings(store.reader.events())
        self._ungraded: dict[int, tuple[str, str]] = {}
        """Of each model the first question since this start on which the grader failed, and its error."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns(
            hosts,
            TurnCallbacks(
                wanted=self._wanted,
                owed=self._owed,
                up=self._pump_lane,
                down=self._on_no_server,
                note=self.note,
                settled=self._settled,
                freed=self._pump,
                broken=self.abort,
            ),
        )
        self._elapsed_before = at_least_elapsed(store.reader)
        self._started: float | None = None
        self._out_of_time = False
        self._launched = frozenset(model for host in hosts for model in host.models)
        self._times = ServerTimes(lanes, self._launched, store.reader.held())
        self._lost_gpu_seconds = [0.0] * len(lanes)
        """Of each model the requests that were lost, over all starts."""
        self._committer = Committer(
            store,
            committed=self._on_committed,
            elapsed=self.elapsed,
            held=self._times.held,
            more_expected=lambda: bool(self._tasks),
        )

    def elapsed(self) -> float:
        """Seconds the run has been active, over all its starts."""
        since = 0.0 if self._started is None else time.monotonic() - self._started
        return self._elapsed_before + since

    def held(self) -> Sequence[HeldTime | None]:
        """How long each model has held its servers, over all starts; None where that is unknown, or not a moment."""
        held = self._times.held() or {}
        return [held.get(lane.name) for lane in self._lanes]

    def gpu_seconds(self) -> float:
        """What a cap on GPU time counts by now: of servers that the run starts, for how long they were held; of others
        the time of requests, those in flight and those that were lost at their worst."""
        owed = (
            count * lane.samples_per_request * lane.lost.gpu_seconds
            for lane, count in zip(self._lanes, self.in_flight, strict=True)
        )
        each = zip(self.usages, owed, self._lost_gpu_seconds, strict=True)
        requests = [usage.gpu_seconds + flying + lost for usage, flying, lost in each]
        return gpu_seconds_used(self.held(), self._launched, requests)

    def note(self, event: Event) -> None:
        """Record an event, and tell the observer."""
        self._times.hear(event)
        self._committer.add_event(event)
        self._observer.happened(event)

    async def run(self) -> None:
        """Run until the core is finished or the user has stopped the run; what was graded by then is committed.

        Raises `Rejected` when a model refuses its first request, and `StoreError` when nothing can be written.
        """
        self._done = asyncio.get_running_loop().create_future()
        self._started = time.monotonic()
        try:
            await self._take_up()
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
        for line in self._waiting:
            line.clear()
        self._end_if_over()

    def abort(self, error: BaseException) -> None:
        """Stop at once, because nothing good can come of going on; `run` raises the error."""
        self._regrading.stop()
        if not self._done.done():
            self._done.set_exception(error)

    # -- the beginning and the end -------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Take up what earlier starts of the run have stored: nothing is committed or asked meanwhile."""
        self._forget_time_outs()
        for regrade in await self._regrading.run(self._observer.happened):
            self._note_ungraded(
                self._roster.models.position_of(regrade.model), regrade.question, str(regrade.grader_error)
            )
        outcomes: list[Outcome] = []
        for stored in self._store.reader.outcomes():
            if stored.model in self._roster.models:
                self._count(stored)
                self._stop_beyond(self._roster.models.position_of(stored.model), stored.cost)
                outcomes.append(self._as_outcome(stored))
        self.taken_up = sum(usage.trials for usage in self.usages), sum(usage.tokens for usage in self.usages)
        lost: dict[int, Cost] = {}
        if self._ledger is not None:
            for event in self._ledger.take_up(self._store):
                self._observer.happened(event)
            lost = lost_so_far(self._store.reader.events(), self._roster.models)
        for model, cost in lost.items():
            self._lost_gpu_seconds[model] = cost.gpu_seconds
        looks = self._controller.restore(outcomes, lost)
        self._hear_who_is_set_aside()
        if looks and self._alarms is not None:
            self._alarms.look_up(self._store.reader)
            self._raise_alarms(self._store.reader.events())
        self._store.forget_looks(len(looks))
        self._store_looks(looks)
        self._hear_who_is_settled()

    async def _carry_on(self) -> None:
        """Ask, commit and look until the end; what was noted on the way here is committed first."""
        helpers = [asyncio.create_task(self._committer.run()), asyncio.create_task(self._tick())]
        for helper in helpers:
            helper.add_done_callback(self._on_helper_end)
        try:
            self._out_of_time = self._controller.tick(self.elapsed(), self.gpu_seconds())
            self._pump()
            await self._done
            self._tell_troubles()
        finally:
            self.over = True
            await _cancelled([*helpers, *self._tasks])
            await self._turns.close()
            self._times.close()
            self._committer.mark()
            await self._commit_the_rest()

    def _forget_time_outs(self) -> None:
        """Ask again what timed out of a model that was set aside for it: its server may have been mended."""
        for name, trials in to_be_asked_again(self._store.reader).items():
            if name in self._roster.models:
                text = f"{len(trials)} of its requests had run out of time, when it was set aside, and were asked again"
                self._store.forget_trials(name, trials, event := ServersNoticed(name, "asked_again", text))
                self._observer.happened(event)

    async def _commit_the_rest(self) -> None:
        """Commit what was graded before the end, and the looks that this completes; not after a failed commit."""
        error = self._done.exception() if self._done.done() and not self._done.cancelled() else None
        while not isinstance(error, StoreError) and not self._committer.idle:
            await self._committer.flush()

    def _end_if_over(self) -> None:
        if self._done.done():
            return
        quiet = not self._tasks and self._committer.idle
        finished = self._controller.finished
        # else what is in flight of a model that was set aside comes back, for it is paid
        at_once = self.halt is Halt.AT_ONCE or self._out_of_time
        if self._refused and (quiet or self._heard_all):
            self._give_up()
        elif at_once or (quiet and (finished is not None or self.halt is not None)):
            self._done.set_result(None)
        elif quiet and not self._turns.moving and not any(line.trials for line in self._waiting):
            self.abort(RuntimeError("the decision core is neither finished nor asks for trials"))

    def _on_helper_end(self, helper: asyncio.Task[None]) -> None:
        if not helper.cancelled() and (error := helper.exception()) is not None:
            self.abort(error)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._out_of_time = self._controller.tick(self.elapsed(), self.gpu_seconds())
            self._committer.beat()
            self._tell_troubles()
            self._end_if_over()

    def _tell_losses(self) -> None:
        """Count what servers have generated and lost; where a cap is reached by it, nothing more is asked."""
        for model, lane in enumerate(self._lanes):
            event = None if self._ledger is None else self._ledger.noticed(model, lane.endpoint.stats)
            if event is not None:
                self.note(event)
                self._lost_gpu_seconds[model] += event.gpu_seconds
                self._controller.lose(model, cost_of(event))
        if self._controller.finished is not None:
            for line in self._waiting:
                line.clear()

    def _tell_troubles(self) -> None:
        self._tell_losses()
        now = time.monotonic()
        for lane, answers, troubles in zip(self._lanes, self._answers, self._troubles, strict=True):
            for event in troubles.noticed(lane.endpoint.stats, answers, now):
                self.note(event)

    # -- requests ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start whatever can be started."""
        for model in range(len(self._lanes)):
            self._pump_lane(model)
        if self.halt is None and not self._done.done():
            self._turns.settle()
        self._end_if_over()

    def _pump_lane(self, model: int) -> None:
        if self.halt is not None or self._done.done() or model in self._turns.resting or self._gone(model):
            return
        lane, line = self._lanes[model], self._waiting[model]
        while (free := lane.slots - self.in_flight[model]) > 0:
            self._top_up(model, free * lane.samples_per_request)
            if line.peek() is None:
                return
            self._start(model, line)

    def _top_up(self, model: int, needed: int) -> None:
        """Have more trials wait than are needed now: groups are then whole when their turn comes."""
        lane, line = self._lanes[model], self._waiting[model]
        if self._dry[model] or line.trials >= needed + lane.samples_per_request:
            return
        want = needed + ASKED_AHEAD * lane.samples_per_request - line.trials
        asks = self._controller.ask(want, model)
        line.add(asks)
        self._dry[model] = len(asks) < want

    def _start(self, model: int, line: WaitingLine) -> None:
        lane, group = self._lanes[model], line.peek()
        assert group is not None
        seed = trial_seed(lane.seed_base(group.question), group.first)
        # a request's seeds may not run over the end of their range
        group = line.take(min(lane.samples_per_request, SEED_SPAN - seed))
        self.in_flight[model] += 1
        seeds = range(seed, seed + group.size)
        if self._ledger is None:
            self._send(model, group, seeds)
        else:
            self._booked.append((model, group, seeds))
            self._committer.add_sent(self._ledger.entry(model, group))

    def _send_booked(self, batch: CommitBatch) -> None:
        """Send what is written down by now, unless it is not to be sent any more."""
        if self._ledger is None or not batch.sent:
            return
        count = len(batch.sent)
        booked, self._booked = self._booked[:count], self._booked[count:]
        over = self.over or self.halt is not None or self._done.done() or self._controller.finished is not None
        for model, group, seeds in booked:
            if over or self._gone(model):
                self._one_less(model)
                self._committer.add_unsent(self._ledger.entry(model, group))
            else:
                self._send(model, group, seeds)

    def _send(self, model: int, group: TrialGroup, seeds: range) -> None:
        task = asyncio.create_task(self._request(model, group, seeds))
        self._tasks.add(task)
        task.add_done_callback(self._on_request_end)

    async def _request(self, model: int, group: TrialGroup, seeds: range) -> None:
        lane = self._lanes[model]
        again = None if self._ledger is None else partial(self._may_ask_again, model)
        self._times.sent(model)
        try:
            if self._gone(model):  # since this task was made
                raise NotAskedAgain("the model was set aside")
            answers = await lane.endpoint.sample(lane.prompt(group.question), seeds, again)
        except EndpointError as error:
            self._cross_out(model, group)
            if not isinstance(error, NotAskedAgain):  # that there are no further trials, the core has said
                self._on_no_answer(model, error)
            return
        finally:
            self._one_less(model)
        self._answers[model] += 1
        for answer in answers:
            self._stop_beyond(model, lane.cost(answer))
        self._pump_lane(model)  # the slot is free; grading takes none
        question = self._questions[group.question]
        for trial, answer in zip(group.trials, answers, strict=True):
            grade = await grade_or_error(self._grading, answer, question)
            self._committer.add_trial(record_of(lane, question, trial, group.round, answer, grade))

    def _one_less(self, model: int) -> None:
        """A request is over, or is not sent after all."""
        self.in_flight[model] -= 1
        if not self.in_flight[model]:
            self._times.quiet(model)

    async def _may_ask_again(self, model: int) -> bool:
        """Whether what was lost on the way may be asked for once more: its loss is on disk, and the caps bear both."""
        self._tell_losses()
        if self._controller.finished is not None or self._gone(model):
            return False
        await self._committer.safe()
        return self._controller.finished is None and not self._gone(model)

    def _cross_out(self, model: int, group: TrialGroup) -> None:
        """A request without an answer: what it has lost is counted apart, and what was refused cost nothing."""
        if self._ledger is not None:
            self._tell_losses()
            self._committer.add_unsent(self._ledger.entry(model, group))

    def _on_request_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.abort(error)
        self._end_if_over()

    def _on_no_answer(self, model: int, error: EndpointError) -> None:
        """A model that refuses from the start is a mistake of the configuration; one that fails later is set aside."""
        if isinstance(error, Rejected) and not self._answers[model]:
            if not self._refused:
                asyncio.get_running_loop().call_later(REFUSALS_SECONDS, self._give_up)
            self._refused.setdefault(model, str(error))
        else:
            self._lose(model, Lost(Cause.SERVER, str(error)))

    def _on_no_server(self, model: int, error: BaseException) -> None:
        """A server that does not start before anything is answered is a mistake to be mended first."""
        if not isinstance(error, EndpointError):
            self.abort(error)
        elif any(self._answers):
            self._lose(model, Lost(Cause.SERVER, str(error)))
        else:
            self.abort(type(error)(f"{self._lanes[model].name}: {error}{ELSEWHERE}"))

    def _wanted(self, model: int) -> bool:
        """There is something to ask this model."""
        if self._gone(model):
            return False
        self._top_up(model, self._lanes[model].slots * self._lanes[model].samples_per_request)
        return self._waiting[model].trials > 0

    def _owed(self, model: int) -> bool:
        """Something that this model was asked for is not told to the core."""
        return not self._gone(model) and self._controller.outstanding(model) > 0

    def _settled(self, model: int) -> bool:
        """Its server may go: nobody waits for an answer, and nothing further will be asked."""
        return not self.in_flight[model] and (model in self.settled or self._gone(model))

    def _gone(self, model: int) -> bool:
        """Nothing more is asked of this model."""
        return model in self.lost or model in self._refused

    def _give_up(self) -> None:
        """End the run with every refusal."""
        told = [f"{self._lanes[model].name}: {reason}" for model, reason in sorted(self._refused.items())]
        self.abort(Rejected("\n".join(told) + ("" if self._heard_all else ELSEWHERE)))

    @property
    def _heard_all(self) -> bool:
        """Every model has answered or refused."""
        return all(answers or model in self._refused for model, answers in enumerate(self._answers))

    def _lose(self, model: int, lost: Lost) -> None:
        """Set a model aside: the core hears of it when the event is committed."""
        if model in self.lost:
            return
        self.lost[model] = lost
        self._waiting[model].clear()
        self.note(ModelSetAside(self._lanes[model].name, lost.reason, lost.cause))

    def _hear_who_is_set_aside(self) -> None:
        """Record whom the core itself goes on without."""
        for model, lost in self._controller.set_aside.items():
            if model in self.lost:
                continue
            if lost.cause is Cause.GRADER and model in self._ungraded:
                example = "on question {}: {}".format(*self._ungraded[model])
                lost = lost._replace(reason=f"{lost.reason}; {example}")
            self._lose(model, lost)

    def _hear_who_is_settled(self) -> None:
        """Record whom nothing can want again, each once under the settings of today."""
        if self._controller.finished is not None:
            return
        wanted = self._controller.wanted_again()
        self.settled = {model for model in range(len(self._lanes)) if not wanted[model] and model not in self.lost}
        for model in sorted(self.settled):
            name = self._lanes[model].name
            if name not in self._told_settled:
                self._told_settled.add(name)
                self.note(ModelSettled(name, launched=model in self._launched))

    def _note_ungraded(self, model: int, question: str, error: str) -> None:
        """Tell of a model's first answer that has no grade: the run goes on."""
        if model not in self._ungraded:
            self._ungraded[model] = (question, error)
            self.note(AnswerUngraded(self._lanes[model].name, question, error))

    # -- what was committed --------------------------------------------------------------------------------------

    def _on_committed(self, batch: CommitBatch) -> None:
        told: list[Outcome | SetAside] = []
        for record in batch.trials:
            outcome = record.outcome()
            self._count(outcome)
            if self._alarms is not None:
                self._alarms.see(self._roster.models.position_of(record.model), record)
            told.append(self._as_outcome(outcome))
            if record.grader_error is not None:
                self._note_ungraded(self._roster.models.position_of(record.model), record.question, record.grader_error)
        for event in events_of_kind(batch.events, ModelSetAside):
            told.append(SetAside(self._roster.models.position_of(event.model), event.reason, event.cause))
        if told and self._controller.finished is None:
            looks = self._controller.tell(told)
            if self._controller.rounds_issued != self._rounds_issued:
                self._rounds_issued, self._dry = self._controller.rounds_issued, [False] * len(self._lanes)
            self._hear_who_is_set_aside()
            if looks:
                self._store_looks(looks)
                self._observer.looked(looks)
                self._raise_alarms()
                self._hear_who_is_settled()
        self._send_booked(batch)
        if not self.over:
            self._pump()

    def _count(self, stored: StoredOutcome) -> None:
        model = self._roster.models.position_of(stored.model)
        self.usages[model].add(stored)
        if self._alarms is not None:
            self._alarms.add(model, self._roster.questions.position_of(stored.question), stored)

    def _stop_beyond(self, model: int, cost: Cost) -> None:
        """Ask nothing more of a model whose server goes beyond what caps reserve for an answer."""
        reserved = self._lanes[model].lost.tokens
        if self._ledger is not None and 0 < reserved < cost.tokens:
            self._lose(model, Lost(Cause.SERVER, BEYOND.format(cost.tokens, reserved)))

    def _raise_alarms(self, known: Sequence[Event] = ()) -> None:
        """At the first look; a run that ends for them lets what is in flight come back, as at a user's wish."""
        if self._alarms is None:
            return
        for event in self._alarms.judge(self._controller.set_aside, known):
            self.note(event)
        if self._alarms.stopped is not None:
            self.stop()

    def _as_outcome(self, stored: StoredOutcome) -> Outcome:
        return stored.as_outcome(*self._roster.cell(stored.model, stored.question))

    def _store_looks(self, looks: Sequence[Look]) -> None:
        names = [lane.name for lane in self._lanes]
        for look in looks:
            self._committer.add_look(plain_look(look, names))


def _settled_since_the_settings(events: Sequence[Event]) -> set[str]:
    """Models that were told to be settled, since a resume has last changed the settings: it may want them again."""
    changes = [at for at, event in enumerate(events) if isinstance(event, SettingsChanged)]
    return {event.model for event in events_of_kind(events[max(changes, default=0) :], ModelSettled)}


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
