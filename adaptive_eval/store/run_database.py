"""The database of a run: the file `run.sqlite` in its directory, read or written by one thread at a time."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import FileLock, closed_on_error
from adaptive_eval.store import checksums, database
from adaptive_eval.store.forms import MISFORMED
from adaptive_eval.store.locate import require_nothing_lost
from adaptive_eval.store.queries import Queries, Row
from adaptive_eval.store.summing import KEEP_SUMS, KeptSums, newest_sums, read_sums
from adaptive_eval.store.tables import COLUMNS, SUMS

CLOSING_MS = 1000
"""How long to wait for a reader that blocks a checkpoint when closing: the log may as well stay."""


class RunDatabase:
    """An open database; with a lock it can be written. Every error is a `StoreError` that says what to do."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: FileLock | None = None) -> None:
        self.directory = directory
        self.connection = connection
        self._lock = lock
        self._identity = database.identity(directory)
        with database.explained(directory):
            self._find_tables()

    @classmethod
    def open_to_read(cls, directory: Path) -> Self:
        """Open the database for reading, while another process may write it; raises `StoreError` if none exists."""
        return cls(directory, database.open_readonly(directory))

    @classmethod
    def open_if_begun(cls, directory: Path) -> Self | None:
        """Open the database for reading; None if no run was begun."""
        connection = database.open_if_begun(directory)
        return None if connection is None else cls(directory, connection)

    @classmethod
    def open_to_write(cls, directory: Path) -> tuple[Self, bool]:
        """Lock the directory, open the database for writing, and say whether the run existed; create a missing one."""
        lock = database.lock_run(directory)
        with closed_on_error(lock):
            resumed = database.is_run(directory)
            if not resumed:
                require_nothing_lost(directory)
            connection = database.open_existing(directory) if resumed else database.create(directory)
            with closed_on_error(connection):
                return cls(directory, connection, lock), resumed

    def _find_tables(self) -> None:
        self.queries = Queries(checked=checksums.has_checksums(self.connection))

    def add_tables(self, script: str) -> None:
        """Create tables that not every run has, in one transaction."""
        with database.explained(self.directory):
            self.connection.executescript(f"BEGIN IMMEDIATE; {script}; COMMIT;")
            checksums.keep_checksums(self.connection)
            self._find_tables()

    @property
    def where(self) -> str:
        """The file, for error messages."""
        return str(self.directory / database.DATABASE_FILE)

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """The rows of a query, with `?` for each value."""
        with database.explained(self.directory):
            # not the cursor itself, which raises an error if it is abandoned after the database was closed
            yield from map(tuple, self.connection.execute(query, values))

    @contextmanager
    def consistent_read(self) -> Iterator[None]:
        """A context in which all reads see the same state, whatever the run commits meanwhile."""
        with database.explained(self.directory):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.rollback()

    def require_intact(self, after: int = 0) -> None:
        """Check every row's checksum and form, and the structure of the database.

        Tables by trial are checked only from the trial after `after` on.
        """
        with database.explained(self.directory):
            for table in COLUMNS:
                for damage in checksums.check_table(self.connection, table, after).damages:
                    raise damaged(self.directory, self.where, damage)
            for (number,) in self.connection.execute(MISFORMED, (after,)):
                raise damaged(self.directory, self.where, f"trials {number} is not as trials are written")
            for fault in database.structure_faults(self.connection, checksums.SMALL_TABLES if after else None):
                raise damaged(self.directory, self.where, f"{fault}; {database.reindex_instructions(self.directory)}")

    def kept_sums(self) -> KeptSums:
        """The stored sums over the first trials, if there are any."""
        with database.explained(self.directory):
            return read_sums(self.connection)

    def keep_sums(self) -> None:
        """Store the sums over the trials of a large run."""
        if (newest := newest_sums(self)) is not None:
            self.add_tables(SUMS)
            with self.transaction() as writes:
                writes.execute(KEEP_SUMS, newest)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A context whose writes are committed atomically."""
        connection = self.connection
        with database.explained(self.directory):
            if not connection.in_transaction:  # that which creates the tables is ended by the first that writes
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # on a full disk SQLite may have rolled back by itself
                    connection.rollback()
                self._require_in_place()
                raise
            self._require_in_place()  # a commit to a deleted file succeeds

    def close(self) -> None:
        """Close the database, and release the run directory."""
        try:
            if self._lock is not None:
                with suppress(sqlite3.Error):  # commits are as safe in the log
                    self.connection.execute(f"PRAGMA busy_timeout = {CLOSING_MS}")
                    # closing does this only if nobody else has the database open
                    self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.connection.close()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _require_in_place(self) -> None:
        """Raise `StoreError` if the opened file is no longer the one in the directory."""
        if database.identity(self.directory) != self._identity:
            raise database.lost(self.directory)


def damaged(directory: Path, where: str, what: str) -> StoreError:
    """The error of a damaged database."""
    return StoreError(
        f"{where} is damaged: {what}. `adaptive-eval verify {directory}` lists all that is; restore a copy of it, or "
        "start over with --fresh"
    )
