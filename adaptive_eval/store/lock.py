"""One process per run directory."""

import time
from pathlib import Path
from typing import Self

from adaptive_eval.errors import RunLocked, StoreError
from adaptive_eval.locks import FileLock, holder_of, is_locked

LOCK_FILE = "lock"
TRIES, PAUSE = 10, 0.02
"""A lock that is only being looked at is free again in microseconds."""


class RunLock(FileLock):
    """Holds `<run directory>/lock`."""

    @classmethod
    def acquire(cls, directory: Path) -> Self:
        """Take the lock, or raise `RunLocked` naming its holder, or `StoreError` where no file can be written."""
        path, left = directory / LOCK_FILE, TRIES
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


def is_held(directory: Path) -> bool:
    """Whether a process is writing the run now."""
    return is_locked(directory / LOCK_FILE)


def _refusal(directory: Path, path: Path) -> RunLocked:
    holder = holder_of(path)
    who = "process {pid} on {host} since {since}".format(**holder) if holder else "another process"
    return RunLocked(
        f"{directory} is held by {who}. Two processes cannot write one run: "
        "wait for it, stop it, or start another run with --run-dir"
    )
