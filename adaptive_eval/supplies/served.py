"""Models whose servers come and go: their client, and the places of all servers of a run."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaptive_eval.endpoints.types import Answer, EndpointStats, RetryGate
from adaptive_eval.launch.endpoint import ServedEndpoint
from adaptive_eval.launch.hosts import ServerHost
from adaptive_eval.machine.trial import Request


class ServedClient:
    """Asks the servers of a model, which come and go; requests of a server that has ended are repeated elsewhere."""

    def __init__(
        self,
        served: ServedEndpoint,
        ask_server: Callable[[Any, Request, RetryGate | None], Awaitable[Sequence[Answer]]],
    ) -> None:
        """`ask_server` asks the endpoint of a server that is up."""
        self._served, self._ask_server = served, ask_server

    async def ask(self, request: Request, retry_gate: RetryGate | None) -> Sequence[Answer]:
        """Ask one server after the other, until one answers."""
        return await self._served.run(
            lambda endpoint: self._ask_server(endpoint, request, retry_gate), request.size, retry_gate
        )

    @property
    def stats(self) -> EndpointStats:
        """The traffic at all places."""
        return self._served.stats


class RunServers:
    """The places of all servers that a run starts, from the beginning to the end."""

    def __init__(self) -> None:
        self.hosts: list[ServerHost] = []
        self._is_ending = False
        self.is_hurried = False
        """Whether servers get no time to end."""

    @property
    def up(self) -> int:
        """How many places serve a model, or are held for one."""
        return sum(host.up for host in self.hosts)

    def hurry(self) -> None:
        """Give servers no more time to end."""
        self.is_hurried = True
        if self._is_ending:
            for host in self.hosts:
                host.kill()

    async def end(self) -> None:
        """Stop all servers."""
        self._is_ending = True
        await asyncio.gather(*(host.unload(at_once=self.is_hurried) for host in self.hosts))


@dataclass(frozen=True, slots=True)
class OpenedHosts:
    """Hosts, and the client of each model that they serve, by its number; nothing is started yet."""

    hosts: Sequence[ServerHost]
    clients: Mapping[int, ServedClient]
