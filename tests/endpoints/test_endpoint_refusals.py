"""A refusal is believed when it comes again: strays cost nothing, and a server that means it is not hammered."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from endpoint_opener import Opener, answer, first
from raw_servers import CHAT, Exchange, Script, raw_server
from thoroughness import in_turns

from adaptive_eval.base.errors import Rejected, Unavailable
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.settings import DEFAULT

LATER = DEFAULT.refusals
AT_FIRST = LATER // 2
CLIENTS = pytest.mark.parametrize("client", ["http", "openai"])


def refusing(when: Callable[[Exchange], bool], status: int = 403) -> Script:
    """A script that refuses then."""

    async def script(asked: Exchange) -> None:
        if when(asked):
            await asked.reply(status, {"error": {"message": f"no ({asked.index})"}})
        else:
            await answer(asked)

    return script


async def ask(model: ModelEndpoint, number: int) -> list[object]:
    """What comes of so many requests at once."""
    tasks = (model.sample(CHAT, range(seed, seed + 1)) for seed in range(number))
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("status", "client"), in_turns([301, 400, 401, 402, 403, 404, 405, 410, 418, 422, 451], ["http", "openai"])
)
async def test_one_stray_refusal_costs_one_request(endpoint: Opener, client: str, status: int) -> None:
    async with raw_server(refusing(lambda asked: asked.index == 3, status)) as server:
        model = endpoint(server.base_url, client=client, in_flight=4)
        assert not [result for result in await ask(model, 12) if isinstance(result, BaseException)]
    assert len(server.seen) == 13
    assert model.stats.errors == {"refused": 1} and f"HTTP {status}: no (3)" in model.stats.last_error
    assert model.stats.replicas[0].limit == 4


async def test_who_refuses_everything_is_believed_soon_and_asked_again_once_mended(endpoint: Opener) -> None:
    wrong = [True]
    async with raw_server(refusing(lambda asked: wrong[0], 401)) as server:
        model = endpoint(server.base_url, in_flight=64)
        results = await ask(model, 200)
        assert all(isinstance(result, Rejected) and "HTTP 401: no" in str(result) for result in results)
        assert len(server.seen) <= 64 + 2 * AT_FIRST
        await asyncio.sleep(0.05)
        assert all(isinstance(result, Rejected) for result in await ask(model, 2))
        wrong[0] = False
        assert not [result for result in await ask(model, 8) if isinstance(result, BaseException)]
        assert model.stats.replicas[0].healthy


async def test_one_that_has_answered_gets_more_time(endpoint: Opener) -> None:
    async with raw_server(refusing(lambda asked: asked.index >= 3)) as server:
        model = endpoint(server.base_url)
        assert not [result for result in await ask(model, 3) if isinstance(result, BaseException)]
        with pytest.raises(Rejected, match="HTTP 403"):
            await model.sample(CHAT, range(1))
    assert len(server.seen) == 3 + LATER
    async with raw_server(refusing(lambda asked: 3 <= asked.index < 3 + LATER - 1)) as server:
        model = endpoint(server.base_url)
        assert not [result for result in await ask(model, 8) if isinstance(result, BaseException)]


async def test_a_request_that_is_refused_alone_fails_and_others_go_on(endpoint: Opener) -> None:
    async with raw_server(refusing(lambda asked: asked.body["seed"] == 7, 422)) as server:
        model = endpoint(server.base_url, in_flight=4)
        results = await ask(model, 60)
        more = await ask(model, 6)
    assert [seed for seed, result in enumerate(results + more) if isinstance(result, Rejected)] == [7]
    counts = Counter(asked.body["seed"] for asked in server.seen)
    assert counts[7] == LATER


async def test_a_replica_that_refuses_everything_is_left_alone_until_it_does_not(endpoint: Opener) -> None:
    wrong = [True]
    async with raw_server(refusing(lambda asked: wrong[0], 404)) as bad, raw_server(refusing(lambda _: False)) as good:
        model = endpoint(bad.base_url, good.base_url, in_flight=4)
        assert not [result for result in await ask(model, 200) if isinstance(result, BaseException)]
        assert len(bad.seen) < 30 and len(good.seen) == 200
        assert [replica.healthy for replica in model.stats.replicas] == [len(bad.seen) < 4 + AT_FIRST - 1, True]
        wrong[0] = False
        async with asyncio.timeout(10.0):
            while len(bad.seen) < 100:
                await ask(model, 20)
                await asyncio.sleep(0.01)
        assert [replica.healthy for replica in model.stats.replicas] == [True, True]


async def test_where_one_refuses_and_the_other_is_dead_nobody_waits(endpoint: Opener, unused_tcp_port: int) -> None:
    dead = f"http://127.0.0.1:{unused_tcp_port}/v1"
    async with raw_server(refusing(lambda asked: True)) as server:
        model = endpoint(server.base_url, dead)
        async with asyncio.timeout(10.0):
            with pytest.raises((Rejected, Unavailable)):
                await model.sample(CHAT, range(1))


@CLIENTS
async def test_a_stray_refusal_of_the_list_of_models_hides_nothing(endpoint: Opener, client: str) -> None:
    seen = []

    async def models(asked: Exchange) -> None:
        seen.append(asked)
        stray = len(seen) == 1
        await asked.reply(403 if stray else 200, {"data": [{"id": "other"}]})

    async with raw_server(refusing(lambda asked: True, 404), pages={"/v1/models": models}) as server:
        with pytest.raises(Rejected, match="has no model 'm', only other"):
            await endpoint(server.base_url, client=client).sample(CHAT, range(1))
    assert len(seen) >= 2 and len(server.seen) == 3


async def test_a_check_asks_again_after_an_error_of_the_server(endpoint: Opener) -> None:
    for failures, detail in ((1, "it answers, asked again after: HTTP 500: hiccup"), (2, "HTTP 500: hiccup")):
        async with raw_server(first(failures, lambda asked: asked.reply(500, b"hiccup"))) as server:
            health = await endpoint(server.base_url).check()
        assert (health.ok, health.replicas[0].detail) == (failures == 1, detail)


async def test_a_stray_refusal_of_several_answers_leaves_them_together(endpoint: Opener) -> None:
    async with raw_server(refusing(lambda asked: asked.index == 2, 400)) as server:
        model = endpoint(server.base_url, samples_per_request=3)
        for start in range(0, 15, 3):
            assert len(await model.sample(CHAT, range(start, start + 3))) == 3
    assert [asked.body.get("n") for asked in server.seen] == [3] * 6


async def test_a_stream_that_goes_on_is_a_sign_that_requests_are_accepted(endpoint: Opener) -> None:
    """Others are not held back until a long answer is at its end."""
    released, enough = asyncio.Event(), asyncio.Event()

    async def script(asked: Exchange) -> None:
        if asked.index == 9:
            enough.set()
        if asked.index in (0, 1):
            await asked.reply(403, b"no")
            return
        piece = b'data: {"choices": [{"index": 0, "delta": {"content": "42"}}]}\n\n'
        await asked.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + piece)
        await released.wait()
        await asked.send(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
        asked.close()

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=True, in_flight=8)
        asking = asyncio.create_task(ask(model, 8))
        async with asyncio.timeout(3.0):
            await enough.wait()
        released.set()
        assert not [result for result in await asking if isinstance(result, BaseException)]
