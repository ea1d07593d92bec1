"""Directories of runs: which hold one, how they are named and prepared."""

import os
import re
from pathlib import Path

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import FileLock, is_locked, make_folder
from adaptive_eval.store.database import COMMITTED, DATABASE_FILE, LOCK_FILE

SHOWN_FILES = 3


def has_database(path: Path) -> bool:
    """Whether a path is the directory of a run, readable or not."""
    return (path / DATABASE_FILE).exists()


def is_held(directory: Path) -> bool:
    """Whether some process is writing the run now."""
    return is_locked(directory / LOCK_FILE)


def make_directory(directory: Path) -> None:
    """Make the directory of a run; raises `StoreError` if it holds other files and no run."""
    make_folder(directory, "Choose another --run-dir")
    if not has_database(directory) and (others := _other_files(directory)):
        raise StoreError(
            f"{directory} holds other files and no run ({others}); choose a --run-dir that is new or empty, "
            f"such as {directory / 'run'}"
        )


def require_nothing_lost(directory: Path, lock: FileLock) -> None:
    """Raise `StoreError` if a run was begun whose database has no tables. A start that was killed before its first
    commit leaves only the database, and has asked for nothing."""
    others = _other_files(directory, but=DATABASE_FILE)
    if others or COMMITTED in lock.before:
        left = f", and has left {others}" if others else ""
        raise StoreError(
            f"a run was begun in {directory}{left}, but {DATABASE_FILE} has nothing of it: the file or its log, "
            f"{DATABASE_FILE}-wal, is missing or damaged. Put it back, or restore a copy of the whole directory; to "
            "start over, use --fresh"
        )


def _other_files(directory: Path, but: str | None = None) -> str:
    """Names of other files for a message, without file `but` and SQLite's files beside it."""
    # the lock of a run that is beginning and hidden files do not count
    try:
        names = [path.name for path in directory.iterdir() if path.name != LOCK_FILE and path.name[0] != "."]
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error.strerror}; choose another --run-dir") from error
    others = sorted(name for name in names if but is None or not name.startswith(but))
    return ", ".join(others[:SHOWN_FILES]) + (" ..." if len(others) > SHOWN_FILES else "")


def runs_in(path: Path) -> dict[str, Path]:
    """Runs by name: the directory itself if it is one, else those in it; empty if it cannot be read."""
    if has_database(path):
        return {path.name: path}
    try:
        directories = sorted(path.iterdir())
    except OSError:  # it does not exist yet, or no longer
        return {}
    return {run.name: run for run in directories if os.access(run / DATABASE_FILE, os.R_OK)}


MARK = "~"
"""Precedes the number of a run that was begun with `--fresh`, as in `<folder>/<name>~2`; not allowed in run names."""


def newest_directory(folder: Path, name: str) -> Path:
    """The directory of the newest run of this name, or the plain name if there is none."""
    return folder / _numbered_name(name, max([1, *_used_numbers(folder, name)]))


def fresh_directory(folder: Path, name: str) -> Path:
    """The plain name, or the first numbered one, of which there is no run."""
    return folder / _numbered_name(name, max([0, *_used_numbers(folder, name)]) + 1)


def _has_only_hidden(path: Path) -> bool:
    """Whether nothing is in a directory but hidden files, as after a dry run."""
    try:
        return all(one.name[0] == "." for one in path.iterdir())
    except OSError:
        return False


def _numbered_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name}{MARK}{number}"


def _used_numbers(folder: Path, name: str) -> list[int]:
    names = [path.name for path in folder.iterdir() if not _has_only_hidden(path)] if folder.is_dir() else []
    pattern = re.compile(rf"{re.escape(name)}(?:{MARK}(\d+))?")
    return [int(match[1] or 1) for match in map(pattern.fullmatch, names) if match]
