"""`run.sqlite`: its opening by one process at a time, and what SQLite's errors mean to a person.

Write-ahead log with `synchronous = FULL`: a commit then survives not only the death of the process (NORMAL would do for
that) but a power failure as well, and a look that a person has seen is never contradicted by trials that came out
differently the second time. It costs one fsync per group commit, in the writer's thread, off the loop: at 75 trials a
commit 10 microseconds a trial against 9.5.
"""

import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote
from uuid import uuid4

from adaptive_eval.errors import RunLocked, StoreError, StoreFull
from adaptive_eval.files import FileLock, closed_on_error, holder_of, is_locked, require_plain
from adaptive_eval.store import checksums
from adaptive_eval.store.kept_sums import TABLES as KEPT_SUMS
from adaptive_eval.store.log_check import lost_commits
from adaptive_eval.store.tables import SEGMENTS, TABLES, TOKEN_LOGPROBS

LOCK_FILE = "lock"
TRIES, PAUSE = 10, 0.02
"""A lock that is only being looked at is free again in microseconds."""


class RunLock(FileLock):
    """Holds `<run directory>/lock`."""

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Take the lock, or raise `RunLocked` naming its holder, or `StoreError` where no file can be written."""
        path, left = directory / LOCK_FILE, TRIES
        require_no_links(directory)
        while True:
            try:
                return cls.take(path)
            except BlockingIOError as error:
                left -= 1
                if not left:
                    raise _refusal(directory, path) from error
                time.sleep(PAUSE)
            except OSError as error:
                mend = "mend that, or choose another --run-dir"
                raise StoreError(f"cannot write {path}: {error.strerror}; {mend}") from error


def _refusal(directory: Path, path: Path) -> RunLocked:
    holder = holder_of(path)
    who = "process {pid} on {host} since {since}".format(**holder) if holder else "another process"
    return RunLocked(
        f"{directory} is held by {who}. Two processes cannot write one run: "
        "wait for it, stop it, or start another run with --run-dir"
    )


def require_no_links(directory: Path) -> None:
    """Raise `StoreError` where a link has the place of something that a run writes: it would be written anywhere."""
    inside = (*directory.glob("logs/*"), *directory.glob("logs/inspect/*"))
    for path in (*(one for one in directory.glob("*") if one.name.startswith(WRITTEN)), *inside):
        if path.is_symlink():
            raise StoreError(
                f"{path} is a link, and a run writes to its own directory alone: put there what it leads to"
            )


DATABASE_FILE = "run.sqlite"
WRITTEN = (DATABASE_FILE, "answers", "logs", "greedy", "opponent")
"""Files and folders that are written in their place; others are replaced as a whole, or have a check of their own."""
BESIDE = ("wal", "journal", "shm")
"""Files that SQLite opens with it, by their endings."""
ANOTHER = "give the directory of a run, or one that is new"

APPLICATION_ID = 0x61644576
"""Marks the file as ours (PRAGMA application_id)."""

SCHEMA_VERSION = 1
"""PRAGMA user_version; a file with another number is refused, never guessed at."""
SEGMENTED = 2
"""That of a run with texts outside the ledger, which an earlier version would take for empty."""

BUSY_SECONDS = 30.0
"""How long to wait for a reader that holds a checkpoint up."""

CLOSING_MS = 1000
"""How long to wait for such a reader at the end, when the log may as well stay."""

MOST_FAULTS = 20
"""Faults of its own order that SQLite names at most: where there are more, there is nothing to be mended."""

ORDER_CACHE = 16 * 1024
"""KiB of pages that are kept while that order is checked: with the usual two MiB it takes three times as long, as rows
are found in another order than they were written in."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_TEXT = ("Could not decode", "user-defined function raised exception", "malformed JSON")
"""Messages of SQLite on a text that is no UTF-8, or no JSON: such a text was never written."""
VERIFY = ". `adaptive-eval verify {}` says where"
"""Who says more of a damage: nobody, to those who ask `verify`."""
_PLAIN = re.compile(r"CREATE (TABLE|(UNIQUE )?INDEX) ")
"""Begins what holds data alone: no trigger, view or module."""
_NO_NAME = ("no such column", "no such table")
"""Messages of SQLite on a database whose schema was changed: every ledger has all tables."""


