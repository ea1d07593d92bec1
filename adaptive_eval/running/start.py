"""One start of a run: from the configuration to the end of its machine.

Nothing is decided here: it opens the store, the graders and the supplies, brings the machine to the end of the log, and
tells the display, the store and `notify` how the run ends.
"""

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from adaptive_eval import __version__
from adaptive_eval.base.errors import (
    NEW_RUN,
    AdaptiveEvalError,
    Alarmed,
    ConfigError,
    ExitCode,
    LaunchFailed,
    Rejected,
    RunChanged,
    StoreError,
    Unavailable,
    error_exit_code,
)
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.config.planning import longest_prompts, trial_cost
from adaptive_eval.config.prepare import PreparedRun, stored_questions
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.core.types import NO_COST, Cost, Reason
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.pool import Grading
from adaptive_eval.machine.alarms import StopOn
from adaptive_eval.machine.clocks import ClockedModel, HeldTime, RunClock, at_least_elapsed
from adaptive_eval.machine.events import AbortKind, Setting
from adaptive_eval.machine.follow_up import FIRST_ANSWERS
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.trial import Key
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.notes import AlarmRaised, events_of_kind
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.notes.event import Event
from adaptive_eval.notes.lives import RunResumed, RunStopped
from adaptive_eval.report.build import build_unjudged
from adaptive_eval.report.dry_run import matching_dry_run
from adaptive_eval.report.ending import Ended, build_ended, find_ending, is_asking_again
from adaptive_eval.report.label_effect import LabelSource
from adaptive_eval.report.make import Reporter
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import write_results
from adaptive_eval.report.snapshot import run_subject
from adaptive_eval.running.answer_keys import check_keys, open_run_graders
from adaptive_eval.running.baseline import take_baseline
from adaptive_eval.running.beginning import StartingPoint, load_starting_point
from adaptive_eval.running.driver import Aborted, Driver
from adaptive_eval.running.imported_grades import adopt_grader, require_agreement
from adaptive_eval.running.interrupts import Interrupts, StopSource
from adaptive_eval.running.live_status import LiveStatus
from adaptive_eval.running.notify import end_line, error_line, notify_end
from adaptive_eval.running.resume import alarms_without_discard, begin, models_without_answers
from adaptive_eval.running.settings_of_run import awaited_models, setting_of_today, stages_of_run
from adaptive_eval.running.simulator import with_simulator
from adaptive_eval.running.watching import Display
from adaptive_eval.store.errors import name_run
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.read import LogReader
from adaptive_eval.store.write import RunStore
from adaptive_eval.supplies.opening import (
    Models,
    OpenRemote,
    RunServers,
    SuppliedModel,
    SupplyContext,
    open_supplies,
    within_open_files,
)

OTHER_MODELS = "\nTo test all models, add --dry-run to the command."
"""Ends an error about some models when not all others have answered yet."""
NO_GRADES = (
    "none of the first {} answers could be graded, so no more are requested: {}\n"
    "Every answer is stored. Fix the grader or its server; the same command then grades these answers first."
)


async def execute(
    prepared: PreparedRun,
    directory: Path,
    display: Display,
    stops: StopSource | None = None,
    sites: OpenRemote | None = None,
    *,
    ask_again: bool = False,
) -> ExitCode:
    """Begin or resume the run in `directory`, and carry it on until it is finished or stopped.

    `display` shows how it ended while the servers that it has started are being stopped, which may take a while. The
    default of `stops` is Ctrl-C, SIGTERM and a closed terminal; that of `sites`, servers on this machine. With
    `ask_again`, answers that an alarm is about are discarded and asked again, and so are failed requests.

    Raises `ConfigError` if the run does not fit what it begins with, or its grader not the answer keys, `StoreError` if
    the directory cannot be used or written, and `Rejected` if a model refuses its first request; whatever was committed
    by then is intact, and what was raised is stored beside it.
    """
    redactor = run_redactor(prepared.config)
    start = _Start(display, sites, redactor, ask_again=ask_again)
    try:
        with name_run(directory):
            return await start.run(prepared, directory, stops)
    except Exception as error:
        redactor.error(error)
        start.last_line = error_line(prepared.config.name, error)
        raise
    finally:
        if start.last_line is not None:
            await asyncio.to_thread(notify_end, prepared.config, start.last_line)


