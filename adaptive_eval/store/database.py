"""`run.sqlite`: opened for writing by one process at a time, with SQLite's errors translated for the user.

Write-ahead log with `synchronous = FULL`: a commit survives not only the death of the process (for which NORMAL would
do) but a power failure as well, so that a look that a person has seen is never contradicted by trials that were asked
again and came out differently. It costs one fsync per group commit, in the writer's thread, off the loop: at 75 trials
a commit 10 microseconds a trial instead of 9.5.
"""

import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from adaptive_eval.base.errors import RunLocked, StoreError, StoreFull
from adaptive_eval.base.files import FileLock, closed_on_error, is_locked, read_holder, require_plain
from adaptive_eval.store.checksums import checksum
from adaptive_eval.store.tables import TABLES

LOCK_FILE = "lock"
COMMITTED = "committed"
"""What the writer of a run notes in its lock after each commit: the number of the last trial. It stands outside the
database and its log, so that a log that is missing or cut off is noticed."""
TRIES, PAUSE = 10, 0.02
"""Attempts to take the lock: a process that only tests it holds it for microseconds."""


def lock_run(directory: Path) -> FileLock:
    """Lock a run directory; raises `RunLocked` naming the holder, or `StoreError` if no file can be written."""
    path = directory / LOCK_FILE
    require_no_links(directory)
    for _ in range(TRIES):
        try:
            return FileLock.take(path, keep=[COMMITTED])
        except BlockingIOError:
            time.sleep(PAUSE)
        except OSError as error:
            mend = "mend that, or choose another --run-dir"
            raise StoreError(f"cannot write {path}: {error.strerror}; {mend}") from error
    holder = read_holder(path)
    who = "process {pid} on {host} since {since}".format(**holder) if holder else "another process"
    raise RunLocked(
        f"{directory} is held by {who}. Two processes cannot write one run: "
        "wait for it, stop it, or start another run with --run-dir"
    )


def require_no_links(directory: Path) -> None:
    """Raise `StoreError` if a file that a run writes is a link, through which it would write elsewhere."""
    inside = (*directory.glob("logs/*"), *directory.glob("logs/inspect/*"))
    for path in (*(one for one in directory.glob("*") if one.name.startswith(WRITTEN)), *inside):
        if path.is_symlink():
            raise StoreError(
                f"{path} is a link, and a run writes to its own directory only: replace the link by its target"
            )


DATABASE_FILE = "run.sqlite"
WRITTEN = (DATABASE_FILE, "logs")
"""Files and folders that are written in place; others are replaced as a whole, or checked elsewhere."""
SIDE_FILES = ("wal", "journal", "shm")
"""Suffixes of the files that SQLite opens with the database."""
ANOTHER = "give the directory of a run, or one that is new"
WITHOUT_LOG = (
    "Put it back, or restore a copy of the whole directory; to go on with what is there, remove {lock}; to start over, "
    "use --fresh"
)
"""The hint where trials were committed that cannot be read."""

APPLICATION_ID = 0x61644576
"""Marks the file as one of adaptive-eval (PRAGMA application_id)."""

SCHEMA_VERSION = 2
"""PRAGMA user_version; a file with another number is refused."""

BUSY_SECONDS = 30.0
"""How long to wait for a reader that blocks a checkpoint."""

MOST_FAULTS = 20
"""Most faults that SQLite's integrity check lists: with more, the file is beyond repair."""

ORDER_CACHE = 16 * 1024
"""KiB of page cache during that check: with the default of 2 MiB it takes three times as long, since rows are visited
in another order than they were written in."""

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BAD_TEXT = ("Could not decode", "user-defined function raised exception", "malformed JSON")
"""SQLite's messages for text that is not UTF-8 or not JSON, which is never written."""
VERIFY = ". `adaptive-eval verify {}` says where"
"""The hint that follows a report of damage; left out by `verify` itself."""
_PLAIN = re.compile(r"CREATE (TABLE|(UNIQUE )?INDEX) ")
"""Matches schema entries that only hold data: no trigger, view or virtual table."""
_CHANGED_SCHEMA = ("no such column", "no such table")
"""SQLite's messages for a changed schema, since every run has all tables."""


def create(directory: Path) -> sqlite3.Connection:
    """Create a database with empty tables in a transaction that the caller completes and commits.

    A crash before that leaves a database without tables, for which `is_run` is false.
    """
    connection = _connect(directory, "rwc")
    with closed_on_error(connection), explained(directory):
        _enable_durable_log(connection, directory)
        connection.executescript(
            f"BEGIN IMMEDIATE; {TABLES}; PRAGMA user_version = {SCHEMA_VERSION}; "
            f"PRAGMA application_id = {APPLICATION_ID};"
        )
    return connection


def open_existing(directory: Path) -> sqlite3.Connection:
    """Open the database of a run for writing."""
    connection = _connect(directory, "rw")
    with closed_on_error(connection), explained(directory):
        _require_ours(connection, directory)
        _enable_durable_log(connection, directory)
    return connection


def write_to_file(connection: sqlite3.Connection) -> None:
    """Move what the log has into the file itself, so that the file alone says what run it is."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def newest_trial(connection: sqlite3.Connection) -> int:
    """The number of the last trial; 0 before the first."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM trials").fetchone()[0])


def missing_commits(directory: Path, connection: sqlite3.Connection, noted: object) -> str | None:
    """What is wrong if trials were committed that cannot be read; `noted` is what the lock says (`COMMITTED`)."""
    last = newest_trial(connection)
    if not isinstance(noted, int) or noted <= last:
        return None
    return (
        f"{directory / DATABASE_FILE} has {last:,} trials, but {noted:,} were committed: its log, "
        f"{DATABASE_FILE}-wal, is missing or damaged"
    )


