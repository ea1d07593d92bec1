"""Models whose servers the run starts: each is asked while its server is up; where several share a GPU, in turn.

A server is started when its model first has something to be asked. One that shares its place keeps it until everything
that the core has for it now is committed, for the commit may complete a round, and the next round then begins with the
model that is there. Then comes the next model in the circle that has something to be asked. So a round is asked model
by model, with the fewest swaps that leaves; when a model has its turn decides nothing, since looks wait for all.

Where models have several places, each goes to the next in the circle that is served nowhere; a place that nobody else
wants becomes a further replica of a model for which more waits than its servers can take at a time.

A server whose model nothing can want again is stopped at once, and its place is free. One that has its place for itself
is stopped, too, while nothing is asked of its model: it is started again where trials of others come to want that.
At a place that stays the run's it is stopped, or put to sleep, while all there is to wait for is a batch of another
model (`idle_servers`).

A place with memory for two (`OverlappingHost`) is not drained before a swap: as soon as everything that its model has
to be asked is with the server, the next one is brought up and asked, while the last answers of the one before still
come. Its server is stopped when they are there, and only then comes a third one. Where the next one does not start
beside it, the place is not that overlapping, and is drained from then on.

Places of this machine are always there. Those of a cluster come and go: one is asked for when it would have something
to do, what it then serves is decided when it has come, and where one is lost its model is served elsewhere.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from adaptive_eval.errors import EndpointError
from adaptive_eval.store import Event


class PlaceLost(Exception):
    """A place has gone while a model was brought up there, which says nothing of the model."""

    def __init__(self, reason: str, for_good: BaseException | None = None) -> None:
        """`for_good`: why the model is not to be served there any more, even where the place comes back."""
        super().__init__(reason)
        self.for_good = for_good


class ServerHost(Protocol):
    """A place where one of some models can be served at a time; hosts of a pool have the same models."""

    @property
    def models(self) -> Sequence[int]:
        """The models that are served here."""
        ...

    @property
    def has_place(self) -> bool:
        """Whether the host can be used at once; if not, the run has to `acquire` it first."""
        ...

    @property
    def kept(self) -> bool:
        """An earlier start of the run has left it, with what it served: it is had at once."""
        ...

    @property
    def found(self) -> int | None:
        """The model that an earlier start has left here."""
        ...

    @property
    def own(self) -> bool:
        """Nobody else can take the place of its only model: that can be served again at any time."""
        ...

    @property
    def lasting(self) -> "LastingHost | None":
        """This host, if its place stays the run's while nothing is served there."""
        ...

    @property
    def overlapping(self) -> "OverlappingHost | None":
        """This host, if it may have memory for two models."""
        ...

    async def acquire(
        self, model: int, tell: Callable[[Event], None], lost: Callable[[BaseException | None], None]
    ) -> None:
        """Have the place, for this model as far as anybody can know; raises `EndpointError` when it cannot be had.

        `lost` is called when it is gone again, with an error where the model that it served is not to be served there
        any more.
        """
        ...

    async def load(self, model: int, tell: Callable[[Event], None]) -> None:
        """Serve this model, in place of the one before; raises `EndpointError` when it cannot be, and `PlaceLost`."""
        ...

    async def release(self, model: int, tell: Callable[[Event], None]) -> None:
        """Stop serving this model, if it is served; a place that had to be had is given back."""
        ...

    def abandon(self, model: int, error: BaseException) -> None:
        """Tell whoever waits for this model that nobody brings it up any more."""
        ...


class LastingHost(Protocol):
    """A place that stays the run's: what is stopped there can be served again at any time."""

    async def rest(self, model: int, tell: Callable[[Event], None]) -> None:
        """Have the server of this model stopped, or put to sleep, if it is up."""
        ...


class OverlappingHost(Protocol):
    """A place where another model can be brought up while the last answers of one still come."""

    def beside(self, model: int, other: int) -> bool:
        """There is memory for both of these."""
        ...

    def retire(self, model: int) -> None:
        """Ask this model nothing new here, as another one is brought up beside it."""
        ...

    def idle(self, model: int) -> bool:
        """Nobody waits for an answer of its server here."""
        ...

    def leave(self, model: int, tell: Callable[[Event], None]) -> Coroutine[Any, Any, None]:
        """Have the server of a retired model stopped; from now on nobody is sent to it any more."""
        ...