class _Start:
    """One start of a run."""

    def __init__(
        self,
        display: Display,
        sites: OpenRemote | None,
        redactor: Redactor,
        *,
        ask_again: bool,
    ) -> None:
        self._display, self._sites, self._redactor = display, sites, redactor
        self._ask_again = ask_again
        self._is_over = False
        """Whether only servers are still to end."""
        self.last_line: str | None = None
        """The line for `notify`, once the run has ended."""

    async def run(self, prepared: PreparedRun, directory: Path, stops: StopSource | None) -> ExitCode:
        """Begin or resume the run in `directory`."""
        if self._ask_again:
            _require_answers_to_repeat(directory, prepared.config.stopping.on_alarm)
        agreement = await require_agreement(prepared, directory)
        beginning = load_starting_point(prepared, directory, grader_chosen=agreement is not None)
        if agreement is not None:
            adopt_grader(prepared, directory, agreement)
        if not beginning.trials:
            await check_keys(beginning.prepared)
        with _opened_store(beginning, directory, self._redactor) as store, stops or Interrupts() as interrupts:
            return (await self._carry_on(beginning.prepared, store, interrupts)).exit_code

    async def _carry_on(self, prepared: PreparedRun, store: RunStore, interrupts: StopSource) -> Ended:
        """Request what a run lacks, to its end."""
        reader = RunReader(store.reader)
        async with AsyncExitStack() as stack:
            beside = RunReader.open(store.directory)  # the other one is used by the thread that writes
            stack.callback(beside.close)
            config, notices = within_open_files(await with_simulator(prepared.config, stack))
            grading = await stack.enter_async_context(open_run_graders(replace(prepared, config=config)))
            await take_baseline(grading, store, prepared.plan.budget.covers)
            names = [*store.reader.models()]
            setting = setting_of_today(prepared, store.reader.models(), grading)
            clock = _open_clock(config, prepared, setting, store.reader)
            labels = LabelSource(beside, prepared.config, prepared.roster).current
            reporter = Reporter(prepared.config, prepared.questions, store.reader.created, labels)
            status = LiveStatus(prepared.config, names, beside, clock, reporter, self._display)
            patience = max((model.longest_answer for model in config.asked), default=0.0)
            driver = Driver(
                store, grading, prepared.questions, clock, patience=patience, observer=status, reporter=reporter
            )
            context = SupplyContext(
                prepared,
                config,
                store.directory,
                self._redactor,
                notices,
                stack,
                driver.post,
                driver.fail,
                is_capped=prepared.plan.budget.bought,
                events=list(status.events),
                answered=store.reader.answer_times(),
                remote=self._sites,
            )
            models = _supplied_models(config, prepared, setting, grading)
            supplies = open_supplies(context, models)
            driver.use(supplies)
            status.supplies, status.servers = supplies, context.servers
            stack.push_async_callback(driver.close)
            interrupts.listen(partial(self._on_interrupt, driver, context.servers, patience))
            self._display.opened(prepared.config.name, prepared.models, status.take)
            status.show_beginning(store.opened_at)
            try:
                if pending_batches(context.events):
                    await _cancel_left_batches(driver, context, models)
                machine = await self._to_the_end(driver, reader, prepared, setting, status)
            except AdaptiveEvalError:
                with suppress(StoreError):
                    _write_unjudged(store, status, prepared.config)
                raise
            finally:
                self._display.closed()
            return self._end(store, status, None if machine is None else machine.controller.finished, prepared.config)

    async def _to_the_end(
        self,
        driver: Driver,
        reader: RunReader,
        prepared: PreparedRun,
        setting: Setting,
        status: LiveStatus,
    ) -> Machine | None:
        """Bring the machine to the end of the log, and drive it to its end; None if the start was stopped before."""
        reserve = _grade_reserve(driver.grading, prepared)
        stages = stages_of_run(reader, status.events, prepared.config, setting)
        waited = awaited_models(
            status.events, dict(zip(prepared.models, setting.roster, strict=True)), reader.trial_count()
        )
        try:
            machine, first = await begin(
                driver,
                stages,
                lambda trial: reserve(trial.answer, trial.question),
                about=_about_start(prepared, reader.trial_count()),
                waited=waited,
                kept=_kept_trials(
                    status.events, reader.log.reserved(), [model.name for model in prepared.config.asked]
                ),
                ask_again=self._ask_again,
            )
            status.follow(machine)
            if machine is not None:
                await driver.run(machine, first)
        except Aborted as error:
            raise _error_of(error, driver.machine, status) from None
        return machine

    def _end(self, store: RunStore, status: LiveStatus, reason: Reason | None, config: RunConfig) -> Ended:
        """Tell how the run has ended."""
        _write_unjudged(store, status, config)
        ended = build_ended(
            status.events,
            status.reporter.latest,
            status.take(),
            store.directory,
            config,
            servers_up=0 if status.servers.is_hurried else status.servers.up,
        )
        store.close()  # who reads how it ended may go on with the run
        self._is_over = True
        self.last_line = end_line(config.name, ended)
        self._display.ended(ended)
        return ended

    def _on_interrupt(self, driver: Driver, servers: RunServers, patience: float) -> None:
        if self._is_over:
            servers.hurry()
            return
        is_first = driver.stops == 0
        machine = driver.machine
        in_flight = 0  # what a batch service has is left to the next start
        if machine is not None:
            stays = machine.setting.remembers
            in_flight = sum(number for model, number in machine.in_flight.items() if model not in stays)
        driver.stop()
        if is_first:
            self._display.stopping(in_flight, patience)
        else:
            servers.hurry()


