"""A run from its first request to its last look.

Meanwhile results.json is kept up to date (`publishing`), and Ctrl-C, SIGTERM and a closed terminal are heard until the
last server has ended (`interrupts`).
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import numpy as np

from adaptive_eval import __version__
from adaptive_eval.config.planning import longest_prompts
from adaptive_eval.config.prepare import PreparedRun, make_lane
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core import Controller, Look
from adaptive_eval.core.account import BudgetAccount
from adaptive_eval.errors import AdaptiveEvalError, Alarmed, ConfigError, ExitCode, StoreError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.record.build import build_unjudged
from adaptive_eval.record.ending import Ended, ended_of, note_fatal_error, why_finished
from adaptive_eval.record.history import fresh_directory, newest_directory, stored_trial_count
from adaptive_eval.record.labels import labels_given, take_labels
from adaptive_eval.record.removed_models import spent_beside, spent_on_removed_models
from adaptive_eval.record.results import BesideRow
from adaptive_eval.record.results_file import write_results
from adaptive_eval.record.snapshot import Beginning, Snapshot, subject_of, take_snapshot
from adaptive_eval.record.starting_point import StartingPoint, load_starting_point
from adaptive_eval.record.status import StatusTaker
from adaptive_eval.record.words import promise_in_short
from adaptive_eval.running.answer_keys import check_keys, grading_of
from adaptive_eval.running.baseline import take_baseline
from adaptive_eval.running.greedy import FOLDER as GREEDY
from adaptive_eval.running.greedy import ask_greedily
from adaptive_eval.running.imported_grades import adopt_grader
from adaptive_eval.running.interrupts import Interrupts, RememberedStops, StopSource
from adaptive_eval.running.no_pauses import short_collections, warm_up
from adaptive_eval.running.notify import notifier_of
from adaptive_eval.running.opponent import FOLDER as OPPONENT
from adaptive_eval.running.opponent import ask_opponent, opponent_begun
from adaptive_eval.running.publishing import Publisher
from adaptive_eval.running.serving import LOGS, ServersElsewhere, Serving, opened_endpoints
from adaptive_eval.running.settled import SettledCommands
from adaptive_eval.running.tracking import tracking_of
from adaptive_eval.running.watching import TwoParts, Watcher, Watchers
from adaptive_eval.scheduler.alarms import Alarms
from adaptive_eval.scheduler.grading import Grading
from adaptive_eval.scheduler.ledger import Ledger
from adaptive_eval.scheduler.opening_fit import OpeningFit
from adaptive_eval.scheduler.scheduler import Scheduler
from adaptive_eval.store import (
    CommitBatch,
    Event,
    GreedyBegun,
    LabelsTaken,
    OpenedStore,
    RunFinished,
    RunResumed,
    RunStarted,
    RunStopped,
    Store,
)
from adaptive_eval.store.postgres.address import LedgerAddress
from adaptive_eval.store.repeats import SamplingFreedom
from adaptive_eval.store.whereabouts import point_to, require_own_ledger, runs_at


def directory_for(config: RunConfig, given: Path | None, fresh: bool) -> Path:
    """Where a run lies: where the user says, else the newest of its name, or with `fresh` one beside it."""
    if given is None:
        section = config.store
        place = section.folder, config.name, runs_at(section.ledger) if section.ledger else []
        return fresh_directory(*place) if fresh else newest_directory(*place)
    if fresh:
        raise ConfigError(
            "fresh (--fresh) chooses a new directory, so it cannot be combined with one that is given (--run-dir); "
            "give only one of the two"
        )
    return given


def place_ledger(config: RunConfig, directory: Path, name: str | None = None) -> None:
    """Have the run in `directory` keep its ledger where the configuration says, under its own name or the given one."""
    if config.store.ledger is None:
        require_own_ledger(directory)
    else:
        point_to(directory, LedgerAddress.of(config.store.ledger), name)


async def execute(
    prepared: PreparedRun,
    directory: Path,
    watcher: Watcher,
    tell: Callable[[Ended], None],
    stops: StopSource | None = None,
    sites: ServersElsewhere | None = None,
) -> ExitCode:
    """Begin or resume the run in `directory`, and carry it on until it is finished or stopped.

    `tell` hears how it ended while the servers that it has started are being stopped, which may take a while. Who gives
    no `stops` has Ctrl-C, SIGTERM and a closed terminal, and who gives no `sites` has servers started on this machine.
    Raises `ConfigError` when the run does not fit what it begins with, or its grader not the answer keys, `StoreError`
    when the directory cannot be used or written, and `Rejected` when a model refuses its first request; whatever was
    committed by then is intact, and what was raised is stored beside it.
    """
    tracking = tracking_of(prepared.config, directory)
    if tracking is None:
        return await _notified(prepared, directory, watcher, tell, stops, sites)
    try:
        return await _notified(prepared, directory, Watchers(watcher, tracking), tell, stops, sites)
    finally:
        await asyncio.to_thread(tracking.close)


async def _notified(
    prepared: PreparedRun,
    directory: Path,
    watcher: Watcher,
    tell: Callable[[Ended], None],
    stops: StopSource | None,
    sites: ServersElsewhere | None,
) -> ExitCode:
    notifier = notifier_of(prepared.config)
    if notifier is None:
        return await _execute(prepared, directory, watcher, tell, stops, sites)

    def told(ended: Ended) -> None:
        notifier.ended(ended)
        tell(ended)

    try:
        return await _execute(prepared, directory, Watchers(watcher, notifier), told, stops, sites)
    except Exception as error:
        notifier.failed(error)
        raise
    finally:
        await asyncio.to_thread(notifier.close)


async def _execute(
    prepared: PreparedRun,
    directory: Path,
    watcher: Watcher,
    tell: Callable[[Ended], None],
    stops: StopSource | None,
    sites: ServersElsewhere | None,
) -> ExitCode:
    place_ledger(prepared.config, directory)
    beginning = load_starting_point(prepared, directory)
    await adopt_grader(beginning.prepared, directory)
    if not stored_trial_count(beginning.prepared, directory):
        await check_keys(beginning.prepared)
    labels = labels_given(beginning.prepared.config, beginning.prepared.rubric)
    with _opened(beginning, directory) as opened, stops or Interrupts() as interrupts:
        if number := take_labels(directory, labels):
            taken = LabelsTaken(number, Path(prepared.config.labels or "").name)
            opened.store.commit(CommitBatch(events=[taken]))
            beginning = beginning._replace(labels=taken)
        if beginning.with_prior is None and not beginning.lacks_opponent:
            return (await _carried_on(beginning, opened, watcher, interrupts, tell, sites)).exit_code
        parts = TwoParts(watcher, prepared.config.name, prepared.models, promise_in_short(prepared.config.stated()))
        try:
            return await _in_two_parts(prepared, beginning, opened, parts, RememberedStops(interrupts), tell, sites)
        finally:
            parts.end()


@contextmanager
def _opened(beginning: StartingPoint, directory: Path) -> Iterator[OpenedStore]:
    """The store of a run, which keeps what ended it."""
    prepared = beginning.prepared
    section = prepared.config.store
    opened = Store.open(directory, prepared.header, section.answers, section.patience)
    try:
        if beginning.news:
            opened.store.commit(CommitBatch(events=beginning.news))
        yield opened
    except Exception as error:
        note_fatal_error(opened.store, error)
        raise
    finally:
        opened.store.close()


async def _carried_on(
    beginning: StartingPoint,
    opened: OpenedStore,
    watcher: Watcher,
    interrupts: StopSource,
    tell: Callable[[Ended], None],
    sites: ServersElsewhere | None,
) -> Ended:
    """Ask for what a run lacks, to its end."""
    prepared, store = beginning.prepared, opened.store
    config, logs = prepared.config, store.directory / LOGS
    if sites is None:
        opening = opened_endpoints(config, logs)
    else:
        opening = opened_endpoints(config, logs, elsewhere=sites.open(prepared, store))
    async with opening as serving:
        grading = grading_of(prepared)
        try:
            bears = BudgetAccount(prepared.plan.budget, prepared.plan.bench.worst_cost).can_afford
            news = [*beginning.news, *await take_baseline(grading, store, bears)]
            session = _Session(prepared, store, serving, grading, watcher)
            ended = await session.carry_on(opened, news, interrupts)
        finally:
            await grading.close()
        store.close()  # who reads how it ended may go on with the run
        tell(ended)
        return ended


async def _in_two_parts(
    prepared: PreparedRun,
    beginning: StartingPoint,
    opened: OpenedStore,
    parts: TwoParts,
    stops: RememberedStops,
    tell: Callable[[Ended], None],
    sites: ServersElsewhere | None,
) -> ExitCode:
    """The same with a first part: greedy answers, which become R0, or those that all others are compared with."""
    store, lacks_opponent = opened.store, beginning.lacks_opponent
    folder = OPPONENT if lacks_opponent else GREEDY
    parts.happened(
        opponent_begun(prepared)
        if lacks_opponent
        else GreedyBegun(len(beginning.prepared.models), len(prepared.questions))
    )
    place_ledger(prepared.config, store.directory / folder, f"{store.name}.{folder}")

    async def ask(part: StartingPoint) -> Ended:
        with _opened(part, store.directory / folder) as first:
            return await _carried_on(part, first, parts, stops, lambda ended: None, sites)

    if lacks_opponent:
        found = await ask_opponent(prepared, beginning, store, ask, lambda: stops.heard)
    else:
        found = await ask_greedily(beginning, store, ask, lambda: stops.heard)
    parts.first_is_over()
    if found.ended is not None or found.beginning is None:
        assert found.ended is not None
        parts.end()
        write_results(store.directory, build_unjudged(_without_a_look(beginning.prepared, store, found.ended)))
        store.close()
        tell(found.ended)
        return found.ended.exit_code
    return (await _carried_on(found.beginning, opened, parts, stops, tell, sites)).exit_code


def _without_a_look(prepared: PreparedRun, store: Store, ended: Ended) -> Beginning:
    """A run that has ended in its first part: none of its own answers was asked for."""
    bench, now = prepared.plan.bench, time.time()
    subject = subject_of(prepared.config, prepared.questions, store.reader.created)
    nothing = np.zeros((bench.models, bench.questions, bench.categories), dtype=np.int64)
    stopped = ended.reason is None
    return Beginning(subject, bench.weights, nothing, store.reader.elapsed, now, stopped, ended.reason, ended.why)


class _Session:
    """One start of a run: the scheduler at work, and those who are told of it."""

    def __init__(
        self,
        prepared: PreparedRun,
        store: Store,
        serving: Serving,
        grading: Grading,
        watcher: Watcher,
    ) -> None:
        self._prepared = prepared
        self._store = store
        self._serving = serving
        self._watcher = watcher
        self._removed = removed = spent_on_removed_models(store.reader, prepared.roster.models, store.reader.events())
        self._controller = Controller(prepared.plan, elsewhere=removed.in_all)
        self._publisher = Publisher(store.directory, self._known)
        endpoints, secrets = serving.endpoints, serving.secrets
        lanes = [make_lane(prepared, number, endpoint, secrets) for number, endpoint in enumerate(endpoints)]
        opening, stop_on = prepared.plan.opening, prepared.config.stop_on_alarm
        drawn = [SamplingFreedom.of(model.sampling) for model in prepared.config.models]
        section = prepared.config.rubric
        goes_by_opening = bool(open_rubric(section).lacks)
        fit = OpeningFit(section, prepared.rubric, prepared.roster, opening) if goes_by_opening else None
        self._alarms = Alarms(prepared.models, prepared.questions, opening, drawn, stop_on)
        self._scheduler = Scheduler(
            self._controller,
            lanes,
            prepared.questions,
            grading,
            store,
            self,
            serving.hosts,
            self._alarms,
            Ledger(lanes) if prepared.plan.budget.bought else None,
            fit,
            removed.gpu_seconds,
        )
        self._subject = subject_of(prepared.config, prepared.questions, store.reader.created)
        self._taker = StatusTaker(
            self._subject,
            self._controller,
            self._scheduler,
            serving.endpoints,
            self._spent_beside,
            lambda: self._events,
        )
        self._events = store.reader.events()
        self._late: list[Event] = []
        """What happened when the scheduler was over, to be committed in the end."""
        self._commands = SettledCommands(prepared.config, self._note)
        self._failed = False

    async def carry_on(self, opened: OpenedStore, news: Sequence[Event], interrupts: StopSource) -> Ended:
        """Run until the end, and write it down."""
        warm_up(self._prepared.plan)
        trials = self._store.reader.trial_count()
        kind = RunResumed if opened.resumed else RunStarted
        longest = dict(zip(self._prepared.models, longest_prompts(self._prepared.prompts), strict=True))
        begun = kind(trials, os.getpid(), socket.gethostname(), __version__, longest)
        try:
            async with self._watched():
                interrupts.hear(self._on_interrupt)
                self._store.commit(CommitBatch(events=[begun]))  # seen by watchers while stored answers are taken up
                self.happened(begun)
                for event in (opened.changed, *news):
                    if event is not None:
                        self._watcher.happened(event)
                self._commands.begin(self._events)
                try:
                    await self._scheduler.run()
                finally:
                    await self._commands.close()
                    if self._late:
                        self._store.commit(CommitBatch(events=self._late))
            if self._alarms.stopped is not None:
                raise Alarmed(self._alarms.stopped)
            return await self._end()
        except AdaptiveEvalError:
            self._failed = True
            with suppress(StoreError):
                await self._publisher.publish()
            raise
        finally:
            self._publisher.close()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """While results are published, and displays are open."""
        publishing = asyncio.create_task(self._publisher.run())
        publishing.add_done_callback(self._on_publisher_end)
        self._watcher.opened(self._subject.name, self._subject.models, self._taker.take)
        try:
            with short_collections():
                yield
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            self._watcher.closed()

    # -- the scheduler's observer -----------------------------------------------------------------------------------

    def looked(self, looks: Sequence[Look]) -> None:
        """Rounds were completed."""
        self._publisher.looked()
        self._watcher.looked(looks)

    def happened(self, event: Event) -> None:
        """Something was recorded."""
        self._events.append(event)
        self._commands.hear(event)
        self._watcher.happened(event)

    # ---------------------------------------------------------------------------------------------------------------

    def _note(self, event: Event) -> None:
        if self._scheduler.over:
            self._late.append(event)
            self.happened(event)
        else:
            self._scheduler.note(event)

    async def _end(self) -> Ended:
        reason = self._controller.finished
        results = await self._publisher.publish()
        event = RunStopped() if reason is None else RunFinished(reason)
        self._store.commit(CommitBatch(events=[event], elapsed=self._scheduler.elapsed()))
        return ended_of(
            self._prepared.config,
            [*self._events, event],
            results,
            self._taker.take(),
            self._store.directory,
            servers_up=0 if self._serving.at_once else sum(host.up for host in self._serving.hosts),
        )

    def _known(self) -> Snapshot | Beginning:
        subject, controller, elapsed, now = self._subject, self._controller, self._scheduler.elapsed(), time.time()
        stopped = self._scheduler.halt is not None or self._failed
        judged = take_snapshot(
            subject,
            controller,
            self._scheduler.usages,
            elapsed=elapsed,
            now=now,
            stopped=stopped,
            events=self._events,
            held=self._scheduler.held(),
            beside=self._spent_beside(),
        )
        reason = controller.finished
        why = None if reason is None else why_finished(reason, asked=bool(controller.arrived.any()), fixed=False)
        weights, arrived = controller.plan.bench.weights, controller.arrived.copy()
        return judged or Beginning(subject, weights, arrived, elapsed, now, stopped, reason, why)

    def _spent_beside(self) -> tuple[BesideRow, ...]:
        counted = self._scheduler.servers().counted
        return spent_beside(self._removed, self._prepared.roster.models, counted, self._events)

    def _on_publisher_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._scheduler.abort(error)

    def _on_interrupt(self) -> None:
        first = self._scheduler.halt is None and not self._scheduler.over
        self._scheduler.stop()
        if first:
            self._watcher.stopping(sum(self._scheduler.in_flight))
        else:
            self._serving.hurry()