def create(directory: Path) -> sqlite3.Connection:
    """A database with empty tables, inside the transaction that made them: the caller fills and commits it.

    A crash before that leaves a database without tables, which `is_run` takes for no run.
    """
    connection = _connect(directory, "rwc")
    with closed_on_error(connection), explained(directory):
        _durable(connection, directory)
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES}; PRAGMA user_version = {SCHEMA_VERSION}; "
            f"PRAGMA application_id = {APPLICATION_ID};"
        )
        checksums.keep_checksums(connection)
    return connection


def open_existing(directory: Path) -> sqlite3.Connection:
    """The database of a run, to be written."""
    connection = _connect(directory, "rw")
    with closed_on_error(connection), explained(directory):
        _require_ours(connection, directory)
        _durable(connection, directory)
        checksums.keep_checksums(connection)
    return connection


def disorder(connection: sqlite3.Connection, tables: Iterable[str] | None = None) -> list[str]:
    """Faults in the database's own order, or that of some tables: its pages, and the indices by which it finds
    rows."""
    parts = [MOST_FAULTS] if tables is None else [table for table in tables if checksums.has_table(connection, table)]
    try:
        ((usual,),) = connection.execute("PRAGMA cache_size")
        connection.execute(f"PRAGMA cache_size = {-ORDER_CACHE}")
        said = [str(text) for part in parts for (text,) in connection.execute(f"PRAGMA integrity_check({part})")]
        connection.execute(f"PRAGMA cache_size = {usual}")
    except sqlite3.Error as error:
        said = [str(error)]
    return [line for text in said for line in text.splitlines() if text != "ok"]


def reindex_instructions(directory: Path) -> str:
    """Instructions to repair a database all of whose rows are intact."""
    return (
        "no row is known to be damaged, but the order in which the database finds them is: "
        f"`sqlite3 {shlex.quote(str(directory / DATABASE_FILE))} 'REINDEX; VACUUM'` makes that anew from the rows"
    )


def has_segments(connection: sqlite3.Connection) -> bool:
    """Whether texts of the run may lie outside the ledger."""
    return checksums.has_table(connection, "moved")


def has_token_logprobs(connection: sqlite3.Connection) -> bool:
    """Whether answers of the run may have their tokens with them."""
    return checksums.has_table(connection, "token_logprobs")


def keep_token_logprobs(connection: sqlite3.Connection) -> None:
    """Have a place for them from now on."""
    connection.execute(TOKEN_LOGPROBS)
    checksums.keep_checksums(connection)


def keep_segments(connection: sqlite3.Connection) -> str:
    """Let texts lie outside the ledger from now on; gives what tells the run from others of its name."""
    if not has_segments(connection):
        connection.executescript(
            f"BEGIN IMMEDIATE; {SEGMENTS}; INSERT INTO run VALUES ('key', '{uuid4().hex[:12]}'); "
            f"PRAGMA user_version = {SEGMENTED}; COMMIT;"
        )
        checksums.keep_checksums(connection)
    ((key,),) = connection.execute("SELECT value FROM run WHERE key = 'key'")
    return str(key)


def open_readonly(directory: Path, verify: str = VERIFY) -> sqlite3.Connection:
    """The database of a run that may be running in another process; `verify`: as in `explained`."""
    if not (directory / DATABASE_FILE).exists():
        why = f"there is no {DATABASE_FILE} in it" if directory.is_dir() else "it is not there"
        raise StoreError(f"{directory} holds no run: {why}")
    connection = _connect_to_read(directory)
    with closed_on_error(connection), explained(directory, verify):
        _require_ours(connection, directory)
    return connection


def open_if_begun(directory: Path) -> sqlite3.Connection | None:
    """The database of a run, or None where no run was begun: a start that was killed may have left one without a
    table."""
    if not (directory / DATABASE_FILE).exists():
        return None
    connection = _connect_to_read(directory)
    with closed_on_error(connection), explained(directory):
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.close()
            return None
        _require_ours(connection, directory)
    return connection


def _connect_to_read(directory: Path) -> sqlite3.Connection:
    if not is_locked(directory / LOCK_FILE):
        _require_whole_log(directory)
    # where nothing can be written, SQLite cannot share the database with anyone, and nobody is writing it
    unshared = not os.access(directory, os.W_OK) and not (directory / f"{DATABASE_FILE}-wal").exists()
    return _connect(directory, "ro&immutable=1" if unshared else "ro")


