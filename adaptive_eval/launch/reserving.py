"""Reserve what only one run on a machine may have: places, and ports for servers.

A place is reserved by a locked file in a folder that only its user can write. A port, which users share, is reserved by
binding the UDP port of the same number, which model servers do not use.
"""

import errno
import os
import socket
import stat
import tempfile
from hashlib import blake2b
from pathlib import Path

from adaptive_eval.errors import LaunchFailed
from adaptive_eval.launch.types import HOST


class ReservedPorts:
    """Ports reserved for one run or site among all on this machine, until they are released."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        """Detached from their sockets, which would warn if they were collected without `release`."""

    def take(self, port: int) -> bool:
        """Reserve a port; False if somebody has it."""
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind((HOST, port))
        except OSError as error:  # other errors say nothing about the port, which was chosen at random
            held.close()
            return error.errno != errno.EADDRINUSE
        self._descriptors.append(held.detach())
        return True

    def release(self) -> None:
        """Release all ports."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def reservation_file(word: str) -> Path:
    """Path of a place's file; machines that share the folder have different files."""
    digest = blake2b(f"{socket.gethostname()}\0{word}".encode(), digest_size=16).hexdigest()
    return _private_folder() / f"{digest}.lock"


def _private_folder() -> Path:
    """A folder where only this user can reserve places; raises `LaunchFailed` if there is none."""
    folder = Path(tempfile.gettempdir()) / f"adaptive-eval-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise LaunchFailed(
            f"cannot reserve a place in {folder}: {error.strerror}; set TMPDIR to a folder of yours"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        mend = "remove it, or set TMPDIR to a folder of yours"
        raise LaunchFailed(f"cannot reserve a place: {folder} is not a folder that only you can write; {mend}")
    return folder
