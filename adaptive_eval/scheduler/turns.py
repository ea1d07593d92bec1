"""Models whose servers the run starts: each is asked while its server is up; where several share a GPU, in turn.

A server is started when its model first has something to be asked. One that shares its place keeps it until everything
that the core has for it now is committed, for the commit may complete a round, and the next round then begins with the
model that is there. Then comes the next model in the circle that has something to be asked. So a round is asked model
by model, with the fewest swaps that leaves; when a model has its turn decides nothing, since looks wait for all.

Where models have several places, each goes to the next in the circle that is served nowhere; a place that nobody else
wants becomes a further replica of a model for which more waits than its servers can take at a time.

A server whose model nothing can want again is stopped at once, and its place is free.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from adaptive_eval.store import Event


class ServerHost(Protocol):
    """A place where one of some models can be served at a time; hosts of a pool have the same models."""

    @property
    def models(self) -> Sequence[int]:
        """The models that are served here."""
        ...

    async def load(self, model: int, tell: Callable[[Event], None]) -> None:
        """Serve this model, in place of the one before; raises `EndpointError` when it cannot be."""
        ...

    async def release(self, model: int, tell: Callable[[Event], None]) -> None:
        """Stop serving this model, if it is served."""
        ...


@dataclass(frozen=True, slots=True)
class TurnCallbacks:
    """What the turns need to know of the models, and whom they tell."""

    wanted: Callable[[int], bool]
    """Whether there is something to ask this model now."""
    owed: Callable[[int], bool]
    """Whether something that was asked of this model is not committed yet."""
    crowded: Callable[[int], bool]
    """Whether a further server for this model would have something to do."""
    up: Callable[[int], None]
    """The model can be asked."""
    down: Callable[[int, BaseException], None]
    """The model cannot be served."""
    no_further: Callable[[int, BaseException], None]
    """The model cannot be served at one more place."""
    note: Callable[[Event], None]
    settled: Callable[[int], bool]
    """Whether nothing will be asked of this model, as far as anybody can know, and nothing of it is in flight."""
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

    def servers(self, model: int) -> int:
        """How many servers it has that can be asked now; those of others are always there, and count as one."""
        return sum(up == model for up in self._up.values()) if model in self._hosted else 1

    @property
    def moving(self) -> bool:
        """Whether a server is being started."""
        return bool(self._moves)

    def settle(self) -> None:
        """Begin whatever is due: called whenever something was committed."""
        for number, host in enumerate(self._hosts):
            if number in self._moves:
                continue
            if (model := self._next(number, host)) is not None:
                self._begin(number, host, model)
            elif (now := self._up.get(number)) is not None and self._asking.settled(now):
                self._release(number, host, now)

    async def close(self) -> None:
        """Begin nothing more, and leave off what was begun."""
        self._hosts = ()
        moves = tuple(self._moves.values())
        for move in moves:
            move.cancel()
        await asyncio.gather(*moves, return_exceptions=True)

    def _next(self, number: int, host: ServerHost) -> int | None:
        """The model that is to be served next; None where the one that is served goes on, or nobody has to be."""
        now, asking = self._at.get(number), self._asking
        if now is not None and self._up.get(number) == now and (asking.owed(now) or asking.wanted(now)):
            return None
        elsewhere = {model for other, model in self._at.items() if other != number}
        wanted = [m for m in _circle(host.models, now) if asking.wanted(m) and (number, m) not in self._failed]
        new = next((model for model in wanted if model not in elsewhere), None)
        return new if new is not None else next((model for model in wanted if asking.crowded(model)), None)

    def _begin(self, number: int, host: ServerHost, model: int) -> None:
        self._at[number] = model
        self._up.pop(number, None)
        move = self._moves[number] = asyncio.create_task(host.load(model, self._asking.note))
        move.add_done_callback(lambda done: self._on_move_end(number, model, done))

    def _release(self, number: int, host: ServerHost, model: int) -> None:
        """Have its server stopped; it is started again if it should be wanted after all."""
        del self._at[number], self._up[number]
        move = self._moves[number] = asyncio.create_task(host.release(model, self._asking.note))
        move.add_done_callback(lambda done: self._on_release_end(number, done))

    def _on_release_end(self, number: int, move: asyncio.Task[None]) -> None:
        del self._moves[number]
        if not move.cancelled() and (error := move.exception()) is not None:
            self._asking.broken(error)
        elif not move.cancelled():
            self._asking.freed()

    def _on_move_end(self, number: int, model: int, move: asyncio.Task[None]) -> None:
        del self._moves[number]
        if move.cancelled():
            return
        if (error := move.exception()) is not None:
            self._failed.add((number, model))
            (self._asking.no_further if self.servers(model) else self._asking.down)(model, error)
        else:
            self._up[number] = model
            self._asking.up(model)


def _circle(models: Sequence[int], after: int | None) -> Iterator[int]:
    """The models from the one after this one on; all of them, this one last."""
    start = 0 if after is None else models.index(after) + 1
    yield from (*models[start:], *models[:start])
