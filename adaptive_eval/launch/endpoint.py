"""The client of a model whose servers start and stop, at one or several places.

Each running server has its own client, which is closed when the server has ended. A request goes to the server with
the fewest requests, and waits if no server is up. If a server ends, its requests in flight are repeated, with the same
seeds, as soon as a server is up, since a restart may take longer than the timeouts for external servers. If a request
times out at a running server, the server hangs, and is restarted too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from adaptive_eval.base.errors import LaunchFailed, RetryNotAllowed, Unavailable
from adaptive_eval.endpoints.time_limit import CancelScope
from adaptive_eval.endpoints.types import Answer, EndpointStats, RetryGate, summed_stats


class ServerClient(Protocol):
    """Client of a running server; an `AskServer` calls it."""

    async def close(self) -> None:
        """Close every connection."""

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far."""


AskServer = Callable[[Any, Any, RetryGate | None], Awaitable[Sequence[Answer]]]
"""Sends a request to the client of a running server."""


class ServerGone(Exception):
    """A server has ended or cannot be reached; its requests must be repeated."""


class ServedPlace:
    """A place where a model's server starts and stops, with its state and its requests."""

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Called when a server is up, and when it is certain that none will start."""
        self.has_answered: Callable[[], bool] = lambda: False
        """Whether the model has answered a request of the run, here or elsewhere."""
        self.endpoint: ServerClient | None = None
        """The server's endpoint, while it is up."""
        self.gone_reason: str | None = None
        """Why no server will start here by itself; None if one may."""
        self.expected = False
        """Whether a server is up, or will start again by itself."""
        self.in_flight = 0
        self.silence: asyncio.Future[str]
        """Done, with the reason, when the current server hangs."""
        self._end_event: asyncio.Event
        """Set when the current server has ended."""
        self._scopes: set[CancelScope] = set()
        """Requests in flight."""
        self.earlier_traffic = EndpointStats()
        """Summed traffic of earlier servers."""

    def begin(self, endpoint: ServerClient) -> None:
        """Register a server that is up."""
        self.endpoint, self.gone_reason, self.expected = endpoint, None, True
        self.silence = asyncio.get_running_loop().create_future()
        self._end_event = asyncio.Event()
        self.changed()

    def unregister(self, *, comes_back: bool) -> ServerClient | None:
        """Unregister the server: requests in flight are repeated. Returns its endpoint, which the caller must close."""
        endpoint, self.endpoint = self.endpoint, None
        if endpoint is not None:
            self.expected = comes_back
            self._end_event.set()
            total = summed_stats([self.earlier_traffic, endpoint.stats])
            self.earlier_traffic = replace(total, in_flight=0, oldest=0.0, replicas=())
            scopes, self._scopes = self._scopes, set()
            for scope in scopes:
                scope.end(ServerGone())
            self.changed()
        return endpoint

    async def end(self) -> None:
        """Unregister the server, which comes back by itself unless it is given up."""
        if (endpoint := self.unregister(comes_back=True)) is not None:
            await endpoint.close()

    def give_up(self, reason: str) -> None:
        """Record that the server does not come back by itself: no more requests are sent here."""
        self.gone_reason, self.expected = reason, False
        self.changed()

    @property
    def up(self) -> bool:
        """Whether the server can take requests now."""
        return self.endpoint is not None and self.gone_reason is None

    @property
    def traffic(self) -> list[EndpointStats]:
        """Traffic so far, to be summed; without replicas while no server is up."""
        return [self.earlier_traffic, *([] if self.endpoint is None else [self.endpoint.stats])]

    async def run(self, ask: Callable[[Any], Awaitable[Sequence[Answer]]]) -> Sequence[Answer] | None:
        """Send a request while the server is up; None if it hung and was ended. Raises `ServerGone` if it ended.

        Raises `LaunchFailed` if the endpoint reports that the server will not be restarted.
        """
        endpoint, ended, silence = self.endpoint, self._end_event, self.silence
        assert endpoint is not None
        scope = CancelScope()
        self.in_flight += 1
        try:
            async with scope:
                self._scopes.add(scope)
                try:
                    return await ask(endpoint)
                finally:
                    self._scopes.discard(scope)
        except Unavailable as error:
            if not silence.done():
                silence.set_result(str(error))
            await ended.wait()
            return None
        except LaunchFailed as error:
            if endpoint is self.endpoint:
                self.unregister(comes_back=False)
                self.give_up(str(error))
            raise
        finally:
            self.in_flight -= 1


class ServedEndpoint:
    """The client of a model over all places of its servers."""

    def __init__(
        self, ask_server: AskServer, places: Sequence[ServedPlace] = (), *, answered_before: bool = False
    ) -> None:
        """`answered_before`: the model has answered at an earlier start of the run."""
        self._ask_server, self._answered_before = ask_server, answered_before
        self.places: list[ServedPlace] = []
        self._changed = asyncio.Event()
        self._lost_answers = 0
        """Answers that were in flight when a server ended."""
        for place in places:
            self.add(place)

    def add(self, place: ServedPlace) -> None:
        """Add a place."""
        place.changed, place.has_answered = self._notify, lambda: self.has_answered
        self.places.append(place)
        self._notify()

    def expect_none(self) -> None:
        """Record that no stopped server starts again by itself."""
        for place in self.places:
            place.expected = place.endpoint is not None

    async def ask(self, request: Any, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """Ask one server after another, until one has answered."""
        while True:
            place = await self._least_busy()
            try:
                answers = await place.run(lambda client: self._ask_server(client, request, retry_gate))
            except ServerGone:
                self._lost_answers += request.size
            except LaunchFailed:
                if not any(other.up for other in self.places):
                    self.expect_none()
                    raise
            else:
                if answers is not None:
                    return answers
            if retry_gate is not None and not await retry_gate():
                raise RetryNotAllowed("its server has ended, and the budget does not allow asking for the answer again")

    async def close(self) -> None:
        """Close the clients of all servers."""
        await asyncio.gather(*(place.end() for place in self.places))

    @property
    def stats(self) -> EndpointStats:
        """Traffic at all places."""
        total = summed_stats([stats for place in self.places for stats in place.traffic])
        return replace(total, lost=total.lost + self._lost_answers)

    @property
    def has_answered(self) -> bool:
        """Whether the model has answered a request of the run."""
        return self._answered_before or self.stats.completion_tokens > 0

    async def _least_busy(self) -> ServedPlace:
        """Wait for a server, and return the place with the fewest requests; raises `LaunchFailed` if none will
        start."""
        while not (up := [place for place in self.places if place.up]):
            reason = next((place.gone_reason for place in self.places if place.gone_reason is not None), None)
            if reason is not None and not any(place.expected for place in self.places):
                raise LaunchFailed(reason)
            await self._changed.wait()
        return min(up, key=lambda place: place.in_flight)

    def _notify(self) -> None:
        """Wake all requests that wait for a server."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
