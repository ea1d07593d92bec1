"""The ledger of a run in the file `run.sqlite` of its directory."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from adaptive_eval.errors import StoreError
from adaptive_eval.store import checksums, database
from adaptive_eval.store.database import RunLock
from adaptive_eval.store.forms import MISFORMED
from adaptive_eval.store.kept_sums import KeptSums, read_sums
from adaptive_eval.store.ledgers import Row
from adaptive_eval.store.queries import Queries, sqlite_queries
from adaptive_eval.store.stored_texts import StoredTexts
from adaptive_eval.store.tables import COLUMNS, SUMS


class SqliteLedger:
    """A `RunLedger` in SQLite; with a lock it can be written."""

    def __init__(
        self, directory: Path, connection: sqlite3.Connection, lock: RunLock | None = None, given: str | None = None
    ) -> None:
        """`given` is the URL under which the configuration allows answers."""
        self.directory = directory
        self.connection = connection
        self.texts: StoredTexts | None = None
        self._lock = lock
        self._identity = database.identity(directory)
        with database.explained(directory):
            segmented, self.keeps_tokens = database.has_segments(connection), database.has_token_logprobs(connection)
            self.queries = self._build_queries()
            if segmented:
                self.texts = StoredTexts(directory, connection, given)

    @classmethod
    def to_read(cls, directory: Path) -> Self:
        """Open a run for reading, while another process may write it."""
        return cls(directory, database.open_readonly(directory))

    def keep_tokens(self) -> None:
        """Create the table for the tokens of answers."""
        with database.explained(self.directory):
            database.keep_token_logprobs(self.connection)
            self.keeps_tokens = True
            self.queries = self._build_queries()

    def _build_queries(self) -> Queries:
        segmented, checked = database.has_segments(self.connection), checksums.has_checksums(self.connection)
        return sqlite_queries(checked=checked, segmented=segmented, tokens=self.keeps_tokens)

    @property
    def where(self) -> str:
        """The file, for error messages."""
        return str(self.directory / database.DATABASE_FILE)

    def rows(self, query: str, *values: object) -> Iterator[Row]:
        """Rows of a query."""
        with database.explained(self.directory):
            # not the cursor itself, which raises an error if it is abandoned after the database was closed
            yield from map(tuple, self.connection.execute(query, values))

    stream = rows

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
                    raise damaged(self.directory, self.where, str(damage))
            for (number,) in self.connection.execute(MISFORMED, (after,)):
                raise damaged(self.directory, self.where, f"trials {number} is not as trials are written")
            for fault in database.structure_faults(self.connection, checksums.SMALL_TABLES if after else None):
                raise damaged(self.directory, self.where, f"{fault}; {database.reindex_instructions(self.directory)}")

    def kept_sums(self) -> KeptSums | None:
        with database.explained(self.directory):
            return read_sums(self.connection)

    sums_by_itself = False

    def make_room_for_sums(self) -> None:
        with database.explained(self.directory):
            self.connection.executescript(f"BEGIN IMMEDIATE; {SUMS}; COMMIT;")
            checksums.keep_checksums(self.connection)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self.connection
        with database.explained(self.directory):
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
            if self.texts is not None:
                self.texts.close()
            if self._lock is not None:
                database.empty_log(self.connection)
            self.connection.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _require_in_place(self) -> None:
        """Raise `StoreError` if the opened file is no longer the one in the directory."""
        if database.identity(self.directory) != self._identity:
            raise database.lost(self.directory)


def damaged(directory: Path, where: str, what: str) -> StoreError:
    """The error of a damaged ledger."""
    return StoreError(
        f"{where} is damaged: {what}. `adaptive-eval verify {directory}` lists all that is; restore a copy of it, or "
        "start over with --fresh"
    )
