"""When a run ends, and how."""

import asyncio
import time
from enum import StrEnum

from adaptive_eval.base.errors import StoreError
from adaptive_eval.scheduler.state import RunState


class Halt(StrEnum):
    """How the user stopped a run."""

    DRAINED = "drained"
    """Requests in flight came back first."""
    AT_ONCE = "at_once"
    """Requests in flight were cancelled."""


class RunEnd:
    """The end of one start of a run: requested by the user, decided by the core, or forced by an error."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self.halt: Halt | None = None
        self.over = False
        """Nothing more is asked, and signals no longer matter."""
        self.out_of_time = False
        """A cap on time is reached, so requests in flight are cancelled."""
        self.error: BaseException | None = None
        """Why the start cannot go on."""
        self._done = asyncio.Event()
        self._since: float | None = None
        """When the run began to end."""

    @property
    def done(self) -> bool:
        """Whether the end has come."""
        return self._done.is_set()

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is sent."""
        return self.over or self.halt is not None or self.done

    @property
    def is_cut_short(self) -> bool:
        """Whether the run ends without waiting, on the user's wish or because of an error."""
        return self.halt is Halt.AT_ONCE or self.error is not None or not self.done

    def stop(self) -> None:
        """Let requests in flight come back; called again, wait for nothing."""
        self.halt = Halt.DRAINED if self.halt is None else Halt.AT_ONCE

    def abort(self, error: BaseException) -> None:
        """End at once with an error: the first one, or after the end only that of a commit."""
        if self.error is None and (not self.done or isinstance(error, StoreError)):
            self.error = error
            self._done.set()

    def end_if_over(self, *, quiet: bool) -> None:
        """End the run if it is finished, stopped or refused, and nothing is left to wait for; `quiet`: nothing is under
        way."""
        models, finished = self._state.models, self._state.controller.finished is not None
        if self.done:
            return
        # otherwise requests in flight come back, also those of a model that was set aside: they are paid for
        at_once = self.halt is Halt.AT_ONCE or self.out_of_time
        if models.refused and (quiet or models.all_heard):
            self.abort(models.refusals())
        elif at_once or (quiet and (finished or self.halt is not None)):
            self._done.set()

    def seconds(self) -> float | None:
        """Seconds since the run began to end; None while it goes on."""
        if self.halt is None and self._state.controller.finished is None:
            return None
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since

    async def wait(self) -> None:
        """Wait for the end; raises the error that forced it."""
        await self._done.wait()
        if self.error is not None:
            raise self.error
