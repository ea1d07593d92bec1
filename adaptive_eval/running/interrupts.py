"""Requests to stop a run: Ctrl-C, SIGTERM and a closed terminal, or whatever a program has in their place."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

MAX_REQUESTS = 2
"""Requests that the run handles; the next one acts as in any program."""
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSource(Protocol):
    """Source of requests to stop: the first waits for what is in flight, the second stops at once."""

    def listen(self, handle: Callable[[], None]) -> None:
        """Call `handle` at each request from now on."""

    def __enter__(self) -> "StopSource": ...

    def __exit__(self, *_: object) -> None: ...


class Interrupts(AbstractContextManager["Interrupts"]):
    """Receives signals in the event loop, from `listen` to the end of the context."""

    def __init__(self) -> None:
        self._left = MAX_REQUESTS

    def listen(self, handle: Callable[[], None]) -> None:
        """Call `handle` at each request from now on."""

        def handle_signal() -> None:
            self._left -= 1
            if not self._left:
                _forget()
            handle()

        for number in NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup a closed terminal is nobody's request
                asyncio.get_running_loop().add_signal_handler(number, handle_signal)

    def __exit__(self, *_: object) -> None:
        _forget()


def _forget() -> None:
    for number in NUMBERS:
        asyncio.get_running_loop().remove_signal_handler(number)
