"""Ports that are a test's own, whatever else is tested on the machine at the same time."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"


@contextmanager
def held_port() -> Iterator[int]:
    """A port where nobody listens, and where only those who are told of it may: a socket has it that never listens.

    On Linux another socket may have it, too, if both are willing to share it (`SO_REUSEADDR`, as servers are), and the
    system gives it to nobody who asks for any port. Elsewhere it is free when it is told, and nobody holds it.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, 0))
        port = int(holder.getsockname()[1])
        if sys.platform != "linux":
            holder.close()
        yield port
