"""Which processes there are, for tests that ask until one has come or gone: `ps` takes a third of a core for that."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sized
from pathlib import Path

from patient_time import HANGS

PROC = Path("/proc")


def commands() -> Iterator[tuple[str, str]]:
    """Number and command of each process that has not ended."""
    if not (PROC / "self" / "cmdline").exists():
        listing = subprocess.run(["ps", "-eww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True)
        for pid, stat, command in (line.split(maxsplit=2) for line in listing.stdout.splitlines()):
            if not stat.startswith("Z"):
                yield pid, command
        return
    for place in PROC.glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has gone meanwhile
            continue
        yield place.name, command.strip()  # nothing, if it has ended and nobody has asked how


def all_end(find: Callable[[], Sized]) -> bool:
    """Whether a time comes at which none of these processes is found."""
    deadline = time.monotonic() + HANGS
    while find():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
