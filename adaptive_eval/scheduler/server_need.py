"""Whether the server of a model is needed: what `turns` asks before it stops one.

It is while anything of the model is asked, in flight or being stored. If nothing is, it may go for good where the model
is settled or gone, and for now where nothing is asked of the model until others want more of it, or until answers of
another one are there (`idle_servers`).
"""

from collections.abc import Sequence

from adaptive_eval.scheduler.batched_lanes import BatchedLanes
from adaptive_eval.scheduler.departures import Departures
from adaptive_eval.scheduler.idle_servers import IdleServers
from adaptive_eval.scheduler.keeping import AnswerKeeper
from adaptive_eval.scheduler.sending import RequestSender
from adaptive_eval.scheduler.types import Decider
from adaptive_eval.store import Event, ServerRests


class ServerNeed:
    """What is still to come of each model."""

    def __init__(
        self,
        names: Sequence[str],
        controller: Decider,
        departures: Departures,
        keeper: AnswerKeeper,
        sender: RequestSender,
        batches: BatchedLanes,
    ) -> None:
        self._names, self._controller, self._departures = names, controller, departures
        self._keeper, self._sender = keeper, sender
        self._waits = IdleServers(names, controller, batches)

    def hear(self, event: Event) -> None:
        """A server is up."""
        self._waits.hear(event)

    def owed(self, model: int) -> bool:
        """Something that this model was asked for is not told to the core."""
        return not self._departures.gone(model) and self._controller.outstanding(model) > self._keeper.asked(model)

    def settled(self, model: int) -> bool:
        """Nobody waits for an answer of it, and nothing further will be asked."""
        nothing_further = model in self._departures.settled or self._departures.gone(model)
        return nothing_further and not self._sender.in_flight[model]

    def rests(self, model: int) -> bool:
        """It has nothing to do until others want more of it."""
        return self._idle(model) and model in self._departures.resting

    def waits(self, model: int) -> bool:
        """It has had nothing to do for long, and will not before answers of others are there."""
        return self._waits.long_enough(model, idle=self._idle(model))

    def rest(self, model: int) -> Event:
        """Why its server is stopped for now."""
        batches_of = None if self.rests(model) else self._waits.awaited or None
        return ServerRests(self._names[model], batches_of)

    def _idle(self, model: int) -> bool:
        """Whether nothing of it is asked, in flight, or being stored."""
        return not (self._sender.in_flight[model] or self.owed(model) or self._sender.wanted(model))
