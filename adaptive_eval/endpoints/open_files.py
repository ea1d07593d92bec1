"""Limits of open files: every request in flight needs a connection, which is an open file of this process.

A lack of them (EMFILE in this process, ENFILE on the machine) is no server's fault. A request without a file is sent
later, fewer are in flight from then on, and no server is considered dead.

The last `SPARE` files are left for the rest of the run: a store, report or grader that cannot open a file would end it.
The system assigns the lowest free number, so that a new file's number shows how many are left.
"""

import errno
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress

MOST_FILES = 10_240
"""The most that macOS allows."""
SPARE = 32
BESIDE = 2
"""Connections to a server besides those for requests: for its health and its load."""
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})


def allow(wanted: int) -> int:
    """Raise the soft limit as far as possible towards this number of open files; returns the resulting limit."""
    soft, hard = limits()
    for limit in (min(hard, max(wanted, MOST_FILES)), MOST_FILES):
        if soft >= limit:
            break
        with suppress(ValueError):  # macOS reports no hard limit, but has one
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = limit
    return soft


def limits() -> tuple[int, int]:
    """The soft and the hard limit on the open files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return (sys.maxsize if soft == endless else soft), (sys.maxsize if hard == endless else hard)


def wanted_for(connections: int, servers: int) -> int:
    """Open files needed by a run with this many requests in flight."""
    return connections + BESIDE * servers + 2 * SPARE


def is_spare(descriptor: int) -> bool:
    """Whether an open file of this number is one of the last, which are reserved."""
    soft, _ = limits()
    return descriptor >= soft - min(SPARE, soft // 4)


def is_out_of_files(error: BaseException) -> bool:
    """Whether an error was caused by a lack of open files."""
    causes = list(_causes(error))
    if any(isinstance(one, OSError) and one.errno in NONE_LEFT for one in causes):
        return True
    # looking up a name needs a file, too, and its error says only that the name was not found
    return any(isinstance(one, socket.gaierror) for one in causes) and not _any_left()


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        left += [one.__cause__, one.__context__]
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    yield from seen


def _any_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in NONE_LEFT
    return True


def shortage_message() -> str:
    """Message for a lack of open files, with what to do."""
    soft, _ = limits()
    return (
        f"this machine, not a server, is short of open files ({soft:,} for this process): fewer requests are in flight "
        f"at a time. {_mend(2 * soft)}"
    )


def too_few(wanted: int, allowed: int) -> str:
    """Message for a run that may need more open files than are allowed."""
    return (
        f"the run may want {wanted:,} open files, one for each request in flight, and this machine allows this process "
        f"{allowed:,}: fewer will be in flight at a time. {_mend(wanted)}"
    )


def _mend(wanted: int) -> str:
    _, hard = limits()
    who = "" if wanted <= hard else f" (beyond the hard limit of {hard:,}, which an administrator can raise)"
    return f"Raise the limit before the run (`ulimit -n {wanted}`{who}), or lower `concurrency`"
