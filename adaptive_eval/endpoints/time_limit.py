"""Timeouts of requests: blocks that can be ended from outside, and one timer for many of them.

All requests have the same limit, so the first to begin is the first due, and one timer serves all: with uvloop, a timer
for each would cost more than anything else in a request.
"""

import asyncio
from types import TracebackType
from typing import Self

from adaptive_eval.endpoints.failures import Failure, FailureKind


class EndableBlock:
    """A block of a task that can be ended from outside, with an error.

    It works like `asyncio.timeout(None)`, at a third of the cost.
    """

    __slots__ = ("_cancelling", "_cut", "_error", "_handle", "_task")

    def __init__(self) -> None:
        self._handle: asyncio.Handle | None = None
        self._cut = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a block that can be ended is a part of a task"
        self._task, self._cancelling = task, task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is None:
            return
        self._handle.cancel()
        # a task that was also cancelled by others stays cancelled
        if self._cut and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._error from None

    def end(self, error: Exception) -> None:
        """End the block in the next turn of the loop, unless it has completed by then; the first error counts."""
        if self._handle is None:
            self._error = error
            self._handle = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        self._cut = True
        self._task.cancel()


class TimeLimit:
    """Ends blocks that take longer than a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._due: dict[EndableBlock, float] = {}
        """When each block is due, earliest first."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, block: EndableBlock) -> None:
        """Add a block that begins."""
        due = self._due[block] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._look)

    def leave(self, block: EndableBlock) -> None:
        """Remove a block that is over."""
        self._due.pop(block, None)

    def close(self) -> None:
        """Stop ending blocks."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End blocks that are due, and schedule the next check."""
        self._timer = None
        now = self._loop.time()
        while self._due:
            block, due = next(iter(self._due.items()))
            if due > now:
                self._timer = self._loop.call_at(due, self._look)
                return
            del self._due[block]
            block.end(Failure(FailureKind.TIMED_OUT, f"no answer within {self._seconds:g} s"))
