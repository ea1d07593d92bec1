"""Windows that follow the load of real servers: full, and hardly anything in line."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
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
async def test_a_window_is_not_made_smaller_while_its_server_warms_up(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=1) as server:
        assert server.places is not None
        server.places.enter([2.0], lambda: None)  # its first step: nothing is answered before
        model = endpoint(server.base_url, in_flight=128, settings=QUICK)
        async with busy(model):
            await asyncio.sleep(1.5)
            assert sizes(model) == [DEFAULT.first_window]
            await settles(server, 1, 2.0)


@pytest.mark.slow
async def test_a_server_whose_places_change_is_followed(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=40) as server:
        model = endpoint(server.base_url, in_flight=128, settings=QUICK)
        assert server.places is not None
        async with busy(model):
            for places in (40, 6, 40):
                server.places.resize(places)
                await settles(server, places, max(2.0, places / 3))


@pytest.mark.slow
async def test_each_replica_gets_what_it_can_do(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=3) as small, SimulatedServer(WORLD, max_num_seqs=24) as large:
        model = endpoint(small.base_url, large.base_url, in_flight=64, settings=QUICK)
        async with busy(model):
            await asyncio.gather(settles(small, 3, 2.0), settles(large, 24, 8.0))
    assert sizes(model)[0] < sizes(model)[1]


async def test_several_answers_a_request_are_several_sequences(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=32) as server:
        model = endpoint(server.base_url, in_flight=128, samples_per_request=4, settings=QUICK)
        async with busy(model, n=4):
            await settles(server, 32, 16.0)
    assert 8 <= sizes(model)[0] <= 14


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


@pytest.mark.slow
async def test_runs_that_know_nothing_of_each_other_share_a_server(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=40) as server:
        models = [endpoint(server.base_url, in_flight=64, settings=QUICK) for _ in range(2)]
        async with busy(*models, workers=64):
            await settles(server, 40, 20.0)
    assert min(sizes(models[0])[0], sizes(models[1])[0]) >= 8


@pytest.mark.slow
async def test_time_in_line_is_not_taken_from_the_answers(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=4) as server:
        model = endpoint(server.base_url, in_flight=128, settings=QUICK)
        async with busy(model):
            await settles(server, 4, 2.0)
            (answer,) = await model.sample(QUESTION, range(10**6, 10**6 + 1))
    assert answer.latency < 0.5  # 128 in line at 4 places would take 1.5 s
    assert answer.concurrent_answers is not None and answer.concurrent_answers < 10


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


def saying(running: float, waiting: float) -> Page:
    text = f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n".encode()

    async def page(asked: Exchange) -> None:
        await asked.reply(200, text)

    return page


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
    monkeypatch.setattr(client, "AUX_TIMEOUT_S", 0.1)

    async def page(asked: Exchange) -> None:
        await asyncio.sleep(30.0)

    seen, reads = await window_under(endpoint, page)
    assert seen[0] == DEFAULT.first_window and seen[-1] == 100 and reads <= 6


async def test_metrics_without_an_end_are_not_read_to_it(endpoint: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    async def page(asked: Exchange) -> None:
        nonlocal sent
        await asked.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                await asked.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536

    monkeypatch.setattr(client, "AUX_MAX_BYTES", 2**20)
    seen, reads = await window_under(endpoint, page)
    assert seen[-1] == 100
    assert sent <= reads * 16 * 2**20  # what a socket holds comes on top of what is read


@pytest.mark.slow
async def test_only_while_windows_double_readings_are_quick(endpoint: Opener) -> None:
    """A short run must not be over before its windows are open; afterwards there is nothing to hurry for."""
    settings = replace(QUICK, tick=0.02, read_every=60.0)
    seen, reads = await window_under(endpoint, saying(1000.0, 0.0), 1.0, settings)
    assert seen[0] == DEFAULT.first_window and seen[-1] == 100 and reads <= 6
    seen, reads = await window_under(endpoint, saying(1000.0, 1.0), 0.5, settings)
    assert seen[-1] == DEFAULT.first_window and reads <= 2


@pytest.mark.parametrize(
    ("running", "waiting"),
    [(4.0, 5.0), *(pytest.param(*load, marks=pytest.mark.slow) for load in ((1.0, 1000.0), (4.0, 0.0), (0.0, 0.0)))],
)
async def test_metrics_that_lie_leave_the_configured_window(endpoint: Opener, running: float, waiting: float) -> None:
    seen, _ = await window_under(endpoint, saying(running, waiting), 0.8)
    assert min(seen) >= 16
    assert max(seen[-15:]) == 100


async def test_metrics_that_go_away_let_the_window_go(endpoint: Opener) -> None:
    reads = count()

    async def page(asked: Exchange) -> None:
        if next(reads) < 6:
            await saying(8.0, 8.0)(asked)
        else:
            await asked.reply(503, b"")

    seen, _ = await window_under(endpoint, page, 0.9, replace(QUICK, read_rarely=0.06))
    assert min(seen) < DEFAULT.first_window and seen[-1] == 100


async def test_the_sdk_asks_for_no_metrics(endpoint: Opener) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=4) as server:
        model = endpoint(server.base_url, client="openai", in_flight=64, settings=QUICK)
        await model.sample(QUESTION, range(1))
        await asyncio.sleep(0.1)
        assert sizes(model) == [64]
