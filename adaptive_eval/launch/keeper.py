"""Keeps one server: starts it in a process group of its own, and ends all of it when it is time to.

    python keeper.py GRACE COMMAND [ARGUMENT ...]

It is time to when standard input ends, which it does when whoever holds its other end has ended, be it by SIGKILL; and
when the server itself has ended. All of it gets SIGTERM, GRACE seconds to comply, and then SIGKILL; a byte on
standard input means SIGKILL at once. Standard output tells, a line each: `pid N`, then `exit N`, `signal N`, or
`error TEXT` where the command cannot be started. The server's own output goes to standard error.

All of it is the process group, and on Linux also whatever the server has put into groups and sessions of their own:
what loses its parent becomes the keeper's child, so that nothing that descends from the server escapes. There the
keeper also ends when its parent does, and the server when the keeper does. It runs in an interpreter without site
packages, in 20 ms.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
AFTERWARDS = 2.0
"""Seconds that what a server leaves behind when it ends by itself has to follow it."""
KILL_SECONDS = 10.0
"""A process that was killed may take a while to give its memory back."""
POLL_SECONDS = 0.05
STDIN = 0


def main(grace: float, command: list[str]) -> None:
    """Keep a server until it is time to end it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    alarm = _alarm()
    try:
        server = _start(command)
    except (OSError, subprocess.SubprocessError) as error:
        _tell(f"error {error}")
        return
    _tell(f"pid {server.pid}")
    family = _Family(server)
    family.end(_wait(family, alarm, grace))


def _alarm() -> int:
    """A file that can be read when a signal has come."""
    alarm, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return alarm


def _wait(family: "_Family", alarm: int, grace: float) -> float:
    """Wait until it is time to end all of it; gives the seconds of grace."""
    while family.status is None:
        ready, _, _ = select.select([STDIN, alarm], [], [])
        if STDIN in ready:
            return 0.0 if os.read(STDIN, 1) else grace
        if any(number != signal.SIGCHLD for number in os.read(alarm, 64)):
            return grace
        family.reap()
    _tell_end(family.status)
    return AFTERWARDS


class _Family:
    """The processes of a server."""

    def __init__(self, server: "subprocess.Popen[bytes]") -> None:
        self._server = server  # kept: one that is dropped takes its exit status with it
        self._leader = server.pid
        self.status: int | None = None
        """How the server itself ended, as `waitpid` tells it."""

    def reap(self) -> None:
        """Take leave of every process that has ended."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self._leader:
                    self.status = found[1]

    def end(self, grace: float) -> None:
        """End every process, and wait until all are gone: the next server needs their memory."""
        if grace and self._signal(signal.SIGTERM) and self._gone_within(grace, 0):
            return
        self._gone_within(KILL_SECONDS, signal.SIGKILL)

    def _gone_within(self, seconds: float, number: int) -> bool:
        """Whether all are gone after this time; until then they get this signal again and again, as they may fork."""
        deadline = time.monotonic() + seconds
        while self._signal(number):
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _signal(self, number: int) -> bool:
        """Whether there was a process to get the signal."""
        self.reap()
        found = self._signal_group(number)
        for pid in _outside(self._leader):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                found = True
        return found

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self._leader, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # macOS says so of processes that have ended and were not waited for
            return self.status is None
        return True


def _outside(group: int) -> list[int]:
    """The descendants of this process that are not in the group; none where the system does not tell."""
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat") if sys.platform == "linux" else ():
        with suppress(OSError):  # it has ended by now
            pid, after_the_name = int(stat.parent.name), stat.read_bytes().rpartition(b")")[2]
            parent, groups[pid] = map(int, after_the_name.split()[1:3])
            children.setdefault(parent, []).append(pid)
    found = list(children.get(os.getpid(), ()))
    for pid in found:  # it grows meanwhile
        found += children.get(pid, ())
    return [pid for pid in found if groups[pid] != group]


def _start(command: list[str]) -> "subprocess.Popen[bytes]":
    """The server's process, the leader of a group of its own."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nothing, stdout=sys.stderr, process_group=0, preexec_fn=_die_with_the_keeper)


def _die_with_the_keeper() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _tell_end(status: int) -> None:
    code = os.waitstatus_to_exitcode(status)
    _tell(f"signal {-code}" if code < 0 else f"exit {code}")


def _tell(line: str) -> None:
    with suppress(OSError):  # nobody hears it any more
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
