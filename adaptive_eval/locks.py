"""Locks between processes: an operating-system lock on a file, which dies with its holders however they end."""

import fcntl
import json
import os
import socket
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

_held: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


class FileLock:
    """Holds a file until `release`, and says in it who holds it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        """Whoever inherits it holds the lock, too; -1 after the release."""
        _held.add(self)

    @classmethod
    def take(cls, path: Path, **said: str) -> Self:
        """Take the lock, or raise `OSError`: `BlockingIOError` where it is held; `said` is what `holder_of` gives."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_holder(descriptor, said)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def release(self) -> None:
        """Let go; a second call does nothing. The file stays: removing it would race with the next holder."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def is_locked(path: Path) -> bool:
    """Whether someone holds the file now."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder_of(path: Path) -> Mapping[str, object]:
    """Who took the lock last: `pid`, `host`, `since` and what it said; empty while that is being written."""
    try:
        holder = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) and holder.keys() >= {"pid", "host", "since"} else {}


def _write_holder(descriptor: int, said: Mapping[str, str]) -> None:
    since = datetime.now(UTC).isoformat("T", "seconds")
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since, **said}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _release_in_child() -> None:
    """A forked child shares its parent's lock: without this, a grader that outlives a killed run would hold it."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)
