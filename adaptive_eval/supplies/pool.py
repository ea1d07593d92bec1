"""Servers that a run starts and stops itself; where several models share a GPU, they are served in turn.

A server is started when its model first has something to be asked. A model that shares its place keeps it until
everything that the core wants of it now is committed: the commit may complete a round, and the next round then begins
with the model that is loaded. Then comes the next model in the circle that has something to be asked. So a round is
asked model by model, with as few swaps as that allows; the order decides nothing, since looks wait for all models.

Where models have several places, each place goes to the next model in the circle that is served nowhere. A place that
nobody else wants becomes one more server of a model for which more waits than its servers take at a time.

A server whose model nothing can want again is stopped at once, and its place is free. A model that has its place for
itself loses its server, too, while it is parked: the server is started again when trials of others make the model
wanted.

Places of this machine are always there. Those of a cluster come and go. One is acquired when it would have something to
do; the model that it serves is chosen when it has come. When it is lost, its model is served elsewhere.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from adaptive_eval.base.errors import EndpointError
from adaptive_eval.launch.hosts import PlaceLost, ServerHost
from adaptive_eval.machine.events import Hopeless, Noted, Unservable
from adaptive_eval.machine.notes import note_of
from adaptive_eval.machine.supply import Demand, Post
from adaptive_eval.notes import Event, ServerRests, ServersAwaited, ServersNoticed

AWAITED_SECONDS = 10.0
"""After so long it is reported that the whole run waits for a model's server."""

SETTLED = Demand(is_settled=True)
"""What a model needs that is not in the run any more."""

_Task = asyncio.Task[None]


class PooledModel(NamedTuple):
    """A model whose servers are started here."""

    name: str
    capacity: int
    """Trials that one server takes at a time."""


