"""The endpoint of a model whose servers come and go, at one place or at several.

While a server is up it has an endpoint of its own, which is closed when the server has ended. A request goes to the
server with the fewest requests, and waits if none is up. Requests in flight when a server ended are repeated, with the
same seeds, as soon as one is up, since a restart may take longer than the time-outs for other people's servers. If a
request times out at a server that still runs, the server hangs, and is restarted too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from adaptive_eval.base.errors import LaunchFailed, RetryNotAllowed, Unavailable
from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Health, Prompt, summed_stats


class ServerClient(Protocol):
    """What asks a server that is up; how it is asked is known to who asks (`Ask`)."""

    async def check(self) -> Health:
        """Check the server."""

    async def close(self) -> None:
        """Close every connection."""

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far."""


Ask = Callable[[Any], Awaitable[Sequence[Answer]]]
"""Asks the endpoint of a server that is up."""


class ServerGone(Exception):
    """A server has ended, or cannot be reached; its requests have to be repeated."""


class ServedPlace:
    """A place where a model's server comes and goes, with its state and its requests."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Called when a server is up, and when it is certain that none will be."""
        self.has_answered: Callable[[], bool] = lambda: False
        """Whether the model has answered a request of the run, here or elsewhere."""
        self.endpoint: ServerClient | None = None
        """The server's endpoint, while it is up."""
        self.gone: str | None = None
        """Why no server comes up here by itself; None if one may."""
        self.expected = False
        """Whether a server is up, or will come up again by itself."""
        self.in_flight = 0
        self.silence: asyncio.Future[str]
        """Done, with the reason, when the current server hangs."""
        self._ended: asyncio.Event
        """Set when the current server has ended."""
        self._blocks: set[EndableBlock] = set()
        """Requests in flight."""
        self._before: list[EndpointStats] = []
        """Summed traffic of earlier servers; empty, or one entry."""

    def begin(self, endpoint: ServerClient) -> None:
        """Register a server that is up."""
        self.endpoint, self.gone, self.expected = endpoint, None, True
        self.silence = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self.changed()

    def leave(self, *, comes_back: bool) -> ServerClient | None:
        """Unregister the server: requests in flight are repeated. Returns its endpoint, which has to be closed."""
        ended, self.endpoint = self.endpoint, None
        if ended is not None:
            self.expected = comes_back
            self._ended.set()
            self._before = [replace(summed_stats([*self._before, ended.stats]), in_flight=0, oldest=0.0, replicas=())]
            blocks, self._blocks = self._blocks, set()
            for block in blocks:
                block.end(ServerGone())
            self.changed()
        return ended

    async def end(self) -> None:
        """Unregister the server, which comes back by itself unless it is given up."""
        if (ended := self.leave(comes_back=True)) is not None:
            await ended.close()

    def give_up(self, reason: str) -> None:
        """Record that the server does not come back by itself: no more requests are sent here."""
        self.gone, self.expected = reason, False
        self.changed()

    @property
    def up(self) -> bool:
        """Whether the server can take requests now."""
        return self.endpoint is not None and self.gone is None

    @property
    def traffic(self) -> list[EndpointStats]:
        """Traffic so far, to be summed; without replicas while no server is up."""
        return self._before if self.endpoint is None else [*self._before, self.endpoint.stats]

    async def run(self, ask: Ask) -> Sequence[Answer] | None:
        """Ask the server while it is up; None if it hung and was ended, `ServerGone` if it ended before.

        Raises `LaunchFailed` if the endpoint reports that the server will not be restarted.
        """
        endpoint, ended, silence = self.endpoint, self._ended, self.silence
        assert endpoint is not None
        self.in_flight += 1
        try:
            return await self._run_while_up(endpoint, ask)
        except Unavailable as error:
            if not silence.done():
                silence.set_result(str(error))
            await ended.wait()
            return None
        except LaunchFailed as error:
            if endpoint is self.endpoint:
                self.leave(comes_back=False)
                self.give_up(str(error))
            raise
        finally:
            self.in_flight -= 1

    async def _run_while_up(self, endpoint: ServerClient, ask: Ask) -> Sequence[Answer]:
        block = EndableBlock()
        try:
            with block:
                self._blocks.add(block)
                return await ask(endpoint)
        finally:
            self._blocks.discard(block)


class ServedEndpoint:
    """An `Endpoint` over all places of a model's servers."""

    def __init__(self, places: Sequence[ServedPlace] = ()) -> None:
        self.answered_before = False
        """Whether the model has answered at an earlier start of the run."""
        self.places: list[ServedPlace] = []
        self._up: list[ServedPlace] = []
        """Places where a server is up, kept since each request needs them."""
        self._changed = asyncio.Event()
        self._lost = 0
        """Answers that were in flight when a server ended."""
        for place in places:
            self.add(place)

    def add(self, place: ServedPlace) -> None:
        """Add a place."""
        place.changed, place.has_answered = self._notify, lambda: self.has_answered
        self.places.append(place)
        self._notify()

    def expect_none(self) -> None:
        """Record that no server that is away comes back by itself."""
        for place in self.places:
            place.expected = place.endpoint is not None

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order."""
        return list(await self.run(lambda endpoint: endpoint.sample(prompt, seeds, again), len(seeds), again))

    async def run(self, ask: Ask, size: int, again: Again | None) -> Sequence[Answer]:
        """Ask one server after the other, until one has given this many answers."""
        while True:
            place = await self._least_busy()
            try:
                answers = await place.run(ask)
            except ServerGone:
                self._lost += size
            except LaunchFailed:
                if not self._up:
                    self.expect_none()
                    raise
            else:
                if answers is not None:
                    return answers
            if again is not None and not await again():
                raise RetryNotAllowed("its server has ended, and the budget does not allow asking for the answer again")

    async def check(self) -> Health:
        place = await self._least_busy()
        assert place.endpoint is not None
        return await place.endpoint.check()

    async def close(self) -> None:
        for place in self.places:
            await place.end()

    @property
    def stats(self) -> EndpointStats:
        """Traffic at all places."""
        together = summed_stats([one for place in self.places for one in place.traffic])
        return replace(together, lost=together.lost + self._lost)

    @property
    def has_answered(self) -> bool:
        """Whether the model has answered a request of the run."""
        return self.answered_before or self.stats.completion_tokens > 0

    async def _least_busy(self) -> ServedPlace:
        """Wait for a server, and return the place with fewest requests; raises `LaunchFailed` if none will be up."""
        while not self._up:
            gone = next((place.gone for place in self.places if place.gone is not None), None)
            if gone is not None and not any(place.expected for place in self.places):
                raise LaunchFailed(gone)
            await self._changed.wait()
        return min(self._up, key=lambda place: place.in_flight)

    def _notify(self) -> None:
        """Wake everyone who waits for a server."""
        self._up = [place for place in self.places if place.up]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
