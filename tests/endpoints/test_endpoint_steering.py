"""Windows that follow the load of real servers: full, and hardly anything in line."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import numpy as np
import pytest
from endpoint_opener import Opener
from raw_servers import CHAT, Exchange, raw_server

from adaptive_eval.endpoints import client
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.settings import DEFAULT, EndpointSettings
from adaptive_eval.endpoints.sharing import SharedTime
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, binary

WORLD = World("six", binary(np.full((6, 4), 0.5)), latency=Latency(0.05, 0.3, 1.0), models=("m", *"abcde"))
QUESTION = Prompt(messages=(Message("user", "[q1] Which number?"),))
Page = Callable[[Exchange], Awaitable[None]]


QUICK = EndpointSettings(tick=0.01, backoff=0.01, probe_every=0.1, probe_again=0.02, read_every=0.03)


@asynccontextmanager
async def busy(*models: ModelEndpoint, workers: int = 128, n: int = 1) -> AsyncIterator[None]:
    """While every model is asked by so many at once, without a pause."""
    firsts = count(0, n)

    async def work(model: ModelEndpoint) -> None:
        while True:
            first = next(firsts)
            await model.sample(QUESTION, range(first, first + n))

    tasks = [asyncio.create_task(work(model)) for model in models for _ in range(workers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settles(server: SimulatedServer, sequences: int, most_waiting: float) -> None:
    """Wait until so many run and few wait, and stay so for a while; on a machine that is busy that may take longer."""
    assert server.places is not None
    seen: deque[bool] = deque(maxlen=25)
    for _ in range(1500):
        await asyncio.sleep(0.01)
        seen.append(server.places.running >= 0.8 * sequences and server.places.waiting <= most_waiting)
        if sum(seen) >= 23:  # an answer that is on its way back leaves its place empty for a moment
            return
    raise AssertionError(f"{server.places.running} run and {server.places.waiting} wait at {sequences} places")


def sizes(model: ModelEndpoint) -> list[int]:
    return [replica.limit for replica in model.stats.replicas]


@pytest.mark.parametrize("places", [2, 50])
async def test_a_server_is_full_and_few_wait(endpoint: Opener, places: int) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=places) as server:
        model = endpoint(server.base_url, in_flight=128, settings=QUICK)
        async with busy(model):
            await settles(server, places, max(2.0, places / 3))


@pytest.mark.slow
async def test_models_of_one_server_fill_it_together(endpoint: Opener) -> None:
    shared = SharedTime()
    async with SimulatedServer(WORLD, max_num_seqs=12) as server:
        models = [
            endpoint(server.base_url, model=name, in_flight=64, shared_time=shared, settings=QUICK)
            for name in WORLD.models
        ]
        async with busy(*models, workers=64):
            await settles(server, 12, 8.0)


# -- what /metrics may be ------------------------------------------------------------------------------------------


async def answering(asked: Exchange) -> None:
    await asyncio.sleep(0.1)
    await asked.answer("42")


async def window_under(
    endpoint: Opener, page: Page, seconds: float = 0.5, settings: EndpointSettings = QUICK
) -> tuple[list[int], int]:
    """The sizes of a window under such a /metrics, and how often it was read."""
    reads = 0

    async def counted(asked: Exchange) -> None:
        nonlocal reads
        reads += 1
        await page(asked)

    seen: list[int] = []
    async with raw_server(answering, pages={"/metrics": counted}) as server:
        model = endpoint(server.base_url, in_flight=100, settings=settings)

        async def work() -> None:
            for i in count():
                await model.sample(CHAT, range(i, i + 1))

        workers = [asyncio.create_task(work()) for _ in range(100)]
        for _ in range(round(seconds / 0.02)):
            await asyncio.sleep(0.02)
            seen += sizes(model)
        for worker in workers:
            worker.cancel()
        assert not any(worker.done() for worker in workers)
        await asyncio.gather(*workers, return_exceptions=True)
        await model.close()
    return seen, reads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statuses", "text", "seconds"),
    [
        pytest.param((401, 404, 501), b"no", 0.3, id="no metrics"),
        pytest.param((200, 302, 500), b"<html>Hello</html>", 0.5, id="no load on the page", marks=pytest.mark.slow),
    ],
)
async def test_a_server_that_does_not_tell_its_load_is_asked_a_few_times(
    endpoint: Opener, statuses: tuple[int, ...], text: bytes, seconds: float
) -> None:
    for status in statuses:

        async def page(asked: Exchange, status: int = status) -> None:
            await asked.reply(status, text)

        seen, reads = await window_under(endpoint, page, seconds)
        assert 3 <= reads <= 6 and seen[-1] == 100


async def test_metrics_that_hang_hold_nothing_up(endpoint: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PROBE_SECONDS", 0.1)

    async def page(asked: Exchange) -> None:
        await asyncio.sleep(30.0)

    seen, reads = await window_under(endpoint, page)
    assert seen[0] == DEFAULT.first_window and seen[-1] == 100 and reads <= 6


async def test_the_sdk_asks_for_no_metrics(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=4) as server:
        model = endpoint(server.base_url, client="openai", in_flight=64, settings=QUICK)
        await model.sample(QUESTION, range(1))
        await asyncio.sleep(0.1)
        assert sizes(model) == [64]
