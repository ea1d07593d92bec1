"""`run.sqlite`: opened for writing by one process at a time, or for reading.

Write-ahead log with `synchronous = FULL`: a commit survives not only the death of the process (for which NORMAL would
do) but a power failure as well, so that a look that a person has seen is never contradicted by trials that were asked
again and came out differently. It costs one fsync per group commit, in the writer's thread.
"""

import os
import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Self
from urllib.parse import quote

from adaptive_eval.base.errors import NEW_RUN, StoreError
from adaptive_eval.base.files import FileLock, closed_on_error, require_plain
from adaptive_eval.store.errors import DATABASE_FILE, INTACT, VERIFY, damaged, replaced_file, translate_errors
from adaptive_eval.store.forms import misformed_rows
from adaptive_eval.store.locate import absence
from adaptive_eval.store.lock import (
    COMMITTED,
    LOCK_FILE,
    lock_run,
    noted_seq,
    require_nothing_lost,
    require_whole,
)
from adaptive_eval.store.schema import APPLICATION_ID, LAST_SEQ, SCHEMA_VERSION, TABLES, damaged_rows

SIDE_FILES = ("wal", "journal", "shm")
"""Suffixes of the files that SQLite opens with the database."""
OTHER_RUN = "give the directory of a run, or one that is new"
BUSY_SECONDS = 30.0
"""How long to wait for a reader that blocks a checkpoint."""
CLOSING_MS = 1000
"""How long to wait for such a reader when closing: the log may as well stay."""
MAX_FAULTS = 20
"""Most faults that SQLite's integrity check lists: with more, the file is beyond repair."""
CHECK_CACHE_KIB = 16 * 1024
"""Page cache during that check: with the default of 2 MiB it takes three times as long."""
_PLAIN = re.compile(r"CREATE (TABLE|(UNIQUE )?INDEX) ")
"""Matches schema entries that only hold data: no trigger, view or virtual table."""

Values = tuple[object, ...]


class RunDatabase:
    """The database of a run, used by one thread at a time."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, lock: FileLock | None = None) -> None:
        self.directory, self.connection = directory, connection
        self._lock = lock
        self._identity = _identity(directory)

    @classmethod
    def open_to_write(cls, directory: Path) -> tuple[Self, bool]:
        """Open or create the database in an existing directory; returns whether a run was begun in it.

        A new one has its tables in a transaction, which the first `transaction` ends.
        """
        require_readable(directory)
        lock = lock_run(directory)
        with closed_on_error(lock):
            is_begun = has_tables(directory, "rw")
            if is_begun:
                connection = _connect(directory, "rw")
                with closed_on_error(connection), translate_errors(directory):
                    _require_ours(connection, directory)
                    require_whole(directory, _last_seq(directory, connection), lock.before.get(COMMITTED))
                    _enable_durable_log(connection, directory)
            else:
                require_nothing_lost(directory, lock)
                connection = create_database(directory)
            return cls(directory, connection, lock), is_begun

    @classmethod
    def open_to_read(cls, directory: Path, verify: str = VERIFY) -> Self:
        """Open the database of a run for reading, while another process may write it; without `verify`, damage is
        not reported yet."""
        if not (directory / DATABASE_FILE).exists():
            raise StoreError(absence(directory) or f"{directory} has no run: there is no {DATABASE_FILE} in it")
        connection = _connect_to_read(directory)
        with closed_on_error(connection), translate_errors(directory, verify):
            _require_ours(connection, directory)
            if verify:
                require_whole(directory, _last_seq(directory, connection), noted_seq(directory))
        return cls(directory, connection)

    def rows(self, query: str, *values: object) -> Iterator[Values]:
        """The rows of a query, with `?` for each value."""
        with translate_errors(self.directory):
            # not the cursor itself, which raises an error if it is abandoned after the database was closed
            yield from map(tuple, self.connection.execute(query, values))

    @contextmanager
    def consistent_read(self) -> Iterator[None]:
        """A context in which all reads see the same state, whatever the run commits meanwhile."""
        with translate_errors(self.directory):
            self.connection.execute("BEGIN")
            try:
                yield
            finally:
                self.connection.rollback()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A context whose writes are committed atomically."""
        connection = self.connection
        with translate_errors(self.directory):
            if not connection.in_transaction:  # the first one ends that which has created the tables
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
            self._note_commit()

    def last_seq(self) -> int:
        """The newest sequence number; 0 before the first."""
        with translate_errors(self.directory):
            return _last_seq(self.directory, self.connection)

    def require_intact(self) -> None:
        """Raise `StoreError` if a row is not what was written, or the structure of the database is damaged."""
        with translate_errors(self.directory):
            for row in chain(damaged_rows(self.connection), misformed_rows(self.connection)):
                raise damaged(self.directory, row)
            for fault in structure_faults(self.connection):
                raise damaged(self.directory, f"{fault}; {reindex_instructions(self.directory)}")

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

    def _note_commit(self) -> None:
        """Note the newest row in the lock; after the first commit of all, once the file itself says what run it is."""
        if (lock := self._lock) is None:
            return
        if COMMITTED not in lock.holder:
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        try:
            lock.note(**{COMMITTED: _last_seq(self.directory, self.connection)})
        except OSError as error:
            raise StoreError(f"{self.directory / LOCK_FILE} cannot be written: {error.strerror}. {INTACT}") from error

    def _require_in_place(self) -> None:
        """Raise `StoreError` if the opened file is no longer the one in the directory."""
        if _identity(self.directory) != self._identity:
            raise replaced_file(self.directory)