def identity(directory: Path) -> tuple[int, int] | None:
    """Device and inode of `run.sqlite`; None if there is none."""
    try:
        found = (directory / DATABASE_FILE).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def lost(directory: Path) -> StoreError:
    """The file was taken away under the run that writes it."""
    return StoreError(
        f"{directory / DATABASE_FILE} was removed or replaced while the run went on. Every trial that this start has "
        "committed, and those before it, are lost unless there is a copy: put the copy back and run the same command "
        "to go on from it, or run the same command with --fresh to begin anew"
    )


def empty_log(connection: sqlite3.Connection) -> None:
    """Bring everything into the one file: closing does that only where nobody else has the database open."""
    with suppress(sqlite3.Error):  # what is in the log is as safe there
        connection.execute(f"PRAGMA busy_timeout = {CLOSING_MS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def give_room_back(connection: sqlite3.Connection) -> None:
    """Make the file smaller where more than a quarter of it is empty, as texts leave it that have gone elsewhere."""
    ((empty,),), ((pages,),) = (connection.execute(f"PRAGMA {name}") for name in ("freelist_count", "page_count"))
    if 4 * empty > pages:
        with suppress(sqlite3.Error):  # it takes room for a while, or somebody reads: the next start does it
            connection.execute("VACUUM")


def is_run(directory: Path) -> bool:
    """Whether a run was begun here."""
    if not (directory / DATABASE_FILE).exists():
        return False
    _require_whole_log(directory)
    with closing(_connect(directory, "rw")) as connection, explained(directory):
        return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


def _require_whole_log(directory: Path) -> None:
    """Raise `StoreError` where commits of the log cannot be read: going on would lose them for good."""
    path = directory / DATABASE_FILE
    if path.is_file() and (lost := lost_commits(path)) > 1:
        raise StoreError(
            f"{path}-wal is damaged: the last {lost} commits in it cannot be read, and whoever opens it with SQLite "
            "loses them. Restore a copy of the whole directory, or begin anew with --fresh"
        )


@contextmanager
def explained(directory: Path, verify: str = VERIFY) -> Iterator[None]:
    """Turn SQLite's errors into `StoreError` and `StoreFull`, each saying what to do; `verify` says who knows more."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explanation(error, directory, verify) from error


def _explanation(error: sqlite3.Error, directory: Path, verify: str) -> StoreError:
    path = directory / DATABASE_FILE
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full. What was committed is intact: free space and run the same command")
    if not path.exists():
        return lost(directory)
    if code in _DAMAGED or str(error).startswith(_NO_TEXT + _NO_NAME):
        what = f"{path} is damaged or is no SQLite database ({error})"
        return StoreError(f"{what}{verify.format(directory)}; restore a copy of it, or begin anew with --fresh")
    return StoreError(f"{path}: {error}. What was committed is intact: mend the cause and run the same command")


def _connect(directory: Path, mode: str) -> sqlite3.Connection:
    path = directory / DATABASE_FILE
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    for file in (path, *(path.with_name(f"{path.name}-{what}") for what in BESIDE)):
        try:
            if file.exists():
                require_plain(file)
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}; {ANOTHER}") from error
    with explained(directory):
        # Used by one thread at a time: the main thread while it opens and closes, the writer's in between.
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
        connection.create_function("checksum", -1, checksums.checksum, deterministic=True)
        return connection


def _durable(connection: sqlite3.Connection, directory: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{directory}: the file system does not support a write-ahead log (journal mode {mode}); "
            "put the run directory on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")  # the triggers of the checksums need no file


def _require_ours(connection: sqlite3.Connection, directory: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreError(f"{directory / DATABASE_FILE} was not written by adaptive-eval; {ANOTHER}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (SCHEMA_VERSION, SEGMENTED):
        raise StoreError(
            f"{directory / DATABASE_FILE} has format {version}, and this version reads formats {SCHEMA_VERSION} and "
            f"{SEGMENTED}; "
            "use the version of adaptive-eval that wrote it"
        )
    for (made,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
        if not _PLAIN.match(made) and made.removeprefix("CREATE TRIGGER ") not in KEPT_SUMS:
            raise StoreError(
                f"{directory / DATABASE_FILE} brings SQL of its own ({made!a:.80}), which adaptive-eval has not "
                f"written and does not run; {ANOTHER}"
            )
