"""A launched server whose endpoint is a fake that answers when it is let to."""

import asyncio
import os
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from patient_time import HANGS
from processes import SERVER

from adaptive_eval.endpoints.types import Answer, EndpointStats, ReplicaStats, RetryGate
from adaptive_eval.launch.endpoint import ServedEndpoint
from adaptive_eval.launch.server import LaunchedServer, ServerSpec
from adaptive_eval.notes import Event


class Asked(NamedTuple):
    """A request."""

    seeds: range

    @property
    def size(self) -> int:
        return len(self.seeds)


class Inner:
    """The endpoint of a server while it is up; answers when it is let to."""

    def __init__(self) -> None:
        self.asked: list[range] = []
        self.answers = asyncio.Event()
        self.error: Exception | None = None
        self.closed = False

    async def ask(self, seeds: range) -> list[Answer]:
        self.asked.append(seeds)
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return [Answer("2", "stop", seed, "fake", 0.1) for seed in seeds]

    async def close(self) -> None:
        self.closed = True

    @property
    def stats(self) -> EndpointStats:
        replica = ReplicaStats("fake", True, 0, 1)
        return EndpointStats(requests=len(self.asked), errors={"reset": 1}, replicas=(replica,))


async def ask_server(inner: Inner, asked: Asked, again: RetryGate | None) -> list[Answer]:
    return await inner.ask(asked.seeds)


class Bed:
    """A server of this port, or of another one where it cannot have that, and what it told."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *what: str,
        others: Iterable[int] = (),
        timeout: float = HANGS,
        program: str = sys.executable,
        place: str | None = None,
        sleep_level: int = 0,
    ) -> None:
        self.log = folder / "logs" / "m.log"
        self.inners: list[Inner] = []
        self.opened: list[str] = []
        self.events: list[Event] = []

        def spec_at(port: int) -> ServerSpec:
            command = (program, "-S", str(SERVER), str(port), *what)
            return ServerSpec("m", port, command, os.environ, folder, self.log, timeout, place, sleep_level)

        self.server = LaunchedServer(spec_at, chain((port,), others), self._open)
        self.endpoint = ServedEndpoint(ask_server, [self.server.served])

    def _open(self, root: str, has_answered: bool) -> Inner:
        self.opened.append(root)
        self.inners.append(Inner())
        return self.inners[-1]

    async def start(self) -> None:
        await self.server.start(self.events.append)

    @property
    def pid(self) -> int:
        assert self.server._process is not None
        return self.server._process.pid
