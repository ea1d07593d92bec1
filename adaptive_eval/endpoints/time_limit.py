"""Blocks of a task that can be ended from outside, with an error."""

import asyncio
from types import TracebackType
from typing import Self


class CancelScope:
    """A block of a task that can be ended from outside, with an error; a timeout without a time."""

    def __init__(self) -> None:
        self._timeout = asyncio.Timeout(None)
        self._error: Exception | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            assert self._error is not None
            raise self._error from None

    def end(self, error: Exception) -> None:
        """End the block in the next iteration of the loop, unless it has completed by then; the first error counts."""
        if self._error is None:
            self._error = error
            self._timeout.reschedule(asyncio.get_running_loop().time())
