"""What runs on one machine must not have at the same time: places, and ports where a server is to listen.

A place is a locked file in a folder that only its user can write; a port, which users share, is the UDP port of the
same number, which no server of models listens at.
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
    """The ports of one run, or of one site: nobody else on this machine is given one until they are let go."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        """Of sockets: whoever forgets to let go of them does so when the ports are collected, without a warning."""

    def take(self, port: int) -> bool:
        """Whether nobody has the port, who is to have it from now on."""
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            held.bind((HOST, port))
        except OSError as error:  # any other than that says nothing of the port: it is chosen at random
            held.close()
            return error.errno != errno.EADDRINUSE
        self._descriptors.append(held.detach())
        return True

    def release(self) -> None:
        """Let go of all of them."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def reservation_file(word: str) -> Path:
    """The file of what is called so; other machines that see the same folder have files of their own."""
    digest = blake2b(f"{socket.gethostname()}\0{word}".encode(), digest_size=16).hexdigest()
    return _folder() / f"{digest}.lock"


def _folder() -> Path:
    """A folder where nobody else can hold a place, or say who does; raises `LaunchFailed` where there is none."""
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
        raise LaunchFailed(f"cannot reserve a place: {folder} is no folder that only you can write; {mend}")
    return folder
