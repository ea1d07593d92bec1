"""The temporary folder of a process that starts programs of others, and cleaning up after killed processes.

All files of these programs, such as the local sandboxes of Inspect, are in the folder, by which the programs are
identified if they inherit `VARIABLE`. The process holds a lock in the folder while it lives. The next process removes
all unlocked folders of the same prefix.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

LOCK = "lock"
VARIABLE = "TMPDIR"
"""Variable with the folder, which programs inherit and which identifies them."""


class TemporaryFolder:
    """A new temporary folder, locked so that no other process removes it."""

    def __init__(self, prefix: str) -> None:
        draft = Path(tempfile.mkdtemp(prefix=f".{prefix}"))
        self.lock = os.open(draft / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        """Descriptor of the lock. The child inherits it, and so holds the folder if this process is killed."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        # only now: another process would remove a folder of this name that is not locked yet
        self.path = draft.rename(draft.with_name(draft.name[1:]))

    def remove(self) -> None:
        """Remove the folder after the end of the process."""
        _remove_folder(self.path)
        os.close(self.lock)


def clear_leftovers(prefix: str) -> None:
    """Remove the folders of dead processes that have this prefix."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # locked, another user's, removed, or incomplete
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_folder(folder)
            finally:
                os.close(lock)


def _remove_folder(folder: Path) -> None:
    """Kill the programs that were started in the folder, if /proc lists them, and remove it."""
    mark = f"{VARIABLE}={folder}".encode()
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in place.read_bytes().split(b"\0"):
                os.kill(int(place.parent.name), SIGKILL)
    remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, write-protected folders, too; what cannot be removed stays."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.is_symlink() or not folder.is_dir():
        return
    with suppress(OSError):
        folder.chmod(0o700)
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
