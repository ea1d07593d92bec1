"""Follow one run from another process: check the times of its files, and read what is new.

Nothing stays open between two reads and no read is long, so the run never waits for its monitor, and its write-ahead
log can be emptied at any time. The results are those of the newest report that the run has stored.

A live run commits some thousand trials a second, and a monitor must hardly slow it down, so each trial is read only
once, by its number. Looks and events are few.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

from adaptive_eval.config.prepare import StoredSetup, stored_setup
from adaptive_eval.report.label_file import LABELS_FILE
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import RESULTS_FILE
from adaptive_eval.report.status import Used
from adaptive_eval.report.stored import StoredRun
from adaptive_eval.report.trial_sums import StoredSums
from adaptive_eval.report.view import RunView, assemble_view
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.lock import is_held

TICK_NS = 100_000_000
"""Changes within one tick of a file system's clock have the same time, so recently changed files are read again."""


class Stamp(NamedTuple):
    """Which file a path names, its size, and when it was written."""

    inode: int = 0
    size: int = 0
    written_ns: int = 0


NO_FILE = Stamp()
OUTDATED = Stamp(inode=-1)
"""Differs from the stamp of any file."""


class FileMark(NamedTuple):
    """Sizes and times of a run's files, by which changes are noticed."""

    database: Stamp
    log: Stamp
    results: Stamp
    labels: Stamp
    running: bool

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Stat the files of a run."""
        return cls(
            database=_stamp(directory / DATABASE_FILE),
            log=_stamp(directory / f"{DATABASE_FILE}-wal"),
            results=_stamp(directory / RESULTS_FILE),
            labels=_stamp(directory / LABELS_FILE),
            running=is_held(directory),
        )

    @property
    def is_quiet(self) -> bool:
        """Whether every change so far is older than a tick."""
        stamps = self.database, self.log, self.results, self.labels
        return time.time_ns() - max(stamp.written_ns for stamp in stamps) > TICK_NS


class Feed:
    """One run as of the latest `poll`; used by one thread at a time."""

    sums: StoredSums
    stored: StoredSetup
    results: Results | None
    """Without the rows of questions."""
    running: bool
    """Whether a process is running it."""
    used: Used

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.edition = 0
        """Grows with each change other than trials: a look, an event, a label, the beginning or the end."""
        self._mark: FileMark | None = None
        self._state: tuple[object, ...] = ()
        self._reported: tuple[object, ...] = ()
        """Changes whenever there is a new report."""

    def poll(self) -> bool:
        """Read what is new, and return whether anything was. Raises `StoreError` if the run cannot be read."""
        mark = FileMark.of(self.directory)
        if mark == self._mark:
            return False
        with closing(RunReader.open(self.directory)) as reader, reader.consistent_read():
            is_new = self._mark is None or mark.database.inode != self._mark.database.inode
            if is_new and not reader.is_large:
                reader.require_intact()
            if is_new or not self.sums.update(reader):
                self.stored = stored_setup(reader.header())
                self.sums = StoredSums(reader, self.stored)
            mark = mark._replace(running=mark.running or is_held(self.directory))  # what began meanwhile is not killed
            self._read_results(reader, mark)
        # files that are still changing are read again, even if their times stay the same
        self._mark = mark if mark.is_quiet else mark._replace(log=OUTDATED)
        self.running = mark.running
        looks, events = len(self.sums.looks), len(self.sums.events)
        state = looks, events, mark.results, mark.labels, mark.running, id(self.sums)
        if state != self._state:
            self._state, self.edition = state, self.edition + 1
        return True

    def view(self) -> RunView:
        """The view of the run."""
        return assemble_view(self.sums, self.stored, self.results, self.used, running=self.running)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, in the order of the configuration."""
        return tuple(self.stored.roster.models)

    def _read_results(self, reader: RunReader, mark: FileMark) -> None:
        run = StoredRun(reader, self.stored, self.sums.events)
        reported = reader.newest_report_seq(), id(self.sums), mark.labels, mark.running
        if not mark.running:
            self.results = run.results(running=False, rows=False)
        elif reported != self._reported:
            self.results = run.results(running=True, rows=False, sums=False)
        self._reported = reported
        self.used = run.used(self.sums, self.results)


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return NO_FILE
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
