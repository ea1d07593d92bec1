"""Keeps one server, or another command: starts it in its own process group, and ends all its processes at the end.

    python keeper.py GRACE STREAMS COMMAND [ARGUMENT ...]

STREAMS are the numbers of two inherited descriptors, `3,4`, which become the server's standard input and output; with
`-` it reads nothing, and its output goes to standard error, as its errors always do.

The keeper ends the server when its standard input is closed, which happens when its parent has ended, even by SIGKILL,
or when the server itself has ended. All processes get SIGTERM, then GRACE seconds, and then SIGKILL; a byte on standard
input means SIGKILL at once. Standard output has one line each: `pid N`, then `exit N` or `signal N`; or
`error TEXT` if the command cannot be started.

All processes are those of the group, and on Linux also descendants in groups and sessions of their own: orphans become
children of the keeper, so no descendant escapes. There the keeper also ends when its parent does, and the server when
the keeper does. It starts in an interpreter without site packages, and without pathlib, since that
takes half as long.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LEFTOVER_SECONDS = 2.0
"""Grace for the remaining processes of a server that has ended by itself."""
KILL_SECONDS = 10.0
"""Wait for killed processes, which may take a while to free their memory."""
POLL_SECONDS = 0.05
STDIN = 0


def main(grace: float, streams: str, command: list[str]) -> None:
    """Keep a server until its end."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    alarm = _signal_pipe()
    try:
        server = _start_server(command, *_descriptors(streams))
    except (OSError, subprocess.SubprocessError) as error:
        _print_line(f"error {error}")
        return
    _print_line(f"pid {server.pid}")
    family = _ProcessTree(server)
    family.end(_wait(family, alarm, grace))


def _signal_pipe() -> int:
    """Make a pipe that becomes readable on a signal, and return its end to read."""
    alarm, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return alarm


def _wait(family: "_ProcessTree", alarm: int, grace: float) -> float:
    """Wait for the end, and return the seconds of grace."""
    while family.status is None:
        ready, _, _ = select.select([STDIN, alarm], [], [])
        if STDIN in ready:
            return 0.0 if os.read(STDIN, 1) else grace
        if any(number != signal.SIGCHLD for number in os.read(alarm, 64)):
            return grace
        family.reap()
    code = os.waitstatus_to_exitcode(family.status)
    _print_line(f"signal {-code}" if code < 0 else f"exit {code}")
    return LEFTOVER_SECONDS


class _ProcessTree:
    """All processes of a server."""

    def __init__(self, server: "subprocess.Popen[bytes]") -> None:
        self._server = server  # keeps a reference, since a collected `Popen` reaps its process
        self._leader = server.pid
        self.status: int | None = None
        """Exit status of the server itself, as from `waitpid`; None while it runs."""

    def reap(self) -> None:
        """Reap all processes that have ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._leader:
                    self.status = ended[1]

    def end(self, grace: float) -> None:
        """End all processes and wait until they are gone, since the next server needs their memory."""
        if grace and self._signal(signal.SIGTERM) and self._wait_until_gone(grace, 0):
            return
        self._wait_until_gone(KILL_SECONDS, signal.SIGKILL)

    def _wait_until_gone(self, seconds: float, number: int) -> bool:
        """Wait until all are gone, and return whether they are; the signal is repeated, since processes may fork."""
        deadline = time.monotonic() + seconds
        while self._signal(number):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _signal(self, number: int) -> bool:
        """Signal all processes, and return whether there were any."""
        self.reap()
        any_signalled = self._signal_group(number)
        for pid in _descendants_outside(self._leader):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                any_signalled = True
        return any_signalled

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self._leader, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS reports this for zombies
            return self.status is None
        return True


def _descendants_outside(group: int) -> list[int]:
    """Descendants of this process outside the group; empty if the system does not list them."""
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    listed = os.listdir("/proc") if sys.platform == "linux" else []  # noqa: PTH208
    for pid in map(int, filter(str.isdecimal, listed)):
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  (it may have ended by now)
            parent, groups[pid] = map(int, stat.read().rpartition(b")")[2].split()[1:3])
            children.setdefault(parent, []).append(pid)
    descendants = list(children.get(os.getpid(), ()))
    for pid in descendants:  # grows in the loop
        descendants += children.get(pid, ())
    return [pid for pid in descendants if groups[pid] != group]


def _descriptors(streams: str) -> tuple[int, int]:
    """The descriptors of the server's standard input and output."""
    if streams == "-":
        return os.open(os.devnull, os.O_RDONLY), os.dup(2)
    read, written = streams.split(",")
    return int(read), int(written)


def _start_server(command: list[str], read: int, written: int) -> "subprocess.Popen[bytes]":
    """Start the server as the leader of its own process group, and close both descriptors, which are its alone."""
    keeper = os.getpid()

    def die_with_keeper() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it was killed just before
            os._exit(1)

    try:
        return subprocess.Popen(command, stdin=read, stdout=written, process_group=0, preexec_fn=die_with_keeper)
    finally:
        os.close(read)
        os.close(written)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _print_line(line: str) -> None:
    with suppress(OSError):  # the reader is gone
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3:])
