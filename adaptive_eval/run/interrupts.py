"""Ctrl-C and SIGTERM, from the first request until the last server has ended."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

HEARD = 2
"""The next one acts as it does in any program."""
NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interrupts(AbstractContextManager["Interrupts"]):
    """Hears them in the loop from `hear` to the end of the context."""

    def __init__(self) -> None:
        self._left = HEARD

    def hear(self, handle: Callable[[], None]) -> None:
        """Call this at each of them from now on."""

        def heard() -> None:
            self._left -= 1
            if not self._left:
                _forget()
            handle()

        for number in NUMBERS:
            asyncio.get_running_loop().add_signal_handler(number, heard)

    def __exit__(self, *_: object) -> None:
        _forget()


def _forget() -> None:
    for number in NUMBERS:
        asyncio.get_running_loop().remove_signal_handler(number)