class _Place:
    """One host, with what is served, started and stopped there."""

    def __init__(self, host: ServerHost) -> None:
        self.host = host
        self.model: int | None = None
        """The model that is served, or being loaded."""
        self.is_up = False
        """The model is served."""
        self.move: _Task | None = None
        """The place is being acquired, or its server is being started or stopped."""
        self.acquiring = False
        self.acquired = False
        """The run has acquired the place, and has to give it back."""
        self.refused: EndpointError | None = None
        """Why the place cannot be had."""
        self.failed: set[int] = set()
        """Models that do not come up here."""

    @property
    def served(self) -> int | None:
        """The model that can be asked here."""
        return self.model if self.is_up else None

    def can_serve(self, model: int) -> bool:
        """Whether the model may come up here, as far as anybody knows."""
        return model in self.host.models and self.refused is None and model not in self.failed

    def empty(self) -> None:
        """Mark the place as empty and given back."""
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is called with a model when one of its servers is up, or its place is free or lost."""
        self._places = [_Place(host) for host in hosts]
        self._models, self._post, self._on_change, self._on_error = models, post, on_change, on_error
        self._numbers = {model.name: number for number, model in models.items()}
        self._clock = clock
        self._stranded: set[int] = set()
        """Models whose last server was lost with its place, maybe with requests."""
        self._abandoned: set[int] = set()
        """Models that come up nowhere, as was posted."""
        self._awaited_since: dict[int, float] = {}
        """Models for whose servers the whole run waits."""
        self._awaited: set[int] = set()
        """Those of them that were reported."""

    def servers(self, model: int) -> int:
        """How many servers of a model can be asked now."""
        return sum(place.served == model for place in self._places)

    @property
    def is_moving(self) -> bool:
        """Whether a server is being started or stopped."""
        return any(place.move is not None for place in self._places)

    def serve(self, demand: Mapping[int, Demand]) -> None:
        """Start and stop the servers that are due."""
        demand = {model: demand.get(model, SETTLED) for model in self._models}
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
        deserted = self._models.keys() - {place.model for place in self._places}
        for model in deserted:
            if demand[model].in_flight:
                self._post(Hopeless(model))
        self._note_awaited(demand)

    async def close(self) -> None:
        """Begin nothing more, and abandon what was begun."""
        moves = [place.move for place in self._places if place.move is not None]
        self._places = []
        for move in moves:
            move.cancel()
        await asyncio.gather(*moves, return_exceptions=True)

    # -- which model is served -----------------------------------------------------------------------------------------

    def _next_model(self, place: _Place, demand: Mapping[int, Demand]) -> int | None:
        """The model to load next; None if the served one stays, or if no model has to be served."""
        served = place.served
        if served is not None and (demand[served].waiting or demand[served].is_owed):
            return None
        circle = _circle(place.host.models, place.model)
        wanted = [model for model in circle if self._is_needed(model, demand) and model not in place.failed]
        if place.model is None and place.host.loaded_model in wanted:
            wanted.sort(key=lambda model: model != place.host.loaded_model)
        elsewhere = {other.model for other in self._places if other is not place}
        return self._choose(wanted, elsewhere, demand)

    def _is_needed(self, model: int, demand: Mapping[int, Demand]) -> bool:
        """Whether there is something to ask the model, or its requests were lost with its last server."""
        return demand[model].waiting > 0 or (model in self._stranded and demand[model].is_owed)

    def _is_hopeful(self, model: int) -> bool:
        """Whether there is a place where the model may come up."""
        return any(place.can_serve(model) for place in self._places)

    def _stop_if_unneeded(self, place: _Place, model: int, demand: Mapping[int, Demand]) -> None:
        """Stop a server for good if its model is settled, and for now if it is parked and has the place for itself."""
        host = place.host
        if demand[model].is_settled:
            self._stop(place, model, host.release(model, self._note))
        elif host.own and demand[model].is_parked:
            self._note(ServerRests(self._models[model].name))
            self._stop(place, model, host.rest(model, self._note))

    # -- servers that start and stop -----------------------------------------------------------------------------------

    def _load(self, place: _Place, model: int) -> None:
        before, place.model, place.is_up = place.served, model, False
        if before is not None:
            self._on_change(before)
        place.move = asyncio.create_task(place.host.load(model, self._note))
        place.move.add_done_callback(partial(self._on_load_end, place, model))

    def _on_load_end(self, place: _Place, model: int, load: _Task) -> None:
        place.move = None
        if load.cancelled():
            return
        error = load.exception()
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
            self._stranded.discard(model)
            self._on_change(model)

    def _on_load_failed(self, place: _Place, model: int, error: EndpointError) -> None:
        """Have the model served at another place; if there is none, it is down."""
        place.failed.add(model)
        if self._is_hopeful(model):
            place.model = None
            self._notice(model, "no_further_server", str(error))
        else:
            self._abandon(model, error)
        self._on_change(model)

    def _stop(self, place: _Place, model: int, stopping: Coroutine[Any, Any, None]) -> None:
        """Stop a server; it is started again if its model should be wanted after all."""
        place.empty()
        self._on_change(model)
        place.move = asyncio.create_task(stopping)
        place.move.add_done_callback(partial(self._on_stopped, place, model))

    def _on_stopped(self, place: _Place, model: int, ended: _Task) -> None:
        place.move = None
        if ended.cancelled():
            return
        if (error := ended.exception()) is not None:
            self._on_error(error)
        self._on_change(model)

    def _note(self, event: Event) -> None:
        self._post(Noted(note_of(event, self._numbers)))

    def _notice(self, model: int, kind: str, text: str) -> None:
        self._note(ServersNoticed(self._models[model].name, kind, text))

    # -- places that come and go ---------------------------------------------------------------------------------------

    def _acquire_places(self, demand: Mapping[int, Demand]) -> None:
        """Acquire as many further places as would have something to do now."""
        absent = [
            place
            for place in self._places
            if place.acquiring or not (place.host.has_place or place.refused is not None or place.move is not None)
        ]
        promised: Counter[int] = Counter()
        served = {place.model for place in self._places}
        needed: dict[tuple[int, ...], list[int]] = {}
        """Of each list of models that hosts have in common, those that are needed."""
        for place in sorted(absent, key=lambda one: (not one.acquiring, not one.host.is_left_over)):
            host, models = place.host, tuple(place.host.models)
            if models not in needed:
                needed[models] = [model for model in models if self._is_needed(model, demand)]
            able = [model for model in needed[models] if model not in place.failed]
            model = self._choose(able, served, demand, promised)
            if model is not None:
                promised[model] += 1
                served.add(model)
            elif host.is_left_over:
                model = models[0] if host.loaded_model is None else host.loaded_model
            if place.move is not None:
                if _all_settled(place, demand):
                    place.move.cancel()
            elif model is not None:
                self._acquire(place, model)

    def _acquire(self, place: _Place, model: int) -> None:
        place.acquiring = True
        lost = partial(self._on_served_lost, place)
        place.move = asyncio.create_task(place.host.acquire(model, self._note, lost))
        place.move.add_done_callback(partial(self._on_acquired, place, model))

    def _on_acquired(self, place: _Place, model: int, acquiring: _Task) -> None:
        place.move, place.acquiring = None, False
        if acquiring.cancelled():
            return
        error = acquiring.exception()
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
        """Give up the needed models that come up nowhere, since the last of their places was refused."""
        for place in self._places:
            if place.refused is not None:
                for model in place.host.models:
                    lost_hope = model not in self._abandoned and not self._is_hopeful(model)
                    if lost_hope and self._is_needed(model, demand):
                        self._abandon(model, place.refused)

    def _on_served_lost(self, place: _Place, for_good: EndpointError | None) -> None:
        self._on_place_lost(place, place.served, for_good)

    def _on_place_lost(self, place: _Place, model: int | None, for_good: EndpointError | None) -> None:
        """Have what a lost place has served come up elsewhere; with an error, never again at this place."""
        if place not in self._places:  # the pool is closed
            return
        place.empty()
        if model is None:
            model = place.host.models[0]
        else:
            if not self.servers(model):
                self._stranded.add(model)
            if for_good is not None:
                place.failed.add(model)
                if not self._is_hopeful(model):
                    self._abandon(model, for_good, was_served=True)
        self._on_change(model)

    def _abandon(self, model: int, error: EndpointError, *, was_served: bool = False) -> None:
        """Give a model up, and have its hosts give up its requests."""
        self._abandoned.add(model)
        self._post(Unservable(model, str(error), was_served))
        for place in self._places:
            if model in place.host.models:
                place.host.abandon(model, error)

    # -- what is reported --------------------------------------------------------------------------------------------

    def _note_awaited(self, demand: Mapping[int, Demand]) -> None:
        """Report models for whose servers the whole run has waited a while."""
        is_busy = self.is_moving or any(need.in_flight for need in demand.values())
        unserved = () if is_busy else [model for model in demand if demand[model].waiting and not self.servers(model)]
        now = self._clock()
        self._awaited_since = {model: self._awaited_since.get(model, now) for model in unserved}
        self._awaited.intersection_update(unserved)
        for model, since in self._awaited_since.items():
            if now - since >= AWAITED_SECONDS and model not in self._awaited:
                self._awaited.add(model)
                self._note(ServersAwaited(self._models[model].name, round(now - since)))

    def _choose(
        self,
        models: Sequence[int],
        elsewhere: Collection[int | None],
        demand: Mapping[int, Demand],
        coming: Counter[int] | None = None,
    ) -> int | None:
        """The first model that is served nowhere else, or else the first for which one more server has something to do.

        `coming` are servers that are on their way.
        """
        new = next((model for model in models if model not in elsewhere), None)
        if new is not None:
            return new
        coming = coming or Counter()
        return next(
            (model for model in models if demand[model].waiting >= (coming[model] + 1) * self._models[model].capacity),
            None,
        )


def _all_settled(place: _Place, demand: Mapping[int, Demand]) -> bool:
    return all(demand[model].is_settled for model in place.host.models)


def _circle(models: Sequence[int], after: int | None) -> Iterator[int]:
    """The models from the one after this one on; all of them, this one last."""
    start = 0 if after is None else models.index(after) + 1
    yield from (*models[start:], *models[:start])
