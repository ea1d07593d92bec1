"""A run from its first request to its last look.

Meanwhile results.json is kept up to date (`session`), and Ctrl-C, SIGTERM and a closed terminal are heard until the
last server has ended (`interrupts`).
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adaptive_eval.base.errors import ConfigError, ExitCode, RunChanged
from adaptive_eval.config.planning import core_caps
from adaptive_eval.config.prepare import PreparedRun, stored_config
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.core.account import BudgetAccount
from adaptive_eval.core.types import NO_COST
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.report.dry_run import dry_run_folder, dry_run_trials
from adaptive_eval.report.ending import Ended, note_fatal_error
from adaptive_eval.report.old.history import stored_trial_count
from adaptive_eval.report.old.starting_point import StartingPoint, load_starting_point
from adaptive_eval.running.answer_keys import check_keys, open_run_graders
from adaptive_eval.running.baseline import take_baseline
from adaptive_eval.running.imported_grades import adopt_grader
from adaptive_eval.running.interrupts import Interrupts, StopSource
from adaptive_eval.running.launched import LOGS, RemoteServers
from adaptive_eval.running.notify import end_line, error_line, notify_end
from adaptive_eval.running.serving import opened_endpoints
from adaptive_eval.running.session import Session
from adaptive_eval.running.watching import Watcher
from adaptive_eval.scheduler.repair import alarms_to_ask_again
from adaptive_eval.store import CommitBatch, OpenedStore, RunHeader, RunReader, Store, require_same_meaning
from adaptive_eval.store.locate import fresh_directory, newest_directory
from adaptive_eval.store.spending import total_spent


def run_directory(prepared: PreparedRun, given: Path | None, fresh: bool) -> Path:
    """The directory of a run: the given one, else the newest of its name; a new one beside it with `fresh`, or if that
    run was begun with other settings and has bought nothing, since a first try that failed keeps nobody from a second.
    """
    if given is None:
        place = prepared.config.store, prepared.config.name
        newest = newest_directory(*place)
        return fresh_directory(*place) if fresh or _is_empty_and_differs(newest, prepared.header) else newest
    if fresh:
        raise ConfigError(
            "fresh (--fresh) chooses a new directory, so it cannot be combined with one that is given (--run-dir); "
            "give only one of the two"
        )
    return given


def _is_empty_and_differs(directory: Path, header: RunHeader) -> bool:
    with RunReader.if_begun(directory) as reader:
        if reader is None or reader.trial_count() or total_spent(reader) != NO_COST:
            return False
        if reader.in_flight() and core_caps(stored_config(reader.header()).budget).bought:  # caps count these
            return False
        try:
            require_same_meaning(reader.header(), header, directory)
        except RunChanged:
            return True
    return False


async def execute(
    prepared: PreparedRun,
    directory: Path,
    watcher: Watcher,
    tell: Callable[[Ended], None],
    stops: StopSource | None = None,
    sites: RemoteServers | None = None,
    *,
    ask_again: bool = False,
) -> ExitCode:
    """Begin or resume the run in `directory`, and carry it on until it is finished or stopped.

    `tell` hears how it ended while the servers that it has started are being stopped, which may take a while. Who gives
    no `stops` has Ctrl-C, SIGTERM and a closed terminal, and who gives no `sites` has servers started on this machine.
    With `ask_again`, answers since an alarm about their model are discarded and asked again.
    Raises `ConfigError` when the run does not fit what it begins with, or its grader not the answer keys, `StoreError`
    when the directory cannot be used or written, and `Rejected` when a model refuses its first request; whatever was
    committed by then is intact, and what was raised is stored beside it.
    """
    lines: list[str] = []
    """The line for `notify`, once the run has ended."""

    def tell_and_note(ended: Ended) -> None:
        lines.append(end_line(prepared.config.name, ended))
        tell(ended)

    redactor = run_redactor(prepared.config)
    try:
        execution = _Execution(prepared, watcher, tell_and_note, sites, redactor, ask_again=ask_again)
        return await execution.run(directory, stops)
    except Exception as error:
        redactor.error(error)
        lines.append(error_line(prepared.config.name, error))
        raise
    finally:
        for line in lines[-1:]:
            await asyncio.to_thread(notify_end, prepared.config, line)


class _Execution:
    """One start of a run."""

    def __init__(
        self,
        prepared: PreparedRun,
        watcher: Watcher,
        tell: Callable[[Ended], None],
        sites: RemoteServers | None,
        redactor: Redactor,
        *,
        ask_again: bool,
    ) -> None:
        self._ask_again = ask_again
        self._prepared, self._watcher, self._tell, self._sites = prepared, watcher, tell, sites
        self._redactor = redactor

    async def run(self, directory: Path, stops: StopSource | None) -> ExitCode:
        """Begin or resume the run in `directory`."""
        if self._ask_again:
            _require_alarm(directory)
        beginning = load_starting_point(self._prepared, directory)
        await adopt_grader(beginning.prepared, directory)
        if not stored_trial_count(beginning.prepared, directory):
            await check_keys(beginning.prepared)
        with _opened_store(beginning, directory, self._redactor) as opened, stops or Interrupts() as interrupts:
            _begin_with_dry_run(opened, beginning, directory)
            return (await self._carry_on(beginning, opened, interrupts)).exit_code

    async def _carry_on(self, beginning: StartingPoint, opened: OpenedStore, interrupts: StopSource) -> Ended:
        """Request what a run lacks, to its end."""
        prepared, store = beginning.prepared, opened.store
        elsewhere = None if self._sites is None else self._sites.open(prepared, store)
        answered = {sums.model for sums in store.reader.sums()}
        opening = opened_endpoints(
            prepared.config,
            store.directory / LOGS,
            redactor=self._redactor,
            elsewhere=elsewhere,
            answered=answered,
        )
        async with opening as serving:
            async with open_run_graders(prepared) as grading:
                bears = BudgetAccount(prepared.plan.budget, prepared.plan.bench.worst_cost).can_afford
                news = [*beginning.pending_events, *await take_baseline(grading, store, bears)]
                session = Session(prepared, store, serving, grading, self._watcher, ask_again=self._ask_again)
                ended = await session.carry_on(opened, news, interrupts)
            store.close()  # who reads how it ended may go on with the run
            self._tell(ended)
            return ended


def _begin_with_dry_run(opened: OpenedStore, beginning: StartingPoint, directory: Path) -> None:
    """Begin a new run with the answers of its dry run."""
    if not opened.resumed:
        records = dry_run_trials(directory, beginning.prepared.header)
        if records:
            opened.store.commit(CommitBatch(trials=records))
            shutil.rmtree(dry_run_folder(directory), ignore_errors=True)


def _require_alarm(directory: Path) -> None:
    """Raise `ConfigError` unless an alarm about the run says since when to ask again."""
    with RunReader.if_begun(directory) as reader:
        if reader is not None and alarms_to_ask_again(reader.events()):
            return
    raise ConfigError(
        f"--ask-again discards the answers since an alarm about a model's server, but {directory} has no such alarm "
        "whose answers were not discarded already; run it without --ask-again"
    )


@contextmanager
def _opened_store(beginning: StartingPoint, directory: Path, redactor: Redactor) -> Iterator[OpenedStore]:
    """Open the store of a run; an error that ends the run is noted in it."""
    prepared = beginning.prepared
    opened = Store.open(directory, prepared.header, redactor)
    try:
        if beginning.pending_events:
            opened.store.commit(CommitBatch(events=beginning.pending_events))
        yield opened
    except Exception as error:
        note_fatal_error(opened.store, error)
        raise
    finally:
        opened.store.close()
