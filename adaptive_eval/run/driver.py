"""The asyncio of a run: it carries out the machine's actions, and posts what happens as events. It decides nothing.

One thread writes. All rows that come while it is writing are one commit, and while answers are expected a commit waits
a moment for more: at 3,000 trials a second that makes some 60 of them one commit, at 0.1 to 0.2 ms of CPU each.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from adaptive_eval.base.errors import (
    AdaptiveEvalError,
    ConfigError,
    GraderError,
    GraderExhausted,
    JudgeFailed,
    Rejected,
    Unavailable,
)
from adaptive_eval.core.types import NO_COST, Cost, Reason
from adaptive_eval.graders.pool import Grading
from adaptive_eval.questions.types import Question
from adaptive_eval.run.events import (
    Abort,
    AbortKind,
    Action,
    Allow,
    Cancel,
    Committed,
    Event,
    Finish,
    GradeAnswer,
    Graded,
    GradingCutOff,
    JudgeAnswer,
    Opened,
    Send,
    Stop,
    Tick,
    VerdictWasted,
    Write,
)
from adaptive_eval.run.machine import Machine
from adaptive_eval.run.records import FINISHED, STOPPED, LookTaken, Note, Row
from adaptive_eval.run.supply import Demand, Supply
from adaptive_eval.run.trial import ANSWERED, GradeDetails, Key, Trial

GATHER_SECONDS = 0.02
TICK_SECONDS = 0.5
GRADING_ATTEMPTS = 3
"""After this many errors on one answer the grader is not tried again on it in this start."""


class ReportDraft(Protocol):
    """What was decided at one moment, from which a report is made by the thread that writes."""

    def __call__(self, log: Any) -> Any:
        """Make the report to be stored; `log` reads all that is written."""

    def publish(self, log: Any) -> None:
        """Called when the report is stored."""


class DraftMaker(Protocol):
    """Makes the reports of a run."""

    def draft(self, machine: Machine, *, is_over: bool) -> ReportDraft | None:
        """Copy what the machine has decided; None before the first look. `is_over`: this start has ended."""


class Log(Protocol):
    """Where rows are written."""

    def commit(
        self,
        rows: Sequence[Row],
        *,
        elapsed: float | None = None,
        held: Mapping[str, Any] | None = None,
        report: ReportDraft | None = None,
    ) -> list[Row]:
        """Write rows, all or none, with a report of all; returns them as they were written."""


class Clock(Protocol):
    """The clocks of a run."""

    def now(self) -> float:
        """Seconds of a clock that goes on."""

    def elapsed(self) -> float:
        """Seconds that the run was active, over all its starts."""

    def held(self) -> float:
        """GPU seconds for which servers were held."""


class Observer(Protocol):
    """Whoever is told of looks and notes when they are on disk; may not take long."""

    def on_look(self, look: LookTaken) -> None:
        """Called for each look."""

    def on_note(self, note: Note) -> None:
        """Called for each note."""


class Driver:
    """Carries out the actions of a machine until it has finished."""

    def __init__(
        self,
        log: Log,
        grading: Grading,
        questions: Sequence[Question],
        clock: Clock,
        *,
        patience: float = 0.0,
        observer: Observer | None = None,
        reporter: DraftMaker | None = None,
    ) -> None:
        """`questions`: by their numbers in the store; `patience`: seconds for which a stop waits for answers."""
        self._reporter = reporter
        self._draft: ReportDraft | None = None
        """The newest report that is to be made with the next commit."""
        self._log, self._grading, self._questions, self._clock = log, grading, questions, clock
        self._patience, self._observer = patience, observer
        self._supplies: Sequence[Supply] = ()
        self._supply_of: Mapping[int, Supply] = {}
        self._sent: dict[int, Supply] = {}
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._gathered: list[Row] = []
        self._writing: asyncio.Task[None] | None = None
        self._gradings: dict[Key, asyncio.Task[None]] = {}
        self._hesitating: dict[Key, asyncio.Future[bool]] = {}
        """Verdicts that wait for permission to be asked for again."""
        self._abort: Abort | None = None
        self._failure: BaseException | None = None
        self.stops = 0
        """How often the run was asked to stop."""
        self.machine: Machine | None = None

    def use(self, supplies: Mapping[int, Supply]) -> None:
        """Send requests to these supplies, by model."""
        self._supply_of, self._supplies = supplies, list({id(one): one for one in supplies.values()}.values())

    def claims(self, keys: Collection[Key]) -> set[Key]:
        """The trials of earlier starts that a supply still has."""
        return {key for supply in self._supplies for key in supply.claims(keys)}

    def clock_times(self) -> tuple[float, float]:
        """Seconds that the run was active, and GPU seconds for which servers were held."""
        return self._clock.elapsed(), self._clock.held()

    def post(self, event: Event) -> None:
        """Give the machine an event, soon."""
        self._events.append(event)
        self._arrived.set()

    def fail(self, error: BaseException) -> None:
        """End the run by an error that nobody has foreseen."""
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
        self.machine, self._abort = machine, None
        self._events.clear()  # what was asked for meanwhile is in `stops`
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
            if self._failure is not None:
                raise self._failure
            if self._abort is not None and machine.is_quiet and not self._gathered:
                raise _error_of(self._abort)
            if self._gathered and self._writing is None:
                self._writing = asyncio.create_task(self._write(machine, thread))

    def _carry_out(self, machine: Machine, event: Event) -> Finish | None:
        """Carry out what follows from an event; returns the end of the run, if that is it."""
        if isinstance(event, Committed):
            self._on_committed(event)
        finished = None
        actions = machine.handle(event, self._clock.now())
        if self._reporter is not None and not machine.is_regrading:
            self._draft_report(self._reporter, machine, event, actions)
        for action in actions:
            match action:
                case Write(rows):
                    self._gathered += rows
                case Send(request, claimed):
                    supply = self._sent[request.id] = self._supply_of[request.model]
                    supply.submit(request, claimed=claimed)
                case GradeAnswer(trial):
                    self._start_grading(trial, is_asked=False)
                case JudgeAnswer(trial):
                    self._start_grading(trial, is_asked=True)
                case Allow(target, allowed):
                    self._on_allowed(target, allowed)
                case Cancel(requests, gradings):
                    for supply in self._supplies:
                        supply.cancel([number for number in requests if self._sent.get(number) is supply])
                    for key in gradings:
                        if (task := self._gradings.get(key)) is not None:
                            task.cancel()
                case Abort():
                    self._abort = action
                case Finish():
                    finished = action
        if isinstance(event, Stop) and not event.at_once and self.stops == 1:
            asyncio.get_running_loop().call_later(self._patience, self._lose_patience)
        return finished

    def _draft_report(self, reporter: DraftMaker, machine: Machine, event: Event, actions: Sequence[Action]) -> None:
        """Have a report made with the rows of a look, and when a start begins or ends."""
        records = [record for action in actions if isinstance(action, Write) for _, record in action.rows]
        is_over = any(isinstance(record, Note) and record.kind in (FINISHED, STOPPED) for record in records)
        if is_over or isinstance(event, Opened) or any(isinstance(record, LookTaken) for record in records):
            self._draft = reporter.draft(machine, is_over=is_over)

    def _lose_patience(self) -> None:
        if self.stops == 1:
            self.stop()

    def _on_allowed(self, target: int | Key, allowed: bool) -> None:
        if isinstance(target, int):
            if (supply := self._sent.get(target)) is not None:
                supply.allow(target, allowed)
        elif (waiting := self._hesitating.pop(target, None)) is not None and not waiting.done():
            waiting.set_result(allowed)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _write(self, machine: Machine, thread: ThreadPoolExecutor) -> None:
        """Write what has been gathered, and post that it is on disk."""
        try:
            if any(machine.in_flight.values()):
                await asyncio.sleep(GATHER_SECONDS)
            rows, self._gathered = self._gathered, []
            draft, self._draft = self._draft, None
            commit = partial(self._commit, rows, draft, self._clock.elapsed())
            written = await asyncio.get_running_loop().run_in_executor(thread, commit)
        except Exception as error:  # nothing can be written any more
            self.fail(error)
        else:
            self._writing = None
            self.post(Committed(written))

    def _commit(self, rows: Sequence[Row], draft: ReportDraft | None, elapsed: float) -> list[Row]:
        """Write rows and a report, in the thread that writes."""
        if draft is None:
            return self._log.commit(rows, elapsed=elapsed)
        written = self._log.commit(rows, elapsed=elapsed, report=draft)
        draft.publish(self._log)
        return written

    def _on_committed(self, event: Committed) -> None:
        stored: dict[int, list[Key]] = {}
        for _, record in event.rows:
            if isinstance(record, Trial):
                if record.state in ANSWERED:
                    stored.setdefault(record.model, []).append(record.key)
            elif self._observer is not None and isinstance(record, LookTaken):
                self._observer.on_look(record)
            elif self._observer is not None and isinstance(record, Note):
                self._observer.on_note(record)
        for model, keys in stored.items():
            if (supply := self._supply_of.get(model)) is not None:
                supply.on_stored(keys)

    async def _end(self, machine: Machine, thread: ThreadPoolExecutor) -> None:
        """Give up what is under way, and commit what came before the end."""
        for task in self._gradings.values():
            task.cancel()
        await asyncio.gather(*self._gradings.values(), return_exceptions=True)
        if self._writing is not None:
            await self._writing
        if self._gathered and self._failure is None:
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
            self.post(Tick(*self.clock_times()))
            if self.machine is not None:
                demand = demands(self.machine)
                for supply in self._supplies:
                    supply.serve(demand)

    # -- grading ---------------------------------------------------------------------------------------------------

    def _start_grading(self, trial: Trial, *, is_asked: bool) -> None:
        """Grade an answer at once if that takes no waiting; else, or if the grader fails, in a task."""
        answer = trial.answer
        if not is_asked and answer is not None and "unanswered" not in answer.signals:
            question = self._questions[trial.question].for_trial(trial.number)
            with suppress(GraderError):
                if (grade := self._grading.grade_now(answer, question)) is not None:
                    self.post(Graded(trial.key, grade.category, GradeDetails(grade.signals, grade.extracted)))
                    return
        task = self._gradings[trial.key] = asyncio.create_task(self._grade(trial, is_asked=is_asked))
        task.add_done_callback(partial(self._on_graded, trial.key))

    def _on_graded(self, key: Key, task: asyncio.Task[None]) -> None:
        del self._gradings[key]
        if task.cancelled():
            self.post(GradingCutOff(key))
        elif (error := task.exception()) is not None:  # a bug of this program
            self.fail(error)

    async def _grade(self, trial: Trial, *, is_asked: bool) -> None:
        """Have an answer graded; a failure of the grader says nothing about the answer."""
        answer, question = trial.answer, self._questions[trial.question].for_trial(trial.number)
        assert answer is not None
        if "unanswered" in answer.signals:
            why = f"its server fails this request every time, and answers others: {answer.finish_reason}"
            self.post(Graded(trial.key, None, GradeDetails(error=why)))
            return
        again: Callable[[], Awaitable[bool]] | None = None
        if is_asked and trial.verdict != NO_COST:
            again = partial(self._may_repeat, trial)
        cost = NO_COST
        for _ in range(GRADING_ATTEMPTS):
            try:
                grade = await self._grading.grade(answer, question, again)
            except GraderError as error:
                last = error
                if isinstance(error, JudgeFailed) and isinstance(error.cost, Cost):
                    cost = cost.plus(error.cost)
                if isinstance(error, GraderExhausted):
                    break
            else:
                details = GradeDetails(grade.signals, grade.extracted)
                self.post(Graded(trial.key, grade.category, details, cost.plus(grade.cost)))
                return
        self.post(Graded(trial.key, None, GradeDetails(error=str(last)), cost, has_failed=True))

    async def _may_repeat(self, trial: Trial) -> bool:
        """Whether a judge may be asked again after a lost reply."""
        waiting: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._hesitating[trial.key] = waiting
        self.post(VerdictWasted(trial.key, self._grading.lost_vote(trial.verdict)))
        return await waiting


def demands(machine: Machine) -> dict[int, Demand]:
    """What each model needs of its servers."""
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


def _error_of(abort: Abort) -> AdaptiveEvalError:
    """The error of a run that cannot go on."""
    reasons = "\n".join(reason for _, reason in sorted(abort.reasons.items()))
    kinds: Mapping[AbortKind, type[AdaptiveEvalError]] = {
        AbortKind.REFUSED: Rejected,
        AbortKind.UNSERVABLE: Unavailable,
        AbortKind.VERDICT_COST: Unavailable,
        AbortKind.GRADER: ConfigError,
    }
    return kinds[abort.kind](reasons)
