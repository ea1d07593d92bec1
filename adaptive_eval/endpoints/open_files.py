"""Limits of open files: every request in flight needs a connection, which is an open file of this process.

A shortage (EMFILE in this process, ENFILE on the machine) is not a server's fault. A request without a file is sent
later, fewer are in flight from then on, and no server is considered dead.

The last `RESERVED_FILES` files are reserved for the store, reports and graders: if these cannot open a file, the run
fails. The system assigns the lowest free number, so a new file's number shows how many remain.
"""

import errno
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress

MAX_FILES_MACOS = 10_240
"""Maximum on macOS."""
RESERVED_FILES = 32
OUT_OF_FILES_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})


def allow(needed: int) -> int:
    """Raise the soft limit as far as possible towards this number of open files; returns the resulting limit."""
    soft, hard = limits()
    for limit in (min(hard, max(needed, MAX_FILES_MACOS)), MAX_FILES_MACOS):
        if soft >= limit:
            break
        with suppress(ValueError):  # macOS reports no hard limit, but has one
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            soft = limit
    return soft


def limits() -> tuple[int, int]:
    """The soft and the hard limit on the open files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    return (sys.maxsize if soft == unlimited else soft), (sys.maxsize if hard == unlimited else hard)


def files_needed(connections: int, servers: int) -> int:
    """Open files needed by a run with this many requests in flight; health and load of a server take two more."""
    return connections + 2 * servers + 2 * RESERVED_FILES


def is_reserved(descriptor: int) -> bool:
    """Whether an open file of this number is one of the last, which are reserved."""
    soft, _ = limits()
    return descriptor >= soft - min(RESERVED_FILES, soft // 4)


def is_out_of_files(error: BaseException) -> bool:
    """Whether an error was caused by a lack of open files."""
    causes = list(_causes(error))
    if any(isinstance(cause, OSError) and cause.errno in OUT_OF_FILES_ERRNOS for cause in causes):
        return True
    # resolving a name needs a file, too, and its error reports only that the name was not found
    return any(isinstance(cause, socket.gaierror) for cause in causes) and not _can_open_file()


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        cause = pending.pop()
        if cause is None or cause in seen:
            continue
        seen.append(cause)
        pending += [cause.__cause__, cause.__context__]
        pending += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
    yield from seen


def _can_open_file() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in OUT_OF_FILES_ERRNOS
    return True


def shortage_message() -> str:
    """Message about a shortage of open files, with a hint."""
    soft, _ = limits()
    return (
        f"this machine, not a server, has too few open files ({soft:,} for this process), so fewer requests are in "
        f"flight at a time. {_raise_limit_hint(2 * soft)}"
    )


def too_few_message(needed: int, allowed: int) -> str:
    """Message for a run that may need more open files than are allowed."""
    return (
        f"the run may need {needed:,} open files, one per request in flight, but this process may have only "
        f"{allowed:,}, so fewer requests will be in flight at a time. {_raise_limit_hint(needed)}"
    )


def _raise_limit_hint(needed: int) -> str:
    _, hard = limits()
    note = "" if needed <= hard else f" (beyond the hard limit of {hard:,}, which an administrator can raise)"
    return f"Raise the limit before the run (`ulimit -n {needed}`{note}), or lower `concurrency`"
