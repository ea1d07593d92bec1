"""The temporary folder of a process of Inspect, and what a process that was killed has left there.

A local sandbox is a folder and the programs that run in it. All those of a process lie in a folder of its own, and are
known by it; a lock in it is held while the process lives. Whoever starts the next one clears away what nobody holds.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

PREFIX, LOCK = "adaptive-eval-inspect-", "lock"
VARIABLE = "TMPDIR"
"""What programs inherit, and are known by."""


class OwnFolder:
    """A new temporary folder, in which no other process clears away anything."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        """For the process, too, which holds it by that where this one is killed."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Clear it away, when the process is over."""
        _clear(self.path)
        os.close(self.lock)


def clear_leftovers() -> None:
    """Clear away what processes have left that are no more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is in use, somebody else's, gone, or not ready
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _clear(folder)
            finally:
                os.close(lock)


def _clear(folder: Path) -> None:
    """End the programs that were started there, as far as the system tells, and remove the folder."""
    mark = f"{VARIABLE}={folder}".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in place.read_bytes().split(b"\0"):
                os.kill(int(place.parent.name), SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
