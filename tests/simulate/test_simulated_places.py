"""A server that computes a number of sequences at once and reports how many wait."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import numpy as np
import pytest

from adaptive_eval.endpoints.load import ServerLoad, parse_load
from adaptive_eval.simulate.replies import ServingSlots
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import Latency, World, binary

WORLD = World("one", binary(np.full((1, 2), 0.5)), models=("m",), latency=Latency(0.15, 0.0, 1.0))


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=5.0, verify=False) as opened:
        yield opened


def body(seed: int, **values: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "[q1] Which?"}], "seed": seed, **values}


async def ask(client: httpx2.AsyncClient, server: SimulatedServer, seed: int, **values: Any) -> httpx2.Response:
    return await client.post(server.base_url + "/chat/completions", json=body(seed, **values))


async def load(client: httpx2.AsyncClient, server: SimulatedServer) -> ServerLoad | None:
    return parse_load((await client.get(server.base_url.removesuffix("/v1") + "/metrics")).content)


async def test_a_leaving_request_gives_up_its_places_and_its_turn() -> None:
    places, begun = ServingSlots(2), []
    first = places.enter([60.0] * 3, lambda: begun.append("first"))
    places.enter([60.0], lambda: begun.append("second"))
    places.leave(first)
    places.leave(first)
    assert (begun, places.running, places.waiting) == (["second"], 1, 0)


async def test_the_server_says_what_runs_and_what_waits(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=4) as server:
        assert await load(client, server) == ServerLoad(0.0, 0.0)
        begun = asyncio.get_running_loop().time()
        asked = [asyncio.create_task(ask(client, server, seed)) for seed in range(6)]
        asked.append(asyncio.create_task(ask(client, server, 10, n=3, stream=True)))
        for _ in range(10):
            if (now := await load(client, server)) is not None and now.running + now.waiting == 9.0:
                break
        assert now == ServerLoad(4.0, 5.0)
        replies = await asyncio.gather(*asked)
        # nine sequences of 0.15 s at four places
        assert asyncio.get_running_loop().time() - begun >= 0.42
        assert await load(client, server) == ServerLoad(0.0, 0.0)
    assert {reply.status_code for reply in replies} == {200}


async def test_answers_are_what_they_would_be_with_places_for_all(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(WORLD, max_num_seqs=1) as few, SimulatedServer(WORLD) as many:
        waited = await asyncio.gather(*(ask(client, few, seed) for seed in range(3)))
        at_once = await asyncio.gather(*(ask(client, many, seed) for seed in range(3)))
        assert await load(client, many) is None
    choices = [[reply.json()["choices"] for reply in replies] for replies in (waited, at_once)]
    assert choices[0] == choices[1]


async def test_a_client_that_goes_away_frees_its_place(client: httpx2.AsyncClient) -> None:
    async with SimulatedServer(
        World("slow", WORLD.p, latency=Latency(60.0, 0.0, 1.0), models=("m",)), max_num_seqs=1
    ) as server:
        assert server.places is not None
        async with httpx2.AsyncClient(verify=False) as other:
            for seed in range(2):
                with pytest.raises(httpx2.ReadTimeout):
                    await other.post(server.base_url + "/chat/completions", json=body(seed), timeout=0.1)
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not server.places.running:
                break
        assert (server.places.running, server.places.waiting) == (0, 0)
