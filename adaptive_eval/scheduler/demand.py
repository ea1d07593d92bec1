"""Demand for each model, by which a supply starts and stops servers."""

from adaptive_eval.scheduler.requests import Requests
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.supply.idle_servers import IdleServers


class ModelDemand:
    """The `Demand` of a run: what waits, what is in flight, and what is still to come."""

    def __init__(self, state: RunState, requests: Requests, idle: IdleServers) -> None:
        self._state, self._requests, self._idle = state, requests, idle

    def is_wanted(self, model: int) -> bool:
        gone, needed = self._state.departures.is_gone(model), self._wave(model)
        return not gone and self._requests.waiting.first(model, needed) is not None

    def has_queue_for(self, model: int, servers: int) -> bool:
        gone, needed = self._state.departures.is_gone(model), servers * self._wave(model)
        return not gone and self._requests.waiting.number(model, needed) >= needed

    def is_booked(self, model: int) -> bool:
        return any(request.model == model for request in self._requests.booked)

    def in_flight(self, model: int) -> int:
        return self._requests.in_flight[model]

    def is_owed(self, model: int) -> bool:
        """Whether a trial that was asked of this model is not committed yet."""
        return self._state.is_owed(model)

    def is_settled(self, model: int) -> bool:
        """Whether nobody waits for an answer of this model, and nothing more will be asked."""
        departures = self._state.departures
        nothing_further = model in departures.settled or departures.is_gone(model)
        return nothing_further and not self._requests.in_flight[model]

    def is_parked(self, model: int) -> bool:
        """The model has nothing to do until others want more of it."""
        return self._is_idle(model) and model in self._state.departures.parked

    def is_idle_for_long(self, model: int) -> bool:
        """The model has had nothing to do for long, and will not before answers of others are there."""
        awaited = self._state.controller.awaited() if self._is_idle(model) else ()
        return self._idle.is_idle_for_long(model, awaited)

    def awaited_models(self, model: int) -> tuple[str, ...] | None:
        if self.is_parked(model):
            return None
        return self._idle.awaited_batches(self._state.controller.awaited()) or None

    def _is_idle(self, model: int) -> bool:
        """Whether nothing of the model is wanted, in flight or being stored."""
        return not (self._requests.in_flight[model] or self._state.is_owed(model) or self.is_wanted(model))

    def _wave(self, model: int) -> int:
        """Trials that one server of a model takes at a time."""
        lane = self._state.lanes[model]
        return lane.slots * lane.samples_per_request
