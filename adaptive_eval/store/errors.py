"""SQLite's errors as errors of a run, each with what to do about it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adaptive_eval.base.errors import NEW_RUN, DamagedValue, StoreError, StoreFull

DATABASE_FILE = "run.sqlite"
VERIFY = ". `adaptive-eval verify {}` says where"
"""Follows a report of damage; left out by `verify` itself."""
INTACT = "What was committed is intact: fix the cause and run the same command"
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_BAD_TEXT = ("Could not decode", "user-defined function raised exception", "malformed JSON")
_CHANGED_SCHEMA = ("no such column", "no such table")
"""SQLite's messages for a changed schema: every run has all tables."""


@contextmanager
def translate_errors(directory: Path, verify: str = VERIFY) -> Iterator[None]:
    """Raise `StoreError` or `StoreFull` for SQLite's errors; `verify` is added to a report of damage."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, directory, verify) from error
    except UnicodeDecodeError as error:  # SQLite quotes a damaged schema as it is
        raise _unreadable(error, directory, verify) from error


def _translated(error: sqlite3.Error, directory: Path, verify: str) -> StoreError:
    path = directory / DATABASE_FILE
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: the disk is full. What was committed is intact: free space and run the same command")
    if not path.exists():
        return replaced_file(directory)
    if code in _DAMAGED or str(error).startswith(_BAD_TEXT + _CHANGED_SCHEMA):
        return _unreadable(error, directory, verify)
    return StoreError(f"{path}: {error}. {INTACT}")


def _unreadable(error: Exception, directory: Path, verify: str) -> StoreError:
    what = f"{directory / DATABASE_FILE} is damaged or is not an SQLite database ({error})"
    return StoreError(f"{what}{verify.format(directory)}; restore a copy of it, or {NEW_RUN}")


def damaged(directory: Path, what: object) -> StoreError:
    """The error of a database with a damaged row or structure."""
    return StoreError(
        f"{directory / DATABASE_FILE} is damaged: {what}. `adaptive-eval verify {directory}` lists all that is; "
        f"restore a copy of it, or {NEW_RUN}"
    )


@contextmanager
def name_run(directory: Path) -> Iterator[None]:
    """Name the run in errors about damaged values."""
    try:
        yield
    except DamagedValue as error:
        raise damaged(directory, error.what) from error


def replaced_file(directory: Path) -> StoreError:
    """The error of a database file that was removed or replaced while a run was writing it."""
    return StoreError(
        f"{directory / DATABASE_FILE} was removed or replaced during the run. All its trials are lost unless "
        f"you have a copy: put the copy back and run the same command, or {NEW_RUN}"
    )
