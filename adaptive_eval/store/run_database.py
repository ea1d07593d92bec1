"""The database of a run: the file `run.sqlite` in its directory, read or written by one thread at a time."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import FileLock, closed_on_error
from adaptive_eval.store import database
from adaptive_eval.store.checksums import damaged_rows
from adaptive_eval.store.forms import MISFORMED
from adaptive_eval.store.locate import require_nothing_lost
from adaptive_eval.store.queries import Row

CLOSING_MS = 1000
"""How long to wait for a reader that blocks a checkpoint when closing: the log may as well stay."""


class RunDatabase:
    """An open database; with a lock it can be written. Every error is a `StoreError` that says what to do."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: FileLock | None = None) -> None:
        self.directory = directory
        self.connection = connection
        self._lock = lock
        self._identity = database.identity(directory)

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
                require_nothing_lost(directory, lock)
            connection = database.open_existing(directory) if resumed else database.create(directory)
            with closed_on_error(connection):
                if resumed:
                    database.require_whole(connection, directory, lock.before.get(database.COMMITTED))
                return cls(directory, connection, lock), resumed

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

    def require_intact(self) -> None:
        """Raise `StoreError` if a row is not what was written, or the structure of the database is damaged."""
        with database.explained(self.directory):
            for (number,) in self.connection.execute(MISFORMED):
                raise damaged(self.directory, self.where, f"trials {number} is not as trials are written")
            for row in damaged_rows(self.connection):
                raise damaged(self.directory, self.where, row.describe(self.connection))
            for fault in database.structure_faults(self.connection):
                raise damaged(self.directory, self.where, f"{fault}; {database.reindex_instructions(self.directory)}")

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
            if self._lock is not None:
                self._note_commit(self._lock)

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

    def _note_commit(self, lock: FileLock) -> None:
        """Note the last trial in the lock; after the first commit of all, once the file itself says what run it is."""
        if database.COMMITTED not in lock.holder:
            database.write_to_file(self.connection)
        try:
            lock.note(**{database.COMMITTED: database.newest_trial(self.connection)})
        except OSError as error:
            raise StoreError(
                f"{self.directory / database.LOCK_FILE} cannot be written: {error.strerror}. What was committed is "
                "intact: mend the cause and run the same command"
            ) from error

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