def structure_faults(connection: sqlite3.Connection) -> list[str]:
    """Faults that SQLite finds in the pages and indices of the database."""
    try:
        ((usual,),) = connection.execute("PRAGMA cache_size")
        connection.execute(f"PRAGMA cache_size = {-CHECK_CACHE_KIB}")
        texts = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({MAX_FAULTS})")]
        connection.execute(f"PRAGMA cache_size = {usual}")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged schema is quoted as it is
        texts = [str(error)]
    return [line for text in texts for line in text.splitlines() if text != "ok"]


def reindex_instructions(directory: Path) -> str:
    """Instructions for rebuilding the indices of a database with intact rows."""
    return (
        "no row is damaged, but an index is. To rebuild it: "
        f"`sqlite3 {shlex.quote(str(directory / DATABASE_FILE))} 'REINDEX; VACUUM'`"
    )


def _last_seq(directory: Path, connection: sqlite3.Connection) -> int:
    newest = connection.execute(LAST_SEQ).fetchone()[0]
    if not isinstance(newest, int):
        raise damaged(directory, "a row has no number")
    return newest


def create_database(directory: Path) -> sqlite3.Connection:
    """A new database, with its tables in a transaction that is still open."""
    connection = _connect(directory, "rwc")
    with closed_on_error(connection), translate_errors(directory):
        _enable_durable_log(connection, directory)
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES}; PRAGMA user_version = {SCHEMA_VERSION}; "
            f"PRAGMA application_id = {APPLICATION_ID};"
        )
    return connection


def has_tables(directory: Path, mode: str = "ro") -> bool:
    """Whether a run was begun here: a start that was killed at once may leave a database without tables."""
    if not (directory / DATABASE_FILE).exists():
        return False
    connection = _connect_to_read(directory) if mode == "ro" else _connect(directory, mode)
    try:
        with translate_errors(directory):
            return _is_begun(connection)
    finally:
        connection.close()


def _is_begun(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def require_readable(directory: Path) -> None:
    """Raise `StoreError` if the directory has a database that is not of this version, before anything is written."""
    if not (directory / DATABASE_FILE).exists():
        return
    # what a start has left that was killed at once, only a writer can recover
    with closing(_connect_to_read(directory)) as connection, suppress(sqlite3.Error):
        if _is_begun(connection):
            _require_ours(connection, directory)


def _connect_to_read(directory: Path) -> sqlite3.Connection:
    # in a read-only directory SQLite cannot share the database, and nobody is writing it
    is_unshared = not os.access(directory, os.W_OK) and not (directory / f"{DATABASE_FILE}-wal").exists()
    return _connect(directory, "ro&immutable=1" if is_unshared else "ro")


def _connect(directory: Path, mode: str) -> sqlite3.Connection:
    path = directory / DATABASE_FILE
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    for file in (path, *(path.with_name(f"{path.name}-{suffix}") for suffix in SIDE_FILES)):
        try:
            require_plain(file)
        except FileNotFoundError:
            continue  # not there yet, or its writer has just closed the run
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}; {OTHER_RUN}") from error
    with translate_errors(directory):
        # used by one thread at a time: the main thread opens and closes it, the writer's uses it in between
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)


def _enable_durable_log(connection: sqlite3.Connection, directory: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{directory}: the file system does not support a write-ahead log (journal mode {mode}); "
            "put the run directory on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")


def _require_ours(connection: sqlite3.Connection, directory: Path) -> None:
    path = directory / DATABASE_FILE
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreError(f"{path} was not written by adaptive-eval; {OTHER_RUN}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path} has format {version}, and this version reads format {SCHEMA_VERSION}; "
            f"use the version of adaptive-eval that wrote it, or {NEW_RUN}"
        )
    for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
        if not _PLAIN.match(sql):
            raise StoreError(
                f"{path} brings SQL of its own ({sql!a:.80}), which adaptive-eval has not written and does not run; "
                f"{OTHER_RUN}"
            )


def _identity(directory: Path) -> tuple[int, int] | None:
    """Device and inode of `run.sqlite`; None if there is none."""
    try:
        status = (directory / DATABASE_FILE).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
