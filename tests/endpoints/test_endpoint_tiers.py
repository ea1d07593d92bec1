"""A service tier that has no capacity for a while: requests wait, and nothing else follows from it."""

import asyncio

import pytest
from endpoint_opener import CLIENTS, Opener, first
from raw_servers import CHAT, Script, raw_server

from adaptive_eval.base.errors import Unavailable
from adaptive_eval.endpoints.settings import EndpointSettings

FULL: dict[str, object] = {"error": {"message": "Resource unavailable", "code": "resource_unavailable"}}


def full(times: int) -> Script:
    """A script whose tier is full so many times."""
    return first(times, lambda asked: asked.reply(429, FULL))


@CLIENTS
async def test_a_request_waits_for_capacity_whatever_its_attempts(endpoint: Opener, client: str) -> None:
    async with raw_server(full(12)) as server:
        model = endpoint(server.base_url, client=client, attempts=1, extra_body={"service_tier": "flex"})
        (answer,) = await model.sample(CHAT, range(1))
    assert answer.attempts == 13 and {asked.body["service_tier"] for asked in server.seen} == {"flex"}
    assert model.stats.errors == {"tier_full": 12} and model.stats.lost == 0
    assert all(replica.healthy for replica in model.stats.replicas)


async def test_pauses_grow_beyond_those_after_other_failures(
    endpoint: Opener, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    settings = EndpointSettings(backoff=0.01, longest_backoff=0.02, longest_wait=0.1)
    async with raw_server(full(6)) as server:
        await endpoint(server.base_url, settings=settings).sample(CHAT, range(1))
    assert waits == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1]


async def test_capacity_that_never_comes_is_waited_for_as_long_as_an_answer_may_take(endpoint: Opener) -> None:
    async with raw_server(full(10**6)) as server:
        model = endpoint(server.base_url, timeout=0.2)
        with pytest.raises(Unavailable, match="tier_full: HTTP 429: Resource unavailable"):
            async with asyncio.timeout(4.0):
                await model.sample(CHAT, range(1))


async def test_a_check_accepts_a_server_whose_tier_is_full(endpoint: Opener) -> None:
    async with raw_server(full(10**6)) as server:
        health = await endpoint(server.base_url).check()
    assert health.ok and "Resource unavailable" in health.replicas[0].detail
