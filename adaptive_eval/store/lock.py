"""The lock of a run directory: one process at a time writes a run.

After each commit the writer notes the newest sequence number in the lock. That stands outside the database and its
write-ahead log, so that a log that is missing or cut off is noticed.
"""

import time
from pathlib import Path

from adaptive_eval.base.errors import NEW_RUN, RunLocked, StoreError
from adaptive_eval.base.files import FileLock, held_in_words, is_locked, make_folder, read_holder
from adaptive_eval.store.errors import DATABASE_FILE

LOCK_FILE = "lock"
COMMITTED = "committed"
"""Under this name the lock says the newest sequence number."""
ATTEMPTS, PAUSE_SECONDS = 10, 0.02
"""A process that only tests the lock holds it for microseconds."""
SHOWN_FILES = 3
WRITTEN = (DATABASE_FILE, "logs")
"""Files and folders that are written in place; others are replaced as a whole, or checked elsewhere."""


def lock_run(directory: Path) -> FileLock:
    """Lock a run directory; raises `RunLocked` naming the holder, or `StoreError` if no file can be written."""
    path = directory / LOCK_FILE
    require_no_links(directory)
    for _ in range(ATTEMPTS):
        try:
            return FileLock.take(path, keep=[COMMITTED])
        except BlockingIOError:
            time.sleep(PAUSE_SECONDS)
        except OSError as error:
            hint = "fix that, or use another run directory"
            raise StoreError(f"cannot write {path}: {error.strerror}; {hint}") from error
    raise RunLocked(
        f"{held_in_words(directory, path)}. Two processes cannot write one run: "
        "wait for it, stop it, or start another run with --run-dir"
    )


def is_held(directory: Path) -> bool:
    """Whether some process is writing the run now."""
    return is_locked(directory / LOCK_FILE)


def noted_seq(directory: Path) -> int | None:
    """The newest sequence number that was committed; None while the run is being written, or if nothing was."""
    noted = None if is_held(directory) else read_holder(directory / LOCK_FILE).get(COMMITTED)
    return noted if isinstance(noted, int) else None


def missing_commits(directory: Path, last: int, noted: object) -> str | None:
    """The problem if rows were committed that cannot be read; `last` is the newest one that can."""
    if not isinstance(noted, int) or noted <= last:
        return None
    return (
        f"{directory / DATABASE_FILE} ends with record {last:,}, but {noted:,} were committed: its log, "
        f"{DATABASE_FILE}-wal, is missing or damaged"
    )


def require_whole(directory: Path, last: int, noted: object) -> None:
    """Raise `StoreError` if rows were committed that cannot be read."""
    if (problem := missing_commits(directory, last, noted)) is not None:
        raise StoreError(
            f"{problem}. Put it back, or restore a copy of the whole directory; to continue without it, remove "
            f"{directory / LOCK_FILE}; or {NEW_RUN}"
        )


def make_directory(directory: Path) -> None:
    """Make the directory of a run; raises `StoreError` if it holds other files and no run."""
    make_folder(directory, "Use another run directory")
    if not (directory / DATABASE_FILE).exists() and (others := other_files(directory)):
        raise StoreError(
            f"{directory} has other files and no run ({others}); choose a --run-dir that is new or empty, "
            f"such as {directory / 'run'}"
        )


def require_nothing_lost(directory: Path, lock: FileLock) -> None:
    """Raise `StoreError` if a run was started but its database has no tables. A start that was killed before its first
    commit leaves only the database, and has requested nothing."""
    others = other_files(directory, but=DATABASE_FILE)
    if others or COMMITTED in lock.before:
        remains = f" and left {others}" if others else ""
        raise StoreError(
            f"a run was started in {directory}{remains}, but {DATABASE_FILE} is empty: the file or its log, "
            f"{DATABASE_FILE}-wal, is missing or damaged. Put it back, or restore a copy of the whole directory; "
            f"or {NEW_RUN}"
        )


def require_no_links(directory: Path) -> None:
    """Raise `StoreError` if a file that a run writes is a link, through which it would write elsewhere."""
    inside = (*directory.glob("logs/*"), *directory.glob("logs/inspect/*"))
    for path in (*(path for path in directory.glob("*") if path.name.startswith(WRITTEN)), *inside):
        if path.is_symlink():
            raise StoreError(
                f"{path} is a link, and a run writes to its own directory only: replace the link by its target"
            )


def other_files(directory: Path, but: str | None = None) -> str:
    """Names of other files for a message, without file `but` and SQLite's files beside it. The lock of a run that is
    beginning, and hidden files, do not count."""
    try:
        names = [path.name for path in directory.iterdir() if path.name != LOCK_FILE and path.name[0] != "."]
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error.strerror}; use another run directory") from error
    others = sorted(name for name in names if but is None or not name.startswith(but))
    return ", ".join(others[:SHOWN_FILES]) + (" ..." if len(others) > SHOWN_FILES else "")