def _write_unjudged(store: RunStore, status: LiveStatus, config: RunConfig) -> None:
    """Write results.json if the run has ended before its first look."""
    if RunReader(store.reader).newest_report_seq():
        return
    reader, now = store.reader, status.take()
    subject = run_subject(config, stored_questions(reader.header()), reader.created)
    ending = find_ending(status.events, None, now.used.spent.trials, config)
    write_results(store.directory, build_unjudged(subject, ending, elapsed=now.elapsed, now=time.time()))


def _require_answers_to_repeat(directory: Path, stop_on: StopOn) -> None:
    """Raise `ConfigError` unless an alarm of the run says which answers to discard, requests have no answer, or a start
    that has asked again did not finish."""
    with RunReader.if_begun(directory) as reader:
        if reader is not None and alarms_without_discard([note for _, note in reader.log.notes()], stop_on):
            return
        if reader is not None and models_without_answers(reader.log, reader.log.models().values()):
            return
        if reader is not None and is_asking_again(reader.events()):
            return
    raise ConfigError(
        "--ask-again discards answers that repeat, or since failures of a model's server have changed, and repeats "
        f"requests of models that were set aside, but {directory} has none of these; run it without --ask-again"
    )


@contextmanager
def _opened_store(beginning: StartingPoint, directory: Path, redactor: Redactor) -> Iterator[RunStore]:
    """Open the store of a run with the settings of today; an error that ends the run is noted in it."""
    header = beginning.prepared.header
    store = RunStore.open(directory, header, redactor)
    try:
        if store.is_resumed:
            stored = store.reader.header()
            changes = [*differences(stored.configuration, header.configuration)]
            replaced = {name: header.models[name] for name in stored.models.keys() & header.models.keys()}
            of_models = differences({name: stored.models[name] for name in replaced}, replaced, "models")
            if changes := changes or [*of_models]:
                store.change_settings(header, changes)
        else:
            _begin_with_dry_run(store, header)
        numbers = store.reader.models()
        if beginning.pending_events:
            store.append(*(note_of(event, numbers) for event in beginning.pending_events))
        yield store
    except Exception as error:
        _note_fatal_error(store, error)
        raise
    finally:
        store.close()


def _begin_with_dry_run(store: RunStore, header: RunHeader) -> None:
    """Begin a new run with the answers of its dry run."""
    try:
        folder = matching_dry_run(store.directory, header)
    except RunChanged:  # they are another run's
        return
    if folder is None:
        return
    models, questions = store.reader.models(), store.reader.questions()
    with closing(LogReader.open(folder)) as reader:
        names = {number: name for name, number in reader.models().items()}
        keys = {number: key for key, number in reader.questions().items()}
        trials = [
            trial._replace(model=models[names[trial.model]], question=questions[keys[trial.question]])
            for _, trial in reader.trials()
            if names[trial.model] in models and keys[trial.question] in questions
        ]
    if trials:
        store.append(*trials)
    shutil.rmtree(folder, ignore_errors=True)


def _note_fatal_error(store: RunStore, error: Exception) -> None:
    """Store that this error ended the run, if the store can still be written.

    What is raised on purpose holds no secret and is stored whole, but for where the run lies; of any other error only
    the kind is, since nobody knows what its text holds.
    """
    kind = type(error).__name__
    text = str(error) if isinstance(error, AdaptiveEvalError) else f"an unexpected error ({kind})"
    directory = store.directory  # "." has no name, and says nothing
    reason = text.replace(str(directory), directory.name) if directory.name else text
    with suppress(StoreError):
        store.append(note_of(RunStopped(kind, reason, error_exit_code(error)), {}))


def _kept_trials(events: Sequence[Event], reserved: Collection[Key], models: Collection[str]) -> Collection[Key]:
    """Trials in flight in batches of models that the run does not have now."""
    if not pending_batches(events):
        return ()
    from adaptive_eval.supplies.batches.supply import kept_trials  # as above

    return kept_trials(events, reserved, models)


async def _cancel_left_batches(driver: Driver, context: SupplyContext, models: Models) -> None:
    """Cancel batches that nobody will collect, and note that they are over."""
    from adaptive_eval.supplies.batches.supply import cancel_left  # an extra, which only a run with batches needs

    reader = driver.store.reader
    if ended := await cancel_left(context, models, reader.reserved()):
        driver.append(*(note_of(event, reader.models()) for event in ended))


