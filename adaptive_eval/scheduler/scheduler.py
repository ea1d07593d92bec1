"""One start of a run, from its beginning to its end.

A start first repairs what an earlier one has left half done (`repair`), and applies all stored records to the state;
only then is anything asked, by `loop`. At the end everything that was graded is committed.
"""

import asyncio
from collections.abc import Sequence

from adaptive_eval.base.errors import StoreError, Unavailable
from adaptive_eval.core.types import Look
from adaptive_eval.endpoints.types import Reachable
from adaptive_eval.scheduler.loop import Loop
from adaptive_eval.scheduler.repair import StoreRepair
from adaptive_eval.scheduler.requests import lose_entered
from adaptive_eval.scheduler.state import stored_records
from adaptive_eval.store import LooksRetaken, ModelSetAside, Roster, StoredLook, TrialsRegraded
from adaptive_eval.store.looks import trials_at
from adaptive_eval.supply.happenings import Ticked

TICK_SECONDS = 0.5
"""How often the decision core is told the time, and the servers are checked."""


def _is_retaken(last: StoredLook, looks: Sequence[Look], roster: Roster) -> bool:
    """Whether these looks, those under today's settings, include the last stored one with as many trials of each model,
    or go on from it."""
    place = last.number - looks[0].index if looks else 0
    if not 0 <= place < len(looks):
        return place == -1
    return trials_at(last) == dict(zip(roster.models, looks[place].trials, strict=True))


class Scheduler:
    """Runs one run until it is finished or stopped."""

    def __init__(self, loop: Loop, *, ask_again: bool = False) -> None:
        """`ask_again`: discard the answers since the alarms of earlier starts, and ask them again."""
        self._loop = loop
        self.state, self.meter, self.ending = loop.state, loop.meter, loop.ending
        self.requests, self.supply, self.patience = loop.requests, loop.supply, loop.patience
        self._repair, self._ask_again = StoreRepair(loop.state, loop.grader, loop.journal), ask_again
        self.taken_up = (0, 0)
        """Trials and tokens that earlier starts of the run have stored."""

    @property
    def under_way(self) -> int:
        """Requests that are to be answered, or whose answers are being graded."""
        return max(sum(self.requests.in_flight), self.requests.tasks + self._loop.grader.tasks)

    def stop(self) -> None:
        """Stop asking and let requests in flight come back; called again, stop at once."""
        if not self.ending.over:
            self._repair.stop()
            self._loop.stop()

    def abort(self, error: BaseException) -> None:
        """Stop at once; `run` raises the error."""
        self._repair.stop()
        self.ending.abort(error)

    async def run(self) -> None:
        """Run until the core is finished or the user has stopped the run, and commit everything that was graded.

        Raises `Rejected` when a model refuses its first request, and `StoreError` when nothing can be written.
        """
        try:
            await self._begin()
            if self.state.controller.finished is None:
                self.meter.start()
            await self._run_to_end()
        finally:
            self.ending.over = True
            self._loop.journal.committer.close()

    async def _begin(self) -> None:
        """Repair and apply the records of earlier starts; no model is asked meanwhile."""
        state, store, observer = self.state, self._loop.journal.store, self._loop.journal.observer
        await self._repair.run(ask_again=self._ask_again)
        self.ending.out_of_time = self._repair.is_out_of_time
        left = self.supply.take_over(store, state.roster)
        state.alarms.look_up(store.reader)
        for record in stored_records(store.reader, judged=state.judged):
            state.apply(record)
        last, looks = store.reader.latest_look(), self._loop.decide(resuming=True)
        for event in lose_entered(store, state, left):
            observer.happened(event)
        self.taken_up = state.spent.total
        looks = [*looks, *self._loop.decide(resuming=True)]
        if (
            last is not None
            and not _is_retaken(last, looks, state.roster)
            and not any(isinstance(event, ModelSetAside | TrialsRegraded) for event in store.reader.events())
        ):  # those tell it themselves
            self._loop.note(LooksRetaken(last.number + 1))
        store.forget_looks(len(state.controller.looks))

    async def _run_to_end(self) -> None:
        """Ask, commit and look until the end; events noted before are committed first."""
        loop, committer = self._loop, self._loop.journal.committer
        helpers: list[asyncio.Task[None]] = []
        try:
            await self._reach_servers()
            helpers += [asyncio.create_task(one) for one in (committer.run(), loop.listen(), self._tick())]
            for helper in helpers:
                helper.add_done_callback(self._on_helper_end)
            loop.tell_time()
            self.supply.start()
            loop.fill_all()
            loop.end_if_over()
            await self.ending.wait()
            loop.tell_troubles()
        finally:
            self.ending.over = True
            try:
                await self._release_requests()
            finally:  # whatever has failed, what was graded is committed
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
                try:
                    await self.supply.close()
                finally:
                    self.meter.times.close()
                    committer.next_batch()  # the elapsed time, and the held time of servers
                    await self._commit_the_rest()
        if self.ending.error is not None:  # a commit failed when the end had come
            raise self.ending.error

    async def _reach_servers(self) -> None:
        """Find models whose servers cannot be reached, before any model is asked.

        Raises `Rejected` if such a model has no answer of an earlier start: what others answer could be for nothing.
        Any other is set aside.
        """
        state, loop, models = self.state, self._loop, self.state.models
        asked = [
            (model, lane.endpoint)
            for model, lane in enumerate(state.lanes)
            if isinstance(lane.endpoint, Reachable) and not (models.is_gone(model) or model in models.settled)
        ]
        if not asked or state.controller.finished is not None:
            return

        async def reach() -> list[str | None]:
            return await asyncio.gather(*(endpoint.unreachable() for _, endpoint in asked))

        reaching, ended = asyncio.create_task(reach()), asyncio.create_task(self.ending.wait())
        await asyncio.wait({reaching, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():  # stopped meanwhile
            reaching.cancel()
            await asyncio.gather(reaching, ended, return_exceptions=True)
            return
        ended.cancel()
        troubles = {model: why for (model, _), why in zip(asked, reaching.result(), strict=True) if why is not None}
        new = {model: why for model, why in troubles.items() if not state.spent.usages[model].trials}
        if new:
            models.refused.update(new)
            raise models.refusals()
        for model, why in troubles.items():
            loop.set_aside(model, Unavailable(why))
        if troubles:
            await self._commit_the_rest()  # the core is told when it is on disk

    async def _release_requests(self) -> None:
        """Abandon requests and batches under way, or leave them to the next start."""
        await self.requests.cancel()
        await self._loop.grader.cancel()
        finished, aside = self.state.controller.finished is not None, self.state.models.aside
        await self.supply.depart(at_once=self.ending.is_cut_short, finished=finished, aside=aside)
        self._loop.take_all()
        self._loop.count_losses()

    async def _commit_the_rest(self) -> None:
        """Commit what was graded before the end and the looks this completes, unless a commit failed."""
        loop, committer = self._loop, self._loop.journal.committer
        loop.take_all()
        while not isinstance(self.ending.error, StoreError) and not committer.idle:
            await committer.flush()
            loop.take_all()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._loop.say(Ticked())

    def _on_helper_end(self, helper: asyncio.Task[None]) -> None:
        if not helper.cancelled() and (error := helper.exception()) is not None:
            self.abort(error)
