"""The asyncio of a run: it carries out the machine's actions, and posts what happens as events. It decides nothing.

One thread writes. All rows that come while it is writing are one commit, and while answers are expected a commit waits
a moment for more: at 3,000 trials a second that makes some 60 of them one commit, at 0.1 to 0.2 ms of CPU each.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from adaptive_eval.base.errors import GraderError
from adaptive_eval.core.types import NO_COST, Reason
from adaptive_eval.graders.pool import Grading
from adaptive_eval.machine.charges import Charge
from adaptive_eval.machine.clocks import BEAT_SECONDS, RunClock
from adaptive_eval.machine.events import (
    Abort,
    AbortKind,
    Allow,
    Answered,
    Cancel,
    Capacity,
    Committed,
    Event,
    Failed,
    Finish,
    GradeAnswer,
    Graded,
    GradingCutOff,
    Hopeless,
    JudgeAnswer,
    MakeReport,
    Noted,
    Send,
    Stop,
    Tick,
    VerdictWasted,
    Write,
)
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.permits import Permits
from adaptive_eval.machine.records import LookTaken, Note, Record, Row
from adaptive_eval.machine.supply import Demand, Supply
from adaptive_eval.machine.trial import ANSWERED, GradeDetails, Key, Request, Trial
from adaptive_eval.machine.troubles import ServerWatch
from adaptive_eval.questions.types import Question
from adaptive_eval.report.make import Draft, Reporter
from adaptive_eval.running.grading import grade_answer
from adaptive_eval.running.live_status import LiveStatus
from adaptive_eval.store.write import RunStore

GATHER_SECONDS = 0.02
TICK_SECONDS = 0.5


class Aborted(Exception):
    """The machine has found that the run cannot go on."""

    def __init__(self, abort: Abort) -> None:
        self.abort = abort
        super().__init__("\n".join(reason for _, reason in sorted(abort.reasons.items())))


class Driver:
    """Carries out the actions of a machine until it has finished."""

    def __init__(
        self,
        store: RunStore,
        grading: Grading,
        questions: Sequence[Question],
        clock: RunClock,
        *,
        patience: float,
        observer: LiveStatus,
        reporter: Reporter,
    ) -> None:
        """`questions`: by their numbers in the store; `patience`: seconds for which a stop waits for answers.

        `observer` is told of looks, notes and charges once they are on disk."""
        self._reporter = reporter
        self._draft: Draft | None = None
        """The newest report that is to be made with the next commit."""
        self.store, self.grading, self._questions, self._clock = store, grading, questions, clock
        self._patience, self.observer = patience, observer
        self._supplies: Sequence[Supply] = ()
        self._supply_of: Mapping[int, Supply] = {}
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._is_served = True
        """Whether supplies know what models need, as far as it has changed with a commit, with servers or with time.
        They are told once all that has happened is handled: a server is not stopped before what needs it."""
        self._gathered: list[Row] = []
        self._in_flight: Mapping[int, int] = {}
        """Trials in flight by model, as of the newest commit."""
        self._has_sent = False
        """Whether requests were sent since the newest commit."""
        self._writing: asyncio.Task[None] | None = None
        self._gradings: dict[Key, asyncio.Task[None]] = {}
        self._permits = Permits[Key]()
        """For verdicts of which a reply was lost."""
        self._abort: Abort | None = None
        self._failure: BaseException | None = None
        self.stops = 0
        """How often the run was asked to stop."""
        self._written_at = clock.now()
        self._watch = ServerWatch()
        self._ending_since: float | None = None
        self.machine: Machine | None = None

    def use(self, supplies: Mapping[int, Supply]) -> None:
        """Send requests to these supplies, by model."""
        self._supply_of, self._supplies = supplies, list({id(supply): supply for supply in supplies.values()}.values())

    def claims(self, keys: Collection[Key]) -> set[Key]:
        """The trials of earlier starts that a supply still has."""
        return {key for supply in self._supplies for key in supply.claims(keys)}

    async def unreachable(self, models: Sequence[int]) -> dict[int, str]:
        """Models of which no server can be reached, and why; none if it is asked to stop meanwhile."""
        asked = [model for model in models if model in self._supply_of]
        reaching = asyncio.gather(*(self._supply_of[model].unreachable(model) for model in asked))
        while not reaching.done() and not self.stops:
            await asyncio.wait([reaching], timeout=TICK_SECONDS)
        if not reaching.done():
            reaching.cancel()
            await asyncio.gather(reaching, return_exceptions=True)
            return {}
        return {model: why for model, why in zip(asked, reaching.result(), strict=True) if why is not None}

    def tick(self, machine: Machine) -> Tick:
        """The time, for a machine."""
        return Tick(self._clock.elapsed(), self._clock.gpu_seconds(machine))

    def post(self, event: Event) -> None:
        """Give the machine an event, soon."""
        self._events.append(event)
        self._arrived.set()

    def fail(self, error: BaseException) -> None:
        """End the run with an unexpected error."""
        self._failure = self._failure or error
        self._arrived.set()

    def stop(self) -> None:
        """Ask nothing more, and let what is in flight come back while patience lasts; called again, stop at once."""
        self.stops += 1
        self.post(Stop(at_once=self.stops > 1))

    async def run(self, machine: Machine, first: Sequence[Event]) -> Reason | None:
        """Handle events until the machine has finished; returns why, or None if it was stopped.

        Whatever ends it, all that was graded is committed. Raises what made the run impossible.
        """
        self.machine, self._abort, self._is_served = machine, None, False
        self._events.clear()  # what was asked for meanwhile is in `stops`
        if machine.controller.finished is None:
            self._clock.start()
        for event in (*([Stop(at_once=self.stops > 1)] if self.stops else ()), *first):
            self.post(event)
        with ThreadPoolExecutor(1, thread_name_prefix="store-writer") as thread:
            ticking = asyncio.create_task(self._tick())
            try:
                return await self._until_finished(machine, thread)
            finally:
                ticking.cancel()
                await self._end(machine, thread)

    async def _until_finished(self, machine: Machine, thread: ThreadPoolExecutor) -> Reason | None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._events:
                finished = self._carry_out(machine, self._events.popleft())
                if finished is not None:
                    return finished.reason
            if not self._is_served:
                self._serve()
            if self._failure is not None:
                raise self._failure
            if self._abort is not None and machine.is_quiet and not self._gathered:
                raise Aborted(self._abort)
            is_due = self._gathered or self._has_sent or self._clock.now() - self._written_at >= BEAT_SECONDS
            if is_due and self._writing is None:
                self._writing = asyncio.create_task(self._write(machine, thread))

    def _carry_out(self, machine: Machine, event: Event) -> Finish | None:
        """Carry out what follows from an event; returns the end of the run, if that is it."""
        asked: Request | None = None
        match event:
            case Answered() | Failed():
                if event.request in machine.requests:
                    asked, _ = machine.requests[event.request]
                    self._watch.answers[asked.model] += type(event) is Answered
            case Committed(rows):
                self.tell(rows)
                self._is_served = False
            case Capacity() | Tick():
                self._is_served = False
            case Noted(note):
                self._clock.on_note(note)
        finished = None
        for action in machine.handle(event, self._clock.now()):
            match action:
                case Write(rows):
                    self._gathered += rows
                case Send(request, claimed):
                    self._has_sent = True
                    self._clock.on_sent(request.model)
                    self._supply_of[request.model].submit(request, claimed=claimed)
                case GradeAnswer(trial):
                    self._start_grading(trial, is_asked=False)
                case JudgeAnswer(trial):
                    self._start_grading(trial, is_asked=True)
                case Allow(target, allowed):
                    self._on_allowed(machine, target, allowed)
                case Cancel(requests, gradings):
                    of_models = {number: self._supply_of[machine.requests[number][0].model] for number in requests}
                    for supply in self._supplies:
                        supply.cancel([number for number in requests if of_models[number] is supply])
                    for key in gradings:
                        if (task := self._gradings.get(key)) is not None:
                            task.cancel()
                case Abort(kind):
                    self._abort = action
                    if kind is AbortKind.ALARM:
                        self._wait_at_most(self._patience)
                case MakeReport(is_over):
                    self._draft = self._reporter.draft(machine, is_over=is_over)
                case Finish():
                    finished = action
        if machine.has_stopped_clock:
            self._clock.stop()
        if asked is not None and not machine.in_flight[asked.model]:
            self._clock.on_quiet(asked.model)
        if isinstance(event, Stop) and not event.at_once and self.stops == 1:
            self._wait_at_most(self._patience)
            for supply in self._supplies:
                supply.leave()
        return finished

    def _wait_at_most(self, seconds: float) -> None:
        """Cancel what is still in flight then."""
        asyncio.get_running_loop().call_later(seconds, self.post, Stop(at_once=True))

    def _on_allowed(self, machine: Machine, target: int | Key, allowed: bool) -> None:
        if not isinstance(target, int):
            self._permits.give(target, allowed)
        elif target in machine.requests:  # else it has ended meanwhile
            self._supply_of[machine.requests[target][0].model].allow(target, allowed)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _write(self, machine: Machine, thread: ThreadPoolExecutor) -> None:
        """Write what has been gathered, and post that it is on disk."""
        try:
            if any(machine.in_flight.values()):
                await asyncio.sleep(GATHER_SECONDS)
            rows, self._gathered, self._has_sent = self._gathered, [], False
            self._written_at = self._clock.now()
            draft, self._draft = self._draft, None
            if not machine.is_regrading:
                self._in_flight = machine.in_flight_without_rows
            commit = partial(
                self._commit,
                rows,
                draft,
                elapsed=self._clock.elapsed(),
                held=self._clock.held(),
                in_flight=None if machine.is_regrading else self._in_flight,
            )
            written = await asyncio.get_running_loop().run_in_executor(thread, commit)
        except BaseException as error:  # whatever it is, nothing can be written any more
            self.fail(error)
        else:
            self._writing = None
            if not machine.is_regrading:  # the commit may end the run, and what servers were noticed for comes first
                self._watch_servers(machine)
            self.post(Committed(written))

    def _commit(self, rows: Sequence[Row], draft: Draft | None, **state: Any) -> list[Row]:
        """Write rows and a report, in the thread that writes."""
        written = self.store.commit(rows, report=draft, **state)
        if draft is not None:
            draft.publish(self.store)
        return written

    def append(self, *records: Record) -> None:
        """Write records at once, between two machines, and tell of them."""
        self.tell(self.store.append(*records))

    def tell(self, rows: Sequence[Row]) -> None:
        """Tell supplies and the observer of rows that are on disk."""
        stored: dict[int, list[Key]] = {}
        for _, record in rows:
            if isinstance(record, Trial):
                if record.state in ANSWERED:
                    stored.setdefault(record.model, []).append(record.key)
            elif isinstance(record, Note):
                self._on_noted(record)
            elif isinstance(record, LookTaken):
                self.observer.on_look(record)
            elif isinstance(record, Charge):
                self.observer.on_charge(record)
        for model, keys in stored.items():
            if (supply := self._supply_of.get(model)) is not None:
                supply.on_stored(keys)

    def _on_noted(self, note: Note) -> None:
        self.observer.on_note(note)
        if note.model is not None and (supply := self._supply_of.get(note.model)) is not None:
            supply.on_noted(note)

    async def _end(self, machine: Machine, thread: ThreadPoolExecutor) -> None:
        """Give up what is under way, and commit what came before the end."""
        for task in self._gradings.values():
            task.cancel()
        await asyncio.gather(*self._gradings.values(), return_exceptions=True)
        if not machine.is_regrading:
            self._watch_servers(machine)
            await self.close()
            for event in self._events:  # what supplies still note is stored
                if isinstance(event, Noted):
                    self._carry_out(machine, event)
        if self._writing is not None:
            await self._writing
        has_changed = not machine.is_regrading and self._in_flight != machine.in_flight_without_rows
        if (self._gathered or self._draft is not None or has_changed) and self._failure is None:
            await self._write(machine, thread)
        self._writing = None
        self._events.clear()

    async def close(self) -> None:
        """Give up what supplies have under way."""
        for supply in self._supplies:
            await supply.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.machine is not None:
                self.post(self.tick(self.machine))
                if not self.machine.is_regrading:
                    self._watch_servers(self.machine)

    def _watch_servers(self, machine: Machine) -> None:
        """Post the troubles of servers, and give up requests that only fail once the run is ending."""
        now = self._clock.now()
        stats = {model: partial(supply.stats, model) for model, supply in self._supply_of.items()}
        unavailable = {model for model in stats if machine.is_gone(model)}
        for note in (
            *self._watch.notes(stats, unavailable, now),
            *self._watch.grading_notes(self.grading.notices, self.grading.stats, now),
        ):
            self.post(Noted(note))
        if machine.is_ending:
            self._ending_since = now if self._ending_since is None else self._ending_since
            for model in self._watch.hopeless(stats, now - self._ending_since):
                self.post(Hopeless(model))

    def _serve(self) -> None:
        """Let supplies know what each model needs now."""
        self._is_served = True
        if self.machine is not None and not self.machine.is_regrading:
            demand = demands(self.machine)
            for supply in self._supplies:
                supply.serve(demand)

    # -- grading ---------------------------------------------------------------------------------------------------

    def _start_grading(self, trial: Trial, *, is_asked: bool) -> None:
        """Grade an answer at once if that takes no waiting; else, or if the grader fails, in a task."""
        answer = trial.answer
        if not is_asked and answer is not None and "unanswered" not in answer.signals:
            question = self._questions[trial.question]
            try:
                grade = self.grading.grade_now(answer, question)
            except GraderError:
                grade = None
            if grade is not None:
                self.post(Graded(trial.key, grade.category, GradeDetails(grade.signals, grade.extracted)))
                return
        task = self._gradings[trial.key] = asyncio.create_task(self._grade(trial, is_asked=is_asked))
        task.add_done_callback(partial(self._on_graded, trial.key))

    def _on_graded(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._gradings[key]
        self._permits.forget(key)
        if task.cancelled():
            self.post(GradingCutOff(key))
        elif (error := task.exception()) is not None:  # a bug of this program
            self.fail(error)

    async def _grade(self, trial: Trial, *, is_asked: bool) -> None:
        """Have an answer graded, and post its grade."""
        gate = partial(self._may_repeat, trial) if is_asked and trial.verdict != NO_COST else None
        self.post(await grade_answer(self.grading, trial, self._questions[trial.question], gate))

    async def _may_repeat(self, trial: Trial) -> bool:
        """Whether a judge may be asked again after a lost reply."""
        permit = self._permits.ask(trial.key)
        self.post(VerdictWasted(trial.key, self.grading.lost_vote(trial.verdict)))
        return await permit


def demands(machine: Machine) -> dict[int, Demand]:
    """Demand of each model on its servers."""
    return {
        model: Demand(
            machine.waiting(model),
            machine.in_flight[model],
            machine.is_owed(model),
            machine.is_settled(model),
            machine.is_parked(model),
        )
        for model in machine.setting.roster
    }