def structure_faults(connection: sqlite3.Connection) -> list[str]:
    """Faults that SQLite finds in the pages and indices of the database."""
    try:
        ((usual,),) = connection.execute("PRAGMA cache_size")
        connection.execute(f"PRAGMA cache_size = {-ORDER_CACHE}")
        said = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})")]
        connection.execute(f"PRAGMA cache_size = {usual}")
    except (sqlite3.Error, UnicodeDecodeError) as error:  # a damaged schema is quoted as it is
        said = [str(error)]
    return [line for text in said for line in text.splitlines() if text != "ok"]


def reindex_instructions(directory: Path) -> str:
    """Instructions for rebuilding the indices of a database with intact rows."""
    return (
        "no row is known to be damaged, but the order in which the database finds them is: "
        f"`sqlite3 {shlex.quote(str(directory / DATABASE_FILE))} 'REINDEX; VACUUM'` makes that anew from the rows"
    )


def open_readonly(directory: Path, verify: str = VERIFY) -> sqlite3.Connection:
    """Open the database of a run for reading, while another process may write it; `verify` is that of `explained`."""
    if not (directory / DATABASE_FILE).exists():
        why = f"there is no {DATABASE_FILE} in it" if directory.is_dir() else "it is not there"
        raise StoreError(f"{directory} holds no run: {why}")
    connection = _connect_to_read(directory)
    with closed_on_error(connection), explained(directory, verify):
        _require_ours(connection, directory)
        if verify:  # else all damages are listed
            require_whole(connection, directory, noted_commits(directory))
    return connection


def noted_commits(directory: Path) -> object:
    """What the lock of a run says of commits; None while the run is being written."""
    return None if is_locked(directory / LOCK_FILE) else read_holder(directory / LOCK_FILE).get(COMMITTED)


def require_whole(connection: sqlite3.Connection, directory: Path, noted: object) -> None:
    """Raise `StoreError` if trials were committed that cannot be read; `noted` is what the lock says of commits."""
    if (problem := missing_commits(directory, connection, noted)) is not None:
        raise StoreError(f"{problem}. {WITHOUT_LOG.format(lock=directory / LOCK_FILE)}")


def open_if_begun(directory: Path) -> sqlite3.Connection | None:
    """Open the database of a run for reading; None if no run was begun: a killed start may leave one without tables."""
    if not (directory / DATABASE_FILE).exists():
        return None
    connection = _connect_to_read(directory)
    with closed_on_error(connection), explained(directory):
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.close()
            return None
        _require_ours(connection, directory)
        require_whole(connection, directory, noted_commits(directory))
    return connection


def _connect_to_read(directory: Path) -> sqlite3.Connection:
    # in a read-only directory SQLite cannot share the database, and nobody is writing it
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
    """The error of a database file that was removed or replaced while a run was writing it."""
    return StoreError(
        f"{directory / DATABASE_FILE} was removed or replaced while the run went on. Every trial that this start has "
        "committed, and those before it, are lost unless there is a copy: put the copy back and run the same command "
        "to go on from it, or run the same command with --fresh to start over"
    )


def is_run(directory: Path) -> bool:
    """Whether a run was begun in this directory."""
    if not (directory / DATABASE_FILE).exists():
        return False
    with closing(_connect(directory, "rw")) as connection, explained(directory):
        return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


@contextmanager
def explained(directory: Path, verify: str = VERIFY) -> Iterator[None]:
    """Turn SQLite's errors into `StoreError` and `StoreFull`, each saying what to do; `verify` is added to damage."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explanation(error, directory, verify) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged schema as it is
        raise _damaged(error, directory, verify) from error


def _explanation(error: sqlite3.Error, directory: Path, verify: str) -> StoreError:
    path = directory / DATABASE_FILE
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full. What was committed is intact: free space and run the same command")
    if not path.exists():
        return lost(directory)
    if code in _DAMAGED or str(error).startswith(_BAD_TEXT + _CHANGED_SCHEMA):
        return _damaged(error, directory, verify)
    return StoreError(f"{path}: {error}. What was committed is intact: mend the cause and run the same command")


def _damaged(error: Exception, directory: Path, verify: str) -> StoreError:
    what = f"{directory / DATABASE_FILE} is damaged or is not an SQLite database ({error})"
    return StoreError(f"{what}{verify.format(directory)}; restore a copy of it, or start over with --fresh")


def _connect(directory: Path, mode: str) -> sqlite3.Connection:
    path = directory / DATABASE_FILE
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    for file in (path, *(path.with_name(f"{path.name}-{what}") for what in SIDE_FILES)):
        try:
            if file.exists():
                require_plain(file)
        except OSError as error:
            raise StoreError(f"{file} cannot be read: {error.strerror}; {ANOTHER}") from error
    with explained(directory):
        # used by one thread at a time: the main thread opens and closes it, the writer's uses it in between
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
        connection.create_function("checksum", -1, checksum, deterministic=True)
        return connection


def _enable_durable_log(connection: sqlite3.Connection, directory: Path) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(
            f"{directory}: the file system does not support a write-ahead log (journal mode {mode}); "
            "put the run directory on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")


def _require_ours(connection: sqlite3.Connection, directory: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreError(f"{directory / DATABASE_FILE} was not written by adaptive-eval; {ANOTHER}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{directory / DATABASE_FILE} has format {version}, and this version reads format {SCHEMA_VERSION}; "
            "use the version of adaptive-eval that wrote it"
        )
    for (made,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
        if not _PLAIN.match(made):
            raise StoreError(
                f"{directory / DATABASE_FILE} brings SQL of its own ({made!a:.80}), which adaptive-eval has not "
                f"written and does not run; {ANOTHER}"
            )
