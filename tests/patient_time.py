"""Time for tests that must not depend on how busy the machine is.

`PatientLoop` is for servers and clients that share one event loop over real sockets: its clock moves only when nobody
has anything to do. What is slow takes no time in it, and a wait of a minute is over at once; threads stop the clock
while they work. What has no sockets need not `settle`. Where other processes take part, tests wait for what happens
(`until`), and move the clock themselves (`let_pass`).
"""

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

HANGS = 300.0
"""Seconds after which what has not happened is not going to."""
TURN_SECONDS = 1e-9
"""What a turn of the loop takes, so that a timer which fires a rounding error too early is not set again for ever."""
SETTLE_SECONDS = 0.01
"""How long nothing must happen before the clock moves on: far longer than loopback takes to carry what was sent."""


class PatientSelector(selectors.DefaultSelector):
    """Moves a clock on instead of waiting."""

    def __init__(self, settle: float) -> None:
        super().__init__()
        self.now = 0.0
        self.threads = 0
        self._settle = settle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += TURN_SECONDS
        if timeout is None or timeout <= 0.0:
            return super().select(timeout)
        events = super().select(min(timeout, SETTLE_SECONDS if self.threads else self._settle))
        if not events and not self.threads:
            self.now += timeout
        return events


class PatientLoop(asyncio.SelectorEventLoop):
    """Its `time()` is that of its selector."""

    def __init__(self, settle: float = SETTLE_SECONDS) -> None:
        self._patience = PatientSelector(settle)
        super().__init__(self._patience)

    def time(self) -> float:
        return self._patience.now

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        self._patience.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._came_back)
        return future

    def skip(self, seconds: float) -> None:
        """Move the clock on as if the process had been stopped meanwhile."""
        self._patience.now += seconds

    def _came_back(self, _: "asyncio.Future[Any]") -> None:
        self._patience.threads -= 1


def let_pass(seconds: float) -> None:
    """Move the clock of the running loop on."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def until(met: Callable[[], object]) -> None:
    """Wait for something that happens outside of the loop."""
    deadline = time.monotonic() + HANGS
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
