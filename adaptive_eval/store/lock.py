"""One process per run directory: an operating-system lock, which dies with its process however that ends."""

import fcntl
import json
import os
import socket
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from adaptive_eval.errors import RunLocked, StoreError

LOCK_FILE = "lock"
TRIES, PAUSE = 10, 0.02
"""A lock that is only being looked at is free again in microseconds."""

_held: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


class RunLock:
    """Holds `<run directory>/lock` until `release`, and says in it who holds it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _held.add(self)

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Take the lock, or raise `RunLocked` naming its holder, or `StoreError` where no file can be written."""
        path, descriptor = directory / LOCK_FILE, -1
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            _lock(descriptor)
            _write_holder(descriptor)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise _refusal(directory, path, error) from error
        return cls(descriptor)

    def release(self) -> None:
        """Let go; a second call does nothing. The file stays: removing it would race with the next holder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(directory: Path) -> bool:
    """Whether a process is writing the run now."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int) -> None:
    for left in reversed(range(TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(PAUSE)


def _write_holder(descriptor: int) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat("T", "seconds")}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _refusal(directory: Path, path: Path, error: OSError) -> StoreError:
    if isinstance(error, BlockingIOError):
        return RunLocked(
            f"{directory} is held by {_holder(path)}. Two processes cannot write one run: "
            "wait for it, stop it, or start another run with --run-dir"
        )
    return StoreError(f"cannot write {path}: {error.strerror}; mend that, or choose another --run-dir")


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError):  # the holder is between taking the lock and writing its name
        return "another process"


def _release_in_child() -> None:
    """A forked child shares its parent's lock: without this, a grader that outlives a killed run would hold it."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)
