"""Permission to request a lost answer or verdict again, once the loss is on disk and if the caps allow both."""

import asyncio

from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.store import AnswersLost
from adaptive_eval.supply.happenings import LossFound, Say


class RepeatGuard:
    """Decides, for endpoints and judges, whether a request that may have cost something is repeated."""

    def __init__(self, state: RunState, committer: Committer, say: Say) -> None:
        self._state, self._committer, self._say = state, committer, say

    async def may_repeat(self, model: int | None = None, loss: AnswersLost | None = None) -> bool:
        """Whether a model's lost answer, counted by its endpoint, or a judge's lost reply may be requested again."""
        counted = asyncio.get_running_loop().create_future()
        self._say(LossFound(loss, counted))
        await counted
        if self._is_over(model):
            return False
        await self._committer.safe()
        return not self._is_over(model)

    def _is_over(self, model: int | None) -> bool:
        gone = model is not None and self._state.departures.is_gone(model)
        return gone or self._state.controller.finished is not None
