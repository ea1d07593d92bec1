"""A simulated model server on loopback, for the quickstart and tests.

    async with SimulatedServer(world) as server:      # in this event loop
        server.base_url

    with serving(SimulatedServer(world)) as base_url: # in its own thread
        ...

It binds to 127.0.0.1 only.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from aiohttp import web

from adaptive_eval.base.http_server import HttpServer
from adaptive_eval.simulate.answering import OwnQuestions, Respondent
from adaptive_eval.simulate.api import Api
from adaptive_eval.simulate.faults import BatchHabits, Faults
from adaptive_eval.simulate.judging import SimulatedJudge, SimulatedVerifier
from adaptive_eval.simulate.replies import ApiReply, ServingSlots, send_reply
from adaptive_eval.simulate.worlds import World

HOST = "127.0.0.1"


class SimulatedServer:
    """A replica that serves every model of a world."""

    def __init__(
        self,
        world: World,
        *,
        port: int = 0,
        seed: int = 0,
        faults: Faults | None = None,
        max_num_seqs: int | None = None,
        judge: SimulatedJudge | None = None,
        batches: BatchHabits | None = None,
        verifier: SimulatedVerifier | None = None,
        own: OwnQuestions | None = None,
        respondent: Respondent | None = None,
    ) -> None:
        """`judge` and `verifier` are served under these names. `respondent` replaces the world's own."""
        self._faults = faults or Faults()
        self.places = None if max_num_seqs is None else ServingSlots(max_num_seqs)
        """Slots for answers, if their number is limited."""
        self._http: HttpServer | None = None
        self._planned: list[asyncio.Task[None]] = []
        self._started_at = 0.0
        self._port = port
        respondent = respondent or Respondent(world, seed, own)
        self._api = Api(respondent, self._faults, self._now, self.places, judge, batches, verifier)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        await self.listen()
        self._planned = [asyncio.create_task(self._outage(window.start, window.length)) for window in self._faults.down]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._planned:
            task.cancel()
        await asyncio.gather(*self._planned, return_exceptions=True)
        await self.die()

    @property
    def base_url(self) -> str:
        """Address for a client's `base_url`."""
        return f"http://{HOST}:{self._port}/v1"

    @property
    def counts(self) -> Counter[str]:
        """Number of requests for answers by outcome."""
        return self._api.counts

    @property
    def batch_counts(self) -> Counter[str]:
        """Number of batches and of their requests by state."""
        return self._api.batches.counts

    async def listen(self) -> None:
        """Accept connections, after `die` on the same port."""
        self._http = HttpServer(self._respond)
        self._port = await self._http.listen(HOST, self._port)

    async def die(self) -> None:
        """Stop listening and abort every connection."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    def _now(self) -> float:
        return self._loop.time() - self._started_at

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if (length := request.content_length or 0) > request.client_max_size:  # it is not waited for
            raise web.HTTPRequestEntityTooLarge(request.client_max_size, length)
        reply = self._handle(request.method, request.path, await request.read())
        return await send_reply(request, reply, self.places)

    def _handle(self, method: str, path: str, body: bytes) -> ApiReply:
        return self._api.handle(method, path, body)

    async def _outage(self, start: float, length: float) -> None:
        await asyncio.sleep(start)
        await self.die()
        await asyncio.sleep(length)
        await self.listen()


@contextmanager
def serving(server: SimulatedServer) -> Iterator[str]:
    """Run a server in a thread with its own event loop; yields its base URL."""
    ready = threading.Event()
    trouble: list[BaseException] = []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with server:
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        except BaseException as error:
            trouble.append(error)
            ready.set()
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="simulated-server", daemon=True)
    thread.start()
    ready.wait()
    if trouble:
        thread.join()
        raise trouble[0]
    try:
        yield server.base_url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