@dataclass(frozen=True, slots=True)
class TurnCallbacks:
    """What the turns need to know of the models, and whom they tell."""

    wanted: Callable[[int], bool]
    """Whether there is something to ask this model now."""
    with_servers: Callable[[int], bool]
    """Whether everything that this model was asked is with its servers by now."""
    in_flight: Callable[[int], int]
    """Requests of this model that are not answered yet."""
    owed: Callable[[int], bool]
    """Whether something that was asked of this model is not committed yet."""
    crowded: Callable[[int, int], bool]
    """Whether a further server for this model would have something to do, beside so many that are on their way."""
    up: Callable[[int], None]
    """The model can be asked."""
    down: Callable[[int, BaseException], None]
    """The model cannot be served."""
    given_up: Callable[[int, BaseException], None]
    """The model was served, and its places are lost again and again."""
    too_narrow: Callable[[int, EndpointError], None]
    """The model did not come up beside the last answers of another one."""
    no_further: Callable[[int, BaseException], None]
    """The model cannot be served at one more place."""
    note: Callable[[Event], None]
    settled: Callable[[int], bool]
    """Whether nothing will be asked of this model, as far as anybody can know, and nothing of it is in flight."""
    resting: Callable[[int], bool]
    """Whether nothing is asked of this model, and nothing of it is in flight, until others want it again."""
    waits: Callable[[int], bool]
    """Whether nothing of this model is asked or in flight, and has not been for long, before a batch is back."""
    rests: Callable[[int], None]
    """Its server is stopped until then."""
    freed: Callable[[], None]
    """A place has become free."""
    broken: Callable[[BaseException], None]
    """Something failed that never should."""