def _about_start(prepared: PreparedRun, trials: int) -> dict[str, object]:
    """Contents of the note of a start with these stored trials."""
    longest = dict(zip(prepared.models, longest_prompts(prepared.prompts), strict=True))
    begun = RunResumed(
        trials,
        pid=os.getpid(),
        host=socket.gethostname(),
        version=__version__,
        longest_prompts=longest,
        arguments=prepared.arguments,
        overrides=prepared.overrides or None,
    )
    return begun.body()


def _open_clock(config: RunConfig, prepared: PreparedRun, setting: Setting, log: LogReader) -> RunClock:
    """The clocks of a run, going on from earlier starts."""
    worst = prepared.plan.bench.worst_cost
    models = {
        number: ClockedModel(
            model.name,
            model.gpus or 0.0,
            model.shared_addresses,
            is_launched=model.launch is not None,
            is_batched=model.batch is not None,
            request_gpu_seconds=model.concurrency.samples_per_request * worst[at].gpu_seconds,
        )
        for at, (number, model) in enumerate(zip(setting.roster, config.models, strict=True))
        if model.recorded is None
    }
    held = {name: HeldTime(*times) for name, times in log.held().items()}
    return RunClock(models, at_least_elapsed(log.elapsed, log.notes()), held)


def _supplied_models(
    config: RunConfig, prepared: PreparedRun, setting: Setting, grading: Grading
) -> dict[int, SuppliedModel]:
    """The models that are asked, by number."""
    reserve = _grade_reserve(grading, prepared)

    def seed_of(model: int) -> Callable[[int, int], int]:
        return lambda question, number: setting.seed(model, question, number)

    return {
        number: SuppliedModel(
            config.models[at],
            prepared.prompts[at].__getitem__,
            seed_of(number),
            trial_cost(config.models[at]),
            reserve,
        )
        for at, number in enumerate(setting.roster)
        if config.models[at].recorded is None
    }


def _grade_reserve(grading: Grading, prepared: PreparedRun) -> Callable[[Answer | None, int], Cost]:
    """The most that the grade of an answer to a question may cost, if caps count it."""
    is_reserved = prepared.plan.budget.bought and grading.lasting

    def reserve(answer: Answer | None, question: int) -> Cost:
        if not is_reserved or answer is None:
            return NO_COST
        return grading.lost_with(answer.text, prepared.questions[question])

    return reserve


def _error_of(error: Aborted, machine: Machine | None, status: LiveStatus) -> AdaptiveEvalError:
    """The error of a run that cannot go on."""
    kind, reasons, names = error.abort.kind, error.abort.reasons, status.names
    others = "" if machine is not None and machine.all_have_answered else OTHER_MODELS
    lines = [f"{names[model]}: {reason}" for model, reason in sorted(reasons.items())]
    match kind:
        case AbortKind.REFUSED:
            return Rejected("\n".join(lines) + others)
        case AbortKind.UNSERVABLE:
            return LaunchFailed("\n".join(lines) + others)
        case AbortKind.GRADER | AbortKind.GRADER_SERVER:
            text = NO_GRADES.format(FIRST_ANSWERS, "".join(reasons.values()))
            return ConfigError(text) if kind is AbortKind.GRADER else Unavailable(text)
        case AbortKind.VERDICT_COST:
            return Unavailable("\n".join(reasons.values()))
        case AbortKind.ALARM:
            alarms = {(alarm.model, alarm.text): alarm for alarm in events_of_kind(status.events, AlarmRaised)}
            raised = [
                alarms.get((names[model], text), AlarmRaised(names[model], text=text))
                for model, text in reasons.items()
            ]
            return Alarmed(_alarm_text(raised, len(names) if machine is None else len(machine.setting.roster)))


def _alarm_text(raised: Sequence[AlarmRaised], models: int) -> str:
    alike: dict[str, list[AlarmRaised]] = {}
    for alarm in raised:
        alike.setdefault(alarm.text, []).append(alarm)
    repeat = any(alarm.fault == AnswerFault.REPEATED for alarm in raised)
    again = ". For answers that repeat, fix the server and use --ask-again" if repeat else ""
    whose = "no model's answers" if len(raised) == models else "the answers of a model"
    return "\n".join(
        [
            f"{whose} are {'' if len(raised) == models else 'not '}usable",
            *(f"  {', '.join(alarm.model for alarm in group)}: {group[0].description}" for group in alike.values()),
            f"Every answer is stored. If you change the prompt, model or server, {NEW_RUN}{again}. If you change "
            "the grader or answer keys, `adaptive-eval regrade RUN --config CONFIG` grades them again; then resume. "
            "If nothing is wrong, resume with --set stopping.on_alarm=never",
        ]
    )
