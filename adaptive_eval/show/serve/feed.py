"""Following one run from outside: a look at the files' times, and a short read where they have changed.

Nothing is kept open between two reads and no read is long, so the run never waits for its monitor, and its write-ahead
log can be emptied at any time. The results are those that the run publishes; they are worked out anew only where a run
ended without publishing any.

A live run commits some thousand trials a second, and a monitor is to cost it next to nothing: so each trial is read
once, by its number, whatever is drawn of it afterwards. Looks and events are few.
"""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

from adaptive_eval.config.prepare import StoredSetup, setup_of
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.record.build import grading_cost
from adaptive_eval.record.ending import was_killed
from adaptive_eval.record.removed_models import counted_gpu_seconds, other_costs, spent_on_removed_models
from adaptive_eval.record.restore import StoredRun, held_servers
from adaptive_eval.record.results import GradingCost, OtherCostRow, Results
from adaptive_eval.record.results_file import RESULTS_FILE, read_results
from adaptive_eval.record.stored_sums import StoredSums
from adaptive_eval.record.view import RunView, assemble_view
from adaptive_eval.store import RunFinished, RunReader, is_held
from adaptive_eval.store.address import is_address
from adaptive_eval.store.database import DATABASE_FILE, LOCK_FILE
from adaptive_eval.store.whereabouts import database_moment

TICK_NS = 100_000_000
"""Changes within one tick of a file system's clock leave the same time, so what was just changed is read again."""

Stamp = tuple[int, int, int]
NO_FILE: Stamp = (0, 0, 0)


class FileMark(NamedTuple):
    """How the files of a run look from outside."""

    database: Stamp
    log: Stamp
    results: Stamp
    lock: Stamp
    running: bool
    committed: float = 0.0
    """When a database has last heard of the run, where one keeps it."""

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Stat the files of a run."""
        if (moment := database_moment(directory)) is not None:
            run, commits, committed, running = moment
            kept, results = (run, commits, 0), _stamp(directory / RESULTS_FILE)
            return cls(kept, NO_FILE, results, NO_FILE, running, committed)
        return cls(
            database=_stamp(directory / DATABASE_FILE),
            log=_stamp(directory / f"{DATABASE_FILE}-wal"),
            results=_stamp(directory / RESULTS_FILE),
            lock=_stamp(directory / LOCK_FILE),
            running=is_held(directory),
        )

    @property
    def settled(self) -> bool:
        """Every change so far is older than a tick."""
        return time.time_ns() - max(self.database[-1], self.log[-1], self.results[-1]) > TICK_NS

    @property
    def written(self) -> float:
        """When the run was begun, resumed, or committed something, whichever was last."""
        # an empty log says nothing: whoever reads a run that is over makes one
        log = self.log[-1] if self.log[1] else 0
        return max(max(self.database[-1], log, self.lock[-1]) / 1e9, self.committed)


class Feed:
    """One run as of the latest `poll`; used by one thread at a time."""

    sums: StoredSums
    stored: StoredSetup
    results: Results | None
    running: bool
    """A process is at work on it."""
    grading: GradingCost | None = None
    """What a judge or a verifier has used before the first results; these say it later."""

    def __init__(self, directory: Path, *, rows: bool = True) -> None:
        """`rows`: somebody wants what results.json has of each question, which in a large run is most of it."""
        self.directory = directory
        self._rows = rows
        self.edition = 0
        """Grows when something has happened besides trials: a look, an event, the beginning or the end."""
        self._mark: FileMark | None = None
        self._looks_read = 0
        self._picture: tuple[object, ...] = ()

    def poll(self) -> bool:
        """Read what is new; whether there was anything. Raises `StoreError` where the run cannot be read."""
        mark = FileMark.of(self.directory)
        if mark == self._mark:
            return False
        with closing(RunReader.open(self.directory)) as reader, reader.consistent_read():
            anew = self._mark is None or mark.database[0] != self._mark.database[0]
            if anew:
                reader.require_intact(summed=False)
            self._read_trials(reader, anew=anew)
            self._read_results(reader, mark)
        # what is still changing will be read again, whether or not its times tell
        self._mark = mark if mark.settled else mark._replace(log=(-1, 0, 0))
        self.running = mark.running
        picture = len(self.sums.looks), len(self.sums.events), mark.results, mark.running, id(self.sums)
        if picture != self._picture:
            self._picture, self.edition = picture, self.edition + 1
        return True

    def view(self) -> RunView:
        """The view of the run."""
        return assemble_view(self.sums, self.stored, self.results, running=self.running)

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names, in the order of the configuration."""
        return tuple(self.stored.roster.models)

    @property
    def status(self) -> str:
        """The run's status: running, finished, stopped or killed."""
        if self.running:
            return "running"
        if self.results is not None:
            return self.results.run.status
        events = self.sums.events
        if events and isinstance(events[-1], RunFinished):
            return "finished"
        return "killed" if was_killed(events) else "stopped"

    @property
    def beside(self) -> tuple[OtherCostRow, ...]:
        """Spending that caps count besides the stored answers of today's models."""
        return other_costs(self._removed, self.stored.roster.models, self._servers.counted, self.sums.events)

    @property
    def gpu_seconds(self) -> float:
        """GPU seconds under a cap."""
        requests = [self.sums.spent([name]).gpu_seconds for name in self.models]
        return counted_gpu_seconds(self._servers, requests, self.beside)

    def _read_trials(self, reader: RunReader, anew: bool) -> None:
        if anew or not self.sums.update(reader):
            self.stored = setup_of(reader.header())
            self.sums = StoredSums(reader, self.stored)
            self._removed = spent_on_removed_models(reader, self.stored.roster.models, self.sums.events)
        self._servers = held_servers(self.stored, reader)

    def _read_results(self, reader: RunReader, mark: FileMark) -> None:
        before = self._mark
        if is_address(self.directory) and mark.running:  # what the run publishes lies in its directory, not here
            if before is None or not before.running or len(self.sums.looks) != self._looks_read:
                self.results = StoredRun(reader, self.stored, self.sums.events).results(running=True)
            self._looks_read = len(self.sums.looks)
        elif not mark.running:
            self.results = StoredRun(reader, self.stored, self.sums.events).brief_results(
                running=False, rows=self._rows
            )
        elif before is None or mark.results != before.results or not before.running:
            self.results = self._read_published()
        if self.results is None and graders_that_ask(self.stored.config.grader):
            uses = reader.grading_uses()
            self.grading = grading_cost(use for name, use in uses.items() if name in self.models)

    def _read_published(self) -> Results | None:
        """The published results; None if they are of other models than today's."""
        results = read_results(self.directory, rows=self._rows)
        if results is None or {model.name for model in results.models} != set(self.models):
            return None
        return replace(results, run=replace(results.run, status="running", reason=None))


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return NO_FILE
    return found.st_ino, found.st_size, found.st_mtime_ns
