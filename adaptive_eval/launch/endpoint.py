"""The endpoint of a model whose server comes and goes.

Each time the server is up it has a `ModelEndpoint` of its own, which is closed when the server has ended. What was in
flight then is asked again, with the same seeds, as soon as the server is back; a server that is started again may take
longer than the patience that servers of others get. Where that patience has ended with a server that still runs, it
hangs, and is started again, too.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from adaptive_eval.endpoints.time_limit import EndableBlock
from adaptive_eval.endpoints.types import Again, Answer, Endpoint, EndpointStats, Health, Prompt, summed_stats
from adaptive_eval.errors import LaunchFailed, NotAskedAgain, Unavailable


class LaunchedEndpoint:
    """An `Endpoint` that waits while its server is away."""

    def __init__(self, open_: Callable[[], Endpoint]) -> None:
        self._open = open_
        self._current: Endpoint | None = None
        self.silence: asyncio.Future[str]
        """Done when the server that is up has not answered for longer than it may, and why that is thought."""
        self._changed = asyncio.Event()
        """Set while there is a server, and when it is known that there will be none."""
        self._ended = asyncio.Event()
        """Set while there is none."""
        self._gone: str | None = None
        self._begun = False
        self._retired = False
        """Nothing new is to go to the server, which answers what it has."""
        self._in_flight = 0
        self._leases: set[EndableBlock] = set()
        self._before = EndpointStats()
        self._cut = 0
        """Answers that were in flight when a server ended."""

    def begin(self) -> None:
        """The server is up."""
        if self._gone is not None:  # else it comes back for the answers that it owes
            self._retired = False
        self._current, self._gone, self._begun = self._open(), None, True
        self.silence = asyncio.get_running_loop().create_future()
        self._ended.clear()
        self._changed.set()

    async def end(self) -> None:
        """The server is away: what is in flight waits until it is back."""
        ended, self._current = self._current, None
        if ended is None:
            return
        self._changed.clear()
        self._ended.set()
        self._before = replace(summed_stats([self._before, ended.stats]), in_flight=0, oldest=0.0, replicas=())
        leases, self._leases = self._leases, set()
        for lease in leases:
            lease.end()
        await ended.close()

    def give_up(self, reason: str) -> None:
        """The server does not come back by itself: everyone who waits is told, and everyone who comes."""
        self._gone = reason
        self._changed.set()

    def retire(self) -> None:
        """Send nothing new to this server if the model has another one."""
        self._retired = True

    @property
    def idle(self) -> bool:
        """Whether no answer of this server is awaited."""
        return not self._in_flight

    @property
    def up(self) -> bool:
        """Whether its server can be asked now."""
        return self._current is not None and not self._retired

    @property
    def expected(self) -> bool:
        """Whether its server can be asked, or will be again: it was started, and nobody has stopped it."""
        return self._begun and self._gone is None

    # -- the protocol --------------------------------------------------------------------------------------------

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One answer per seed, in their order."""
        self._in_flight += 1
        try:
            return await self._sample_until_answered(prompt, seeds, again)
        finally:
            self._in_flight -= 1

    async def _sample_until_answered(self, prompt: Prompt, seeds: range, again: Again | None) -> list[Answer]:
        while True:
            endpoint = await self._wait_for_server()
            try:
                answers = await self._sample_while_up(endpoint, prompt, seeds, again)
            except Unavailable as error:
                if endpoint is self._current:
                    if not self.silence.done():
                        self.silence.set_result(str(error))
                    await self._ended.wait()
            else:
                if answers is not None:
                    return answers
                self._cut += len(seeds)
            if again is not None and not await again():
                raise NotAskedAgain("its server has ended, and the budget does not allow asking for the answer again")

    async def check(self) -> Health:
        return await (await self._wait_for_server()).check()

    async def close(self) -> None:
        await self.end()

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far; no replica while the server is away."""
        so_far = self._before if self._current is None else summed_stats([self._before, self._current.stats])
        return replace(so_far, lost=so_far.lost + self._cut)

    async def _sample_while_up(
        self, endpoint: Endpoint, prompt: Prompt, seeds: range, again: Again | None
    ) -> list[Answer] | None:
        """Sample while the server is up; None if it ends before."""
        lease = EndableBlock()
        try:
            with lease:
                self._leases.add(lease)
                return await endpoint.sample(prompt, seeds, again)
        except TimeoutError:
            if not lease.ended:
                raise
            return None
        finally:
            self._leases.discard(lease)

    async def _wait_for_server(self) -> Endpoint:
        """Wait until the server is up, and return its endpoint."""
        while self._current is None:
            if self._gone is not None:
                raise LaunchFailed(self._gone)
            await self._changed.wait()
        return self._current
