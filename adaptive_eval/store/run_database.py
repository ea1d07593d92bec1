"""The database of a run: the file `run.sqlite` in its directory, read or written by one thread at a time."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import FileLock, closed_on_error
from adaptive_eval.store import checksums, database
from adaptive_eval.store.forms import MISFORMED
from adaptive_eval.store.locate import require_nothing_lost
from adaptive_eval.store.queries import Queries, Row, TrialRow
from adaptive_eval.store.records import AnswerTexts
from adaptive_eval.store.rows import unpack_text
from adaptive_eval.store.summing import KEEP_SUMS, KeptSums, newest_sums, read_sums
from adaptive_eval.store.tables import COLUMNS, SUMS, TOKEN_LOGPROBS

if TYPE_CHECKING:
    from adaptive_eval.store.segments.reading import StoredTexts

CLOSING_MS = 1000
"""How long to wait for a reader that blocks a checkpoint when closing: the log may as well stay."""


class RunDatabase:
    """An open database; with a lock it can be written. Every error is a `StoreError` that says what to do."""

    def __init__(
        self, directory: Path, connection: sqlite3.Connection, lock: FileLock | None = None, given: str | None = None
    ) -> None:
        """`given` is the URL under which the configuration allows answers."""
        self.directory = directory
        self.connection = connection
        self._lock, self._given = lock, given
        self._segments: StoredTexts | None = None
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
    def open_to_write(cls, directory: Path, answers: str) -> tuple[Self, bool]:
        """Lock the directory, open the database for writing, and say whether the run existed; create a missing one.

        `answers` is the place at which the configuration has the texts of answers.
        """
        lock = database.lock_run(directory)
        with closed_on_error(lock):
            resumed = database.is_run(directory)
            if not resumed:
                require_nothing_lost(directory)
            connection = database.open_existing(directory) if resumed else database.create(directory)
            with closed_on_error(connection):
                return cls(directory, connection, lock, answers), resumed

    def _find_tables(self) -> None:
        self.tables_beside = [one for one in ("moved", "token_logprobs") if checksums.has_table(self.connection, one)]
        """Tables that not every run has, with rows by the id of a trial."""
        self.queries = Queries(checked=checksums.has_checksums(self.connection), beside=self.tables_beside)

    def add_tables(self, script: str) -> None:
        """Create tables that not every run has, in one transaction."""
        with database.explained(self.directory):
            self.connection.executescript(f"BEGIN IMMEDIATE; {script}; COMMIT;")
            checksums.keep_checksums(self.connection)
            self._find_tables()

    def keep_tokens(self) -> None:
        """Create the table for the tokens of answers, if it is not there."""
        if "token_logprobs" not in self.tables_beside:
            self.add_tables(TOKEN_LOGPROBS)

    def texts(self, row: TrialRow) -> AnswerTexts:
        """The texts of a trial, wherever they lie."""
        if row.segment is None or row.row is None:
            return AnswerTexts(unpack_text(row.text), unpack_text(row.reasoning), row.token_logprobs)
        if self._segments is None:
            from adaptive_eval.store.segments.reading import StoredTexts

            self._segments = StoredTexts(self.directory, self.connection, self._given)
        return self._segments.read(row.segment, row.row, row.digest)

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
        """Close the segments and the database, and release the run directory."""
        try:
            if self._segments is not None:
                self._segments.close()
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