class Turns:
    """Whose turn it is, on every host."""

    def __init__(self, hosts: Sequence[ServerHost], asking: TurnCallbacks) -> None:
        self._hosts = hosts
        self._asking = asking
        self._at: dict[int, int] = {}
        """The model that each host serves, or is bringing up."""
        self._up: dict[int, int] = {}
        """The model that each host serves."""
        self._failed: set[tuple[int, int]] = set()
        """Hosts, and models that do not come up there."""
        self._moves: dict[int, asyncio.Task[None]] = {}
        self._hosted = {model for host in hosts for model in host.models}
        self._sought: set[int] = set()
        """Hosts whose place is being had."""
        self._had: set[int] = set()
        """Hosts whose place was had, and can be given back."""
        self._refused: set[int] = set()
        """Hosts whose place cannot be had."""
        self._leaving: dict[int, int] = {}
        """Of each host the model whose last answers still come there, beside the next one."""
        self._exits: dict[int, asyncio.Task[None]] = {}
        """The servers of those, being stopped."""
        self._crammed: set[int] = set()
        """Hosts that bring up a model beside another one."""
        self._narrow: set[int] = set()
        """Hosts that have turned out to have memory for one model only."""
        self._stranded: set[int] = set()
        """Models whose last server was lost with its place, and maybe with requests."""

    def servers(self, model: int) -> int:
        """How many servers it has that can be asked now; those of others are always there, and count as one."""
        return sum(up == model for up in self._up.values()) if model in self._hosted else 1

    @property
    def deserted(self) -> set[int]:
        """Models of which no server is up, on its way, or still about to give its last answers."""
        return self._hosted - {*self._at.values(), *self._leaving.values()}

    @property
    def moving(self) -> bool:
        """Whether a server is being started, or stopped beside another one: what waits for that comes later."""
        return bool(self._moves or self._exits)

    def settle(self) -> None:
        """Begin whatever is due: called whenever something was committed."""
        for number, host in enumerate(self._hosts):
            self._let_leave(number, host)
            if number in self._moves or not host.has_place:
                continue
            if (model := self._next(number, host)) is not None:
                self._begin(number, host, model)
            elif (now := self._up.get(number)) is not None:
                if self._asking.settled(now):
                    self._release(number, host, now)
                elif host.lasting is not None and self._may_rest(host, now):
                    self._asking.rests(now)
                    self._let_go(number, host.lasting.rest(now, self._asking.note))
            elif number in self._had and self._all_settled(host):
                self._release(number, host, host.models[0])
        self._seek_places()

    async def close(self) -> None:
        """Begin nothing more, and leave off what was begun."""
        self._hosts = ()
        moves = (*self._moves.values(), *self._exits.values())
        for move in moves:
            move.cancel()
        await asyncio.gather(*moves, return_exceptions=True)

    # -- whose turn it is --------------------------------------------------------------------------------------------

    def _next(self, number: int, host: ServerHost) -> int | None:
        """The model that is to be served next; None where the one that is served goes on, or nobody has to be."""
        now, asking = self._at.get(number), self._asking
        served = now is not None and self._up.get(number) == now
        if number in self._leaving or (served and now is not None and asking.wanted(now)):
            return None
        elsewhere = {model for other, model in self._at.items() if other != number}
        wanted = [m for m in _circle(host.models, now) if self._wants(m) and (number, m) not in self._failed]
        if served and now is not None and asking.owed(now):
            wanted = [model for model in wanted if self._fits(number, host, now, model)]
        if now is None and host.found in wanted:
            wanted.sort(key=lambda model: model != host.found)
        new = next((model for model in wanted if model not in elsewhere), None)
        return new if new is not None else next((model for model in wanted if asking.crowded(model, 0)), None)

    def _fits(self, number: int, host: ServerHost, now: int, model: int) -> bool:
        """Whether a model can be brought up while the last answers of the one that is served now still come."""
        if host.overlapping is None or number in self._narrow or model == now or not self._asking.with_servers(now):
            return False
        return host.overlapping.beside(now, model)

    def _wants(self, model: int) -> bool:
        """There is something to ask it, or what it was asked is lost and to be asked again."""
        return self._asking.wanted(model) or (model in self._stranded and self._asking.owed(model))

    def _may_rest(self, host: ServerHost, model: int) -> bool:
        """Whether nothing is asked of it for now."""
        return (host.own and self._asking.resting(model)) or self._asking.waits(model)

    def _all_settled(self, host: ServerHost) -> bool:
        return all(map(self._asking.settled, host.models))

    def _begin(self, number: int, host: ServerHost, model: int) -> None:
        self._at[number] = model
        before = self._up.pop(number, None)
        if before is not None and host.overlapping is not None and self._fits(number, host, before, model):
            host.overlapping.retire(before)
            self._leaving[number] = before
            self._crammed.add(number)
            self._let_leave(number, host)
        move = self._moves[number] = asyncio.create_task(host.load(model, self._asking.note))
        move.add_done_callback(lambda done: self._on_move_end(number, model, done))

    def _let_leave(self, number: int, host: ServerHost) -> None:
        """Have the server of the model before stopped once its last answers are there."""
        model = self._leaving.get(number)
        if model is None or host.overlapping is None or number in self._exits:
            return
        if not self._asking.in_flight(model) or (self.servers(model) and host.overlapping.idle(model)):
            leaving = self._exits[number] = asyncio.create_task(host.overlapping.leave(model, self._asking.note))
            leaving.add_done_callback(lambda done: self._on_exit_end(number, done))

    def _on_exit_end(self, number: int, leaving: asyncio.Task[None]) -> None:
        del self._exits[number], self._leaving[number]
        if not leaving.cancelled() and (error := leaving.exception()) is not None:
            self._asking.broken(error)
        elif not leaving.cancelled():
            self._asking.freed()

    def _release(self, number: int, host: ServerHost, model: int) -> None:
        """Have its server stopped; it is started again if it should be wanted after all."""
        self._let_go(number, host.release(model, self._asking.note))

    def _let_go(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        self._forget(number)
        move = self._moves[number] = asyncio.create_task(work)
        move.add_done_callback(lambda done: self._on_release_end(number, done))

    def _on_release_end(self, number: int, move: asyncio.Task[None]) -> None:
        del self._moves[number]
        if not move.cancelled() and (error := move.exception()) is not None:
            self._asking.broken(error)
        elif not move.cancelled():
            self._asking.freed()

    def _on_move_end(self, number: int, model: int, move: asyncio.Task[None]) -> None:
        del self._moves[number]
        crammed = number in self._crammed
        self._crammed.discard(number)
        if move.cancelled():
            return
        error = move.exception()
        if crammed and isinstance(error, EndpointError):
            self._narrow.add(number)
            del self._at[number]
            self._asking.too_narrow(model, error)
            self._asking.freed()
        elif isinstance(error, PlaceLost):
            self._on_lost(number, model, error.for_good)
        elif error is not None:
            self._failed.add((number, model))
            if self.servers(model) or self._hopeful(model) or not isinstance(error, EndpointError):
                self._at.pop(number, None)  # another place may take it
                self._asking.no_further(model, error)
                self._asking.freed()
            else:
                self._forsake(model, error)
                self._asking.down(model, error)
        elif number not in self._at:  # it was lost as soon as it was up
            self._asking.freed()
        else:
            self._up[number] = model
            self._stranded.discard(model)
            self._asking.up(model)

    def _forget(self, number: int) -> None:
        """Nothing is served there, and the place is not had."""
        self._at.pop(number, None)
        self._up.pop(number, None)
        self._had.discard(number)

    def _forsake(self, model: int, error: BaseException) -> None:
        for host in self._hosts:
            if model in host.models:
                host.abandon(model, error)

    # -- places that come and go -------------------------------------------------------------------------------------

    def _seek_places(self) -> None:
        """Ask for as many further places as would have something to do now."""
        absent = [
            number
            for number, host in enumerate(self._hosts)
            if number in self._sought or not (host.has_place or number in self._refused or number in self._moves)
        ]
        promised: Counter[int] = Counter()
        served = set(self._at.values())
        wanted: dict[tuple[int, ...], list[int]] = {}
        for number in sorted(absent, key=lambda one: (one not in self._sought, not self._hosts[one].kept)):
            host = self._hosts[number]
            models = tuple(host.models)
            if models not in wanted:
                wanted[models] = [model for model in models if self._wants(model)]
            able = [model for model in wanted[models] if (number, model) not in self._failed]
            model = next((model for model in able if model not in served), None)
            if model is None:
                model = next((one for one in able if self._asking.crowded(one, promised[one])), None)
            if model is not None:
                promised[model] += 1
                served.add(model)
            elif host.kept:
                model = models[0] if host.found is None else host.found
            if number in self._sought:
                if self._all_settled(host):
                    self._moves[number].cancel()
            elif model is not None:
                self._seek(number, host, model)

    def _seek(self, number: int, host: ServerHost, model: int) -> None:
        self._sought.add(number)
        having = host.acquire(
            model, self._asking.note, lambda error: self._on_lost(number, self._up.get(number), error)
        )
        move = self._moves[number] = asyncio.create_task(having)
        move.add_done_callback(lambda done: self._on_seek_end(number, host, model, done))

    def _on_seek_end(self, number: int, host: ServerHost, model: int, move: asyncio.Task[None]) -> None:
        del self._moves[number]
        self._sought.discard(number)
        if move.cancelled():
            return
        if (error := move.exception()) is None:
            self._had.add(number)
        else:
            self._refused.add(number)
            self._tell_refused(host, model, error)
        self._asking.freed()

    def _tell_refused(self, host: ServerHost, model: int, error: BaseException) -> None:
        """Nobody is down who is served elsewhere, or might be."""
        if self.servers(model) or not isinstance(error, EndpointError):
            self._asking.no_further(model, error)
            return
        for one in host.models:
            if self._wants(one) and not self._hopeful(one):
                self._forsake(one, error)
                self._asking.down(one, error)

    def _hopeful(self, model: int) -> bool:
        """There is a place where it may be served."""
        return any(
            model in host.models and number not in self._refused and (number, model) not in self._failed
            for number, host in enumerate(self._hosts)
        )

    def _on_lost(self, number: int, model: int | None, for_good: BaseException | None) -> None:
        """A place is gone: what it served is served elsewhere, and with an error no more there."""
        if not self._hosts:  # the run is over
            return
        self._forget(number)
        if model is not None:
            if not self.servers(model):
                self._stranded.add(model)
            if for_good is not None:
                self._failed.add((number, model))
                if not self._hopeful(model):
                    self._forsake(model, for_good)
                    self._asking.given_up(model, for_good)
        self._asking.freed()


def _circle(models: Sequence[int], after: int | None) -> Iterator[int]:
    """The models from the one after this one on; all of them, this one last."""
    start = 0 if after is None else models.index(after) + 1
    yield from (*models[start:], *models[:start])
