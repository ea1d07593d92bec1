"""Servers that a run starts and stops itself; models that share a GPU are served in turn.

A server is started when its model first has requests. A model that shares its place keeps it until everything that the
core currently wants from it is committed: the commit may complete a round, and the next round then starts with the
loaded model. Then follows the next model in the circle that has requests. So a round is processed model by model, with
as few swaps as possible; the order does not affect results, since looks wait for all models.

If models have several places, each place goes to the next model in the circle that is served nowhere. A place that no
other model needs becomes an additional server of a model with more requests than its servers take at a time.

A server whose model can never be needed again is stopped at once, and its place is free. A parked model with its own
place loses its server, too: the server is started again when trials of other models make the model needed.

Places of this machine are always available. Those of a cluster come and go. A place is acquired when there is work for
it; its model is chosen when the place is available. When it is lost, its model is served elsewhere.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.launch.hosts import PlaceLost, ServerHost
from adaptive_eval.machine.events import Hopeless, Noted, Unservable
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.supply import Demand, Post
from adaptive_eval.notes import Event, ServerRests, ServersNoticed


class PooledModel(NamedTuple):
    """A model whose servers are started here."""

    name: str
    capacity: int
    """Trials that one server takes at a time."""


class _Place:
    """A host with the state of its server."""

    def __init__(self, host: ServerHost) -> None:
        self.host = host
        self.model: int | None = None
        """The model that is served or being loaded."""
        self.is_up = False
        """Whether the model is served."""
        self.move: asyncio.Task[None] | None = None
        """Acquires the place, or starts or stops its server; None if nothing is in progress."""
        self.acquiring = False
        self.acquired = False
        """Whether the run has acquired the place, and must release it."""
        self.refused: EndpointError | None = None
        """Why the place is not available; None if it may be."""
        self.failed: set[int] = set()
        """Models whose server fails to start here."""

    @property
    def served(self) -> int | None:
        """The model that accepts requests here."""
        return self.model if self.is_up else None

    def can_serve(self, model: int) -> bool:
        """Whether the model may be served here."""
        return model in self.host.models and self.refused is None and model not in self.failed

    def empty(self) -> None:
        """Mark the place as empty and released."""
        self.model, self.is_up, self.acquired = None, False, False


class ServerPool:
    """The servers of all models that a run starts itself, at all their places."""

    def __init__(
        self,
        hosts: Sequence[ServerHost],
        models: Mapping[int, PooledModel],
        post: Post,
        on_change: Callable[[int], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`on_change` is called with a model when one of its servers is up, or its place is free or lost."""
        self._places = [_Place(host) for host in hosts]
        self._models, self._post, self._on_change, self._on_error = models, post, on_change, on_error
        self._numbers = {model.name: number for number, model in models.items()}
        self._lost_server: set[int] = set()
        """Models whose last server was lost with its place, possibly with requests."""
        self._abandoned: set[int] = set()
        """Models that were reported as unservable."""

    def servers(self, model: int) -> int:
        """Number of a model's servers that accept requests now."""
        return sum(place.served == model for place in self._places)

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Start and stop servers according to the demand."""
        demand = {model: demand[model] for model in self._models}
        for place in self._places:
            if place.move is not None or not place.host.has_place:
                continue
            if (model := self._next_model(place, demand)) is not None:
                self._load(place, model)
            elif (served := place.served) is not None:
                self._stop_if_unneeded(place, served, demand)
            elif place.acquired and _all_settled(place, demand):
                model = place.host.models[0]
                self._stop(place, model, place.host.release(model, self._note))
        self._acquire_places(demand)
        self._abandon_refused(demand)
        without_server = self._models.keys() - {place.model for place in self._places}
        for model in without_server:
            if demand[model].in_flight:
                self._post(Hopeless(model))

    async def close(self) -> None:
        """Cancel all starts and stops in progress."""
        moves = [place.move for place in self._places if place.move is not None]
        self._places = []
        for move in moves:
            move.cancel()
        await asyncio.gather(*moves, return_exceptions=True)

    # -- which model is served -----------------------------------------------------------------------------------------

    def _next_model(self, place: _Place, demand: Mapping[int, Demand]) -> int | None:
        """The model to load next; None if the served one stays, or if no model needs a server."""
        served = place.served
        if served is not None and (demand[served].waiting or demand[served].is_owed):
            return None
        circle = _circle(place.host.models, place.model)
        elsewhere = {other.model for other in self._places if other is not place}
        return self._choose(self._candidates(place, circle, demand), elsewhere, demand, Counter())

    def _candidates(self, place: _Place, models: Iterable[int], demand: Mapping[int, Demand]) -> list[int]:
        """Those of these models that are needed, and whose server did not fail at this place."""
        return [model for model in models if self._is_needed(model, demand) and model not in place.failed]

    def _is_needed(self, model: int, demand: Mapping[int, Demand]) -> bool:
        """Whether the model has waiting requests, or lost requests with its last server."""
        return demand[model].waiting > 0 or (model in self._lost_server and demand[model].is_owed)

    def _can_come_up(self, model: int) -> bool:
        """Whether there is a place where the model may be served."""
        return any(place.can_serve(model) for place in self._places)

    def _stop_if_unneeded(self, place: _Place, model: int, demand: Mapping[int, Demand]) -> None:
        """Stop a server for good if its model is settled, and for now if the model is parked and has its own place."""
        host = place.host
        if demand[model].is_settled:
            self._stop(place, model, host.release(model, self._note))
        elif host.own and demand[model].is_parked:
            self._note(ServerRests(self._models[model].name))
            self._stop(place, model, host.suspend(model, self._note))

    # -- servers that start and stop -----------------------------------------------------------------------------------

    def _load(self, place: _Place, model: int) -> None:
        previous, place.model, place.is_up = place.served, model, False
        if previous is not None:
            self._on_change(previous)
        self._move(place, place.host.load(model, self._note), partial(self._on_load_end, place, model))

    def _move(
        self, place: _Place, work: Coroutine[Any, Any, None], on_end: Callable[[BaseException | None], None]
    ) -> None:
        """Begin to change a place; `on_end` gets the error, if any, unless the pool is closed meanwhile."""

        def on_done(task: asyncio.Task[None]) -> None:
            place.move, place.acquiring = None, False
            if not task.cancelled():
                on_end(task.exception())

        place.move = asyncio.create_task(work)
        place.move.add_done_callback(on_done)

    def _on_load_end(self, place: _Place, model: int, error: BaseException | None) -> None:
        if isinstance(error, PlaceLost):
            self._on_place_lost(place, model, error.for_good)
        elif isinstance(error, EndpointError):
            self._on_load_failed(place, model, error)
        elif error is not None:
            self._on_error(error)
        elif place.model is None:  # it was lost as soon as it was up
            self._on_change(model)
        else:
            place.is_up = True
            self._lost_server.discard(model)
            self._on_change(model)

    def _on_load_failed(self, place: _Place, model: int, error: EndpointError) -> None:
        """Serve the model at another place; if there is none, give it up."""
        place.failed.add(model)
        if self._can_come_up(model):
            place.model = None
            self._notice(model, "no_further_server", str(error))
        else:
            self._abandon(model, error)
        self._on_change(model)

    def _stop(self, place: _Place, model: int, stopping: Coroutine[Any, Any, None]) -> None:
        """Stop a server; it is started again if its model is needed later."""
        place.empty()
        self._on_change(model)
        self._move(place, stopping, partial(self._on_stopped, model))

    def _on_stopped(self, model: int, error: BaseException | None) -> None:
        if error is not None:
            self._on_error(error)
        self._on_change(model)

    def _note(self, event: Event) -> None:
        self._post(Noted(note_of(event, self._numbers)))

    def _notice(self, model: int, kind: str, text: str) -> None:
        self._note(ServersNoticed(self._models[model].name, kind, text))

    # -- places that come and go ---------------------------------------------------------------------------------------

    def _acquire_places(self, demand: Mapping[int, Demand]) -> None:
        """Acquire as many further places as there is work for now."""
        absent = [
            place
            for place in self._places
            if place.acquiring or not (place.host.has_place or place.refused is not None or place.move is not None)
        ]
        promised: Counter[int] = Counter()
        served = {place.model for place in self._places}
        for place in sorted(absent, key=lambda place: not place.acquiring):
            model = self._choose(self._candidates(place, place.host.models, demand), served, demand, promised)
            if model is not None:
                promised[model] += 1
                served.add(model)
            if place.move is not None:
                if _all_settled(place, demand):
                    place.move.cancel()
            elif model is not None:
                self._acquire(place, model)

    def _acquire(self, place: _Place, model: int) -> None:
        place.acquiring = True
        on_lost = partial(self._on_served_lost, place)
        self._move(place, place.host.acquire(model, self._note, on_lost), partial(self._on_acquired, place, model))

    def _on_acquired(self, place: _Place, model: int, error: BaseException | None) -> None:
        if error is None:
            place.acquired = True
        elif not isinstance(error, EndpointError):
            self._on_error(error)
        else:
            place.refused = error
            if self.servers(model):
                self._notice(model, "no_further_server", str(error))
        self._on_change(model)

    def _abandon_refused(self, demand: Mapping[int, Demand]) -> None:
        """Give up needed models that cannot be served anywhere, since their last place was refused."""
        for place in self._places:
            if place.refused is not None:
                for model in place.host.models:
                    is_newly_hopeless = model not in self._abandoned and not self._can_come_up(model)
                    if is_newly_hopeless and self._is_needed(model, demand):
                        self._abandon(model, place.refused)

    def _on_served_lost(self, place: _Place, for_good: EndpointError | None) -> None:
        self._on_place_lost(place, place.served, for_good)

    def _on_place_lost(self, place: _Place, model: int | None, for_good: EndpointError | None) -> None:
        """Serve the model of a lost place elsewhere; with an error, never again at this place."""
        if place not in self._places:  # the pool is closed
            return
        place.empty()
        if model is None:
            model = place.host.models[0]
        else:
            if not self.servers(model):
                self._lost_server.add(model)
            if for_good is not None:
                place.failed.add(model)
                if not self._can_come_up(model):
                    self._abandon(model, for_good, was_served=True)
        self._on_change(model)

    def _abandon(self, model: int, error: EndpointError, *, was_served: bool = False) -> None:
        """Give up a model and its requests at all hosts."""
        self._abandoned.add(model)
        self._post(Unservable(model, str(error), was_served))
        for place in self._places:
            if model in place.host.models:
                place.host.abandon(model, error)

    def _choose(
        self,
        models: Sequence[int],
        elsewhere: Collection[int | None],
        demand: Mapping[int, Demand],
        starting: Counter[int],
    ) -> int | None:
        """The first model that is served nowhere else, or else the first with enough work for one more server.

        `starting` counts servers that are about to start.
        """

        def has_more_work(model: int) -> bool:
            return demand[model].waiting >= (starting[model] + 1) * self._models[model].capacity

        new = next((model for model in models if model not in elsewhere), None)
        return new if new is not None else next(filter(has_more_work, models), None)


def _all_settled(place: _Place, demand: Mapping[int, Demand]) -> bool:
    return all(demand[model].is_settled for model in place.host.models)


def _circle(models: Sequence[int], after: int | None) -> Iterator[int]:
    """All models, starting with the one after `after`."""
    start = 0 if after is None else models.index(after) + 1
    yield from (*models[start:], *models[:start])
