"""Where servers run: a place of its own for each, or one that several models share, one at a time."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adaptive_eval.launch.places import Places
from adaptive_eval.launch.server import Server, Tell
from adaptive_eval.store import Event, EventKind

WAITED_SECONDS = 0.1
"""A place that is free is had in less."""


class _Held(NamedTuple):
    """A place that this run has."""

    by: Sequence[int] = ()
    """The descriptor that holds it."""
    waited: float | None = None
    """Seconds until it was had, where another run had it, or one that is taken before it."""


class Host:
    """Serves one of its models at a time; models are named by their numbers in the run."""

    def __init__(self, place: str | None, servers: Mapping[int, Server], places: Places) -> None:
        self.servers = servers
        self._place = place
        """What the models share, such as gpu0; None for a model with a place of its own."""
        self._places = places
        self._loaded: Server | None = None

    @property
    def models(self) -> Sequence[int]:
        """Those that are served here."""
        return tuple(self.servers)

    @property
    def up(self) -> bool:
        """One of them is served."""
        return self._loaded is not None

    async def load(self, model: int, tell: Tell) -> None:
        """Serve this model, in place of the one before; raises `LaunchFailed`."""
        server = self.servers[model]
        held = await self._take(tell)
        began = time.monotonic()
        await self.unload()
        on = {} if self._place is None else {"on": self._place}
        waited = {} if held.waited is None else {"waited": held.waited}
        tell(Event(EventKind.LAUNCHING, {**server.account(), **on, **waited}))
        await server.start(tell, held.by)
        self._loaded = server
        tell(Event(EventKind.LAUNCHED, {**server.account(), **on, "seconds": time.monotonic() - began}))

    async def unload(self, *, at_once: bool = False) -> None:
        """Serve nothing."""
        server, self._loaded = self._loaded, None
        if server is not None:
            await server.stop(at_once=at_once)

    def kill(self) -> None:
        """Make what is being stopped end at once."""
        for server in self.servers.values():
            server.kill()

    async def _take(self, tell: Tell) -> _Held:
        """Have the place."""
        if self._place is None:
            return _Held()
        began = time.monotonic()
        descriptor = await self._places.take(
            self._place, lambda place, holder: tell(Event(EventKind.WAITING, {"on": place, "by": holder}))
        )
        waited = time.monotonic() - began
        return _Held((descriptor,), waited if waited >= WAITED_SECONDS else None)


async def unload_all(hosts: Sequence[Host], *, at_once: bool) -> None:
    """Stop every server; when this is cancelled, at once."""
    await asyncio.gather(*(host.unload(at_once=at_once) for host in hosts))
