"""A run from its first request to its last look.

Meanwhile results.json is kept up to date (`publishing`), and Ctrl-C, SIGTERM and a closed terminal are heard until the
last server has ended (`interrupts`).
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.account import BudgetAccount
from adaptive_eval.errors import ConfigError, ExitCode
from adaptive_eval.record.build import build_unjudged
from adaptive_eval.record.ending import Ended, note_fatal_error
from adaptive_eval.record.history import stored_trial_count
from adaptive_eval.record.labels import labels_given, take_labels
from adaptive_eval.record.results import Unjudged
from adaptive_eval.record.results_file import write_results
from adaptive_eval.record.snapshot import subject_of
from adaptive_eval.record.starting_point import StartingPoint, load_starting_point
from adaptive_eval.record.words import promise_in_short
from adaptive_eval.running.answer_keys import check_keys, grading_of
from adaptive_eval.running.baseline import take_baseline
from adaptive_eval.running.greedy import FOLDER as GREEDY
from adaptive_eval.running.greedy import ask_greedily
from adaptive_eval.running.imported_grades import adopt_grader
from adaptive_eval.running.interrupts import Interrupts, RememberedStops, StopSource
from adaptive_eval.running.notify import notifier_of
from adaptive_eval.running.opponent import FOLDER as OPPONENT
from adaptive_eval.running.opponent import ask_opponent, opponent_begun
from adaptive_eval.running.serving import LOGS, RemoteServers, opened_endpoints
from adaptive_eval.running.session import Session
from adaptive_eval.running.tracking import tracking_of
from adaptive_eval.running.watching import TwoPartWatcher, Watcher, Watchers
from adaptive_eval.store import (
    CommitBatch,
    GreedyBegun,
    LabelsTaken,
    OpenedStore,
    Store,
)
from adaptive_eval.store.address import LedgerAddress
from adaptive_eval.store.whereabouts import fresh_directory, newest_directory, point_to, require_own_ledger, runs_at


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
    sites: RemoteServers | None = None,
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
    sites: RemoteServers | None,
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
    sites: RemoteServers | None,
) -> ExitCode:
    place_ledger(prepared.config, directory)
    beginning = load_starting_point(prepared, directory)
    await adopt_grader(beginning.prepared, directory)
    if not stored_trial_count(beginning.prepared, directory):
        await check_keys(beginning.prepared)
    labels = labels_given(beginning.prepared.config, beginning.prepared.rubric)
    with _opened(beginning, directory) as opened, stops or Interrupts() as interrupts:
        if number := take_labels(directory, labels):
            taken = LabelsTaken(number, Path(prepared.config.report.labels or "").name)
            opened.store.commit(CommitBatch(events=[taken]))
            beginning = beginning._replace(labels=taken)
        if beginning.with_prior is None and not beginning.lacks_opponent:
            return (await _carried_on(beginning, opened, watcher, interrupts, tell, sites)).exit_code
        parts = TwoPartWatcher(
            watcher, prepared.config.name, prepared.models, promise_in_short(prepared.config.stated())
        )
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
    sites: RemoteServers | None,
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
            session = Session(prepared, store, serving, grading, watcher)
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
    parts: TwoPartWatcher,
    stops: RememberedStops,
    tell: Callable[[Ended], None],
    sites: RemoteServers | None,
) -> ExitCode:
    """Carry out a run that has a first part: greedy answers, which become R0, or those that all others are compared
    with."""
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
        write_results(store.directory, _without_a_look(beginning.prepared, store, found.ended))
        store.close()
        tell(found.ended)
        return found.ended.exit_code
    return (await _carried_on(found.beginning, opened, parts, stops, tell, sites)).exit_code


def _without_a_look(prepared: PreparedRun, store: Store, ended: Ended) -> Unjudged:
    """A run that has ended in its first part: none of its own answers was asked for."""
    bench, now = prepared.plan.bench, time.time()
    subject = subject_of(prepared.config, prepared.questions, store.reader.created)
    nothing = np.zeros((bench.models, bench.questions, bench.categories), dtype=np.int64)
    stopped, elapsed = ended.reason is None, store.reader.elapsed
    return build_unjudged(
        subject, bench.weights, nothing, elapsed=elapsed, now=now, stopped=stopped, reason=ended.reason, why=ended.why
    )
