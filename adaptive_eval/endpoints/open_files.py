"""Open files: every request in flight is a connection, and every connection an open file of this process.

Where they run out (EMFILE: this process has as many as it may; ENFILE: the machine has), no server is at fault. A
request that finds none left is sent later, and fewer are in flight from then on; nothing is counted against a server,
and none is taken for dead.

Connections leave the last `SPARE` to the rest of the run: a store, a report or a grader that cannot open a file would
end it. The system gives the lowest free number, so that the number of a new one says how many are left.
"""

import errno
import os
import socket
import sys
from collections.abc import Iterator

import httpx2

MOST_FILES = 10_240
"""What macOS allows at most."""
SPARE = 32
BESIDE = 2
"""Connections to a server besides those of requests: for its health and its load."""
NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE})


class OutOfFiles(httpx2.ConnectError):
    """No connection, since this machine has no open file left for it."""


def allow(wanted: int) -> int:
    """Raise the soft limit so that so many files can be open, as far as it can be; gives what is allowed then."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(wanted, MOST_FILES)
    for limit in (most if hard == resource.RLIM_INFINITY else min(hard, most), MOST_FILES):
        if soft == resource.RLIM_INFINITY or soft >= limit:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except ValueError:  # macOS says that there is no hard limit, and has one
            continue
        soft = limit
    return max(wanted, MOST_FILES) if soft == resource.RLIM_INFINITY else soft


def limits() -> tuple[int, int]:
    """How many files this process may have open, and how many it could be allowed to."""
    if sys.platform == "win32":
        return MOST_FILES, MOST_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    return (sys.maxsize if soft == endless else soft), (sys.maxsize if hard == endless else hard)


def wanted_for(connections: int, servers: int) -> int:
    """Open files of a run with so many requests in flight at its servers."""
    return connections + BESIDE * servers + 2 * SPARE


def is_spare(descriptor: int) -> bool:
    """Whether an open file of this number is one of the last, which are not for connections."""
    soft, _ = limits()
    return descriptor >= soft - min(SPARE, soft // 4)


def is_out_of_files(error: BaseException) -> bool:
    """Whether an error comes from there being no open file left."""
    causes = list(_causes(error))
    if any(isinstance(one, OutOfFiles) or (isinstance(one, OSError) and one.errno in NONE_LEFT) for one in causes):
        return True
    # a name is not found either where nothing can be opened to look it up, and that is all that is said
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
    """Message for when open files have run out, with instructions."""
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
