"""The first part of a start: what earlier starts of the run have stored is restored, and nothing else goes on.

No commit, no tick, no server comes up. Only then does anything exist that could ask, so that nothing is ever asked that
is there already.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from adaptive_eval.core.types import NO_COST, Cost, Look, Outcome
from adaptive_eval.scheduler.batched_lanes import BatchedLanes, Place
from adaptive_eval.scheduler.departures import Departures
from adaptive_eval.scheduler.intake import Intake
from adaptive_eval.scheduler.keeping import AnswerKeeper
from adaptive_eval.scheduler.ledger import LostAnswers
from adaptive_eval.scheduler.regrading import Regrading
from adaptive_eval.scheduler.time_outs import forget_time_outs
from adaptive_eval.scheduler.types import Decider
from adaptive_eval.store import Event, Roster, Store


class Restoring:
    """Brings all that is counted to where the last start has left it."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        controller: Decider,
        departures: Departures,
        regrading: Regrading,
        keeper: AnswerKeeper,
        intake: Intake,
        batches: BatchedLanes,
        losses: LostAnswers,
        stop_beyond: Callable[[int, Cost], None],
        happened: Callable[[Event], None],
    ) -> None:
        """`stop_beyond` sets a model aside where an answer has cost more than caps reserve; `happened` is told what
        has been stored."""
        self._store, self._roster, self._controller = store, roster, controller
        self._departures, self._regrading, self._keeper, self._intake = departures, regrading, keeper, intake
        self._batches, self._losses, self._stop_beyond, self._happened = batches, losses, stop_beyond, happened
        self._waiting: list[Cost] = []
        """Of stored answers that have no verdict."""
        self._batched: list[Place] = []
        """What was asked of batch services."""

    @property
    def unjudged(self) -> bool:
        """Stored answers have no verdict yet, since the caps did not allow it."""
        return bool(self._waiting)

    async def run(self) -> Sequence[Look]:
        """Restore all of it; gives the looks that the core takes of it."""
        reader, models = self._store.reader, self._roster.models
        self._departures.restore(reader.events())
        forget_time_outs(self._store, models, self._happened)
        for regrade in await self._regrading.run(self._happened):
            self._departures.ungraded(models.position_of(regrade.model), regrade.question, str(regrade.grader_error))
        if (frozen := self._keeper.restore_opening(self._store)) is not None:
            self._happened(frozen)
        self._controller.keep(self._outcomes())
        self._keeper.restore_grading(reader)
        left = self._batches.restore(reader.events(), self._batched)
        lost = self._losses.restore(self._store, models, self._happened, left)
        self._controller.spend_outside_plan(0, reduce(Cost.plus, self._waiting, NO_COST))
        return self._controller.restore((), lost)

    def _outcomes(self) -> Iterator[Outcome]:
        """What the core is told of stored answers, one by one: of millions no list is made."""
        models, batched = self._roster.models, self._batches.models
        for stored in self._store.reader.outcomes():
            if stored.model not in models:
                continue
            if stored.waits:
                self._waiting.append(stored.cost)
            elif stored.awaits:
                self._intake.spend(stored)
                self._stop_beyond(models.position_of(stored.model), stored.cost)
            else:
                outcome = self._intake.take(stored)
                self._stop_beyond(outcome.model, stored.cost)
                if outcome.model in batched:
                    self._batched.append(outcome[:3])
                yield outcome
