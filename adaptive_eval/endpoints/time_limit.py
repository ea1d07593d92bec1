"""One time limit of many requests: all have the same, so that who began first is due first, and one timer does for all.

A timer for each costs more than anything else that is done for a request, where the event loop is uvloop's.
"""

import asyncio


class TimeLimit:
    """Ends blocks of `asyncio.timeout(None)` that take longer than so many seconds, each with a `TimeoutError`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._due: dict[asyncio.Timeout, float] = {}
        """When each block is due, the first first."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, block: asyncio.Timeout) -> None:
        """A block begins."""
        due = self._due[block] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._look)

    def end(self, block: asyncio.Timeout) -> None:
        """A block has ended, in whatever way."""
        self._due.pop(block, None)

    def close(self) -> None:
        """Stop: no block is ended any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End what is due, and look again when the next one is."""
        self._timer = None
        now = self._loop.time()
        while self._due:
            block, due = next(iter(self._due.items()))
            if due > now:
                self._timer = self._loop.call_at(due, self._look)
                return
            del self._due[block]
            block.reschedule(now)
