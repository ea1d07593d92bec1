"""Ports for servers on this machine."""

import random
import socket
from collections.abc import Iterator

from adaptive_eval.errors import LaunchFailed
from adaptive_eval.launch.command import HOST

RANGE = range(20_000, 30_000)
"""Below those that systems give to outgoing connections: a server may bind its port minutes after it was chosen."""
TRIES = 1000


def free_ports() -> Iterator[int]:
    """Different ports that nothing listens on, at random, so that two runs choose different ones."""
    yield from filter(is_free, random.sample(RANGE, TRIES))
    raise LaunchFailed(f"no free port was found among {TRIES} between {RANGE[0]} and {RANGE[-1]}")


def is_free(port: int) -> bool:
    """Whether nothing listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
