"""Demand for each model, which decides when a supply starts and stops servers."""

from adaptive_eval.scheduler.requests import Requests
from adaptive_eval.scheduler.state import RunState
from adaptive_eval.supply.idle_servers import IdleServers


class ModelDemand:
    """The `Demand` of a run: trials that wait, that are in flight, and that are still to come."""

    def __init__(self, state: RunState, requests: Requests, idle: IdleServers) -> None:
        self._state, self._requests, self._idle = state, requests, idle

    def is_wanted(self, model: int) -> bool:
        gone, needed = self._state.departures.is_gone(model), self._server_capacity(model)
        return not gone and self._requests.waiting.first(model, needed) is not None

    def has_queue_for(self, model: int, servers: int) -> bool:
        gone, needed = self._state.departures.is_gone(model), servers * self._server_capacity(model)
        return not gone and self._requests.waiting.number(model, needed) >= needed

    def is_booked(self, model: int) -> bool:
        return any(request.model == model for request in self._requests.booked)

    def in_flight(self, model: int) -> int:
        return self._requests.in_flight[model]

    def is_owed(self, model: int) -> bool:
        """Whether a trial that was asked of this model is not committed yet."""
        return self._state.is_owed(model)

    def is_settled(self, model: int) -> bool:
        """Whether this model has nothing in flight and will be asked nothing more."""
        departures = self._state.departures
        nothing_further = model in departures.settled or departures.is_gone(model)
        return nothing_further and not self._requests.in_flight[model]

    def is_parked(self, model: int) -> bool:
        """Whether the model has nothing to do until trials of others want it again."""
        return self._is_idle(model) and model in self._state.departures.parked

    def is_idle_for_long(self, model: int) -> bool:
        """Whether the model has long had nothing to do, and waits for answers of others."""
        awaited = self._state.controller.awaited() if self._is_idle(model) else ()
        return self._idle.is_idle_for_long(model, awaited)

    def awaited_models(self, model: int) -> tuple[str, ...] | None:
        if self.is_parked(model):
            return None
        return self._idle.awaited_batches(self._state.controller.awaited()) or None

    def _is_idle(self, model: int) -> bool:
        """Whether nothing of the model is wanted, in flight or being stored."""
        return not (self._requests.in_flight[model] or self._state.is_owed(model) or self.is_wanted(model))

    def _server_capacity(self, model: int) -> int:
        """How many trials one server of a model takes at a time."""
        lane = self._state.lanes[model]
        return lane.slots * lane.samples_per_request
