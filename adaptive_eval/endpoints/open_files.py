"""The limit of open files: every request in flight needs a connection, which is an open file of this process."""

import resource
import sys
from contextlib import suppress

MAX_FILES_MACOS = 10_240
"""Maximum on macOS."""
OTHER_FILES = 64
"""Open files for all else: the store, reports and graders."""


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
    return connections + 2 * servers + OTHER_FILES


def too_few_message(needed: int, allowed: int) -> str:
    """Message for a run that may need more open files than are allowed."""
    _, hard = limits()
    note = "" if needed <= hard else f" (beyond the hard limit of {hard:,}, which an administrator can raise)"
    return (
        f"the run may need {needed:,} open files, one per request in flight, but this process may have only "
        f"{allowed:,}, so fewer requests are in flight at a time. Raise the limit before the run (`ulimit -n "
        f"{needed}`{note}), or lower `concurrency`"
    )
