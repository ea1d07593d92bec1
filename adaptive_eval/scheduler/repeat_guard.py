"""Whether what was lost on the way may be requested again: its loss is counted, on disk, and the caps bear both."""

import asyncio

from adaptive_eval.scheduler.committer import Committer
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.store import AnswersLost
from adaptive_eval.supply.happenings import LossFound, Say


class RepeatGuard:
    """Decides, for endpoints and judges, whether a request that may have cost something is repeated."""

    def __init__(self, state: RunState, committer: Committer, say: Say) -> None:
        self._state, self._committer, self._say = state, committer, say

    async def may_repeat_answer(self, model: int) -> bool:
        """Whether an answer of a model, which its endpoint counts as lost, may be requested again."""
        return await self._loss_is_borne(None, model)

    async def may_repeat_verdict(self, loss: AnswersLost) -> bool:
        """Whether a reply of a judge that was lost may be requested again."""
        return await self._loss_is_borne(loss, None)

    async def _loss_is_borne(self, loss: AnswersLost | None, model: int | None) -> bool:
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
