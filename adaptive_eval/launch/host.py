"""Where servers run: a place of its own for each, or one that several models share, one at a time."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from adaptive_eval.launch.server import Server, Tell
from adaptive_eval.store import Event, EventKind


class Host:
    """Serves one of its models at a time; models are named by their numbers in the run."""

    def __init__(self, name: str | None, servers: Mapping[int, Server]) -> None:
        self.name = name
        """What the models share, such as gpu0; None for a model with a place of its own."""
        self.servers = servers
        self._loaded: Server | None = None

    @property
    def models(self) -> Sequence[int]:
        """Those that are served here."""
        return tuple(self.servers)

    async def load(self, model: int, tell: Tell) -> None:
        """Serve this model, in place of the one before; raises `LaunchFailed`."""
        began, server = time.monotonic(), self.servers[model]
        await self.unload()
        on = {} if self.name is None else {"on": self.name}
        tell(Event(EventKind.LAUNCHING, {**server.account(), **on}))
        await server.start(tell)
        self._loaded = server
        tell(Event(EventKind.LAUNCHED, {**server.account(), **on, "seconds": time.monotonic() - began}))

    async def unload(self, *, at_once: bool = False) -> None:
        """Serve nothing."""
        server, self._loaded = self._loaded, None
        if server is not None:
            await server.stop(at_once=at_once)


async def unload_all(hosts: Sequence[Host], *, at_once: bool) -> None:
    """Stop every server; when this is cancelled, at once."""
    await asyncio.gather(*(host.unload(at_once=at_once) for host in hosts))
