"""Streams: when their silence is late, and servers that cannot stream."""

import asyncio

import pytest
from endpoint_opener import Opener
from patient_time import HANGS, until
from raw_servers import CHAT, Exchange, raw_server
from thoroughness import first_of

from adaptive_eval.endpoints.settings import DEFAULT, EndpointSettings

KNOWN = DEFAULT.late_after
SOON = EndpointSettings(tick=0.02, backoff=0.01, min_late=0.2, probe_every=0.1, probe_again=0.02)
"""Silence is noticed after a fraction of a second."""
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def piece(text: str, reason: str = "null") -> bytes:
    return chunk(
        b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}, "finish_reason": %s}]}\n\n'
        % (text.encode(), reason.encode())
    )


END = piece(" 42", '"stop"') + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@pytest.mark.parametrize("pings", [False, True])
@pytest.mark.parametrize("client", first_of(["http", "httpx2", "openai"], 1))
async def test_a_stream_that_stops_is_asked_again_while_others_speak(
    endpoint: Opener, client: str, pings: bool
) -> None:
    """Comments that a proxy sends for a server that hangs are no sign of life."""
    hung: list[int] = []

    async def script(asked: Exchange) -> None:
        seed = int(str(asked.body["seed"]))
        await asked.send(STREAM_HEAD + piece("6 times 7 is"))
        if seed == KNOWN and len(hung) < 2:
            hung.append(asked.index)
            for _ in range(1200):
                await asyncio.sleep(0.05)
                if pings:
                    await asked.send(chunk(b": ping\n\n"))
        await asked.send(END)

    async with raw_server(script) as server:
        model = endpoint(server.base_url, client=client, stream=None, timeout=1800.0, settings=SOON)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        (answer,) = await asyncio.wait_for(model.sample(CHAT, range(KNOWN, KNOWN + 1)), 20.0)
    assert (answer.text, answer.attempts, answer.signals) == ("6 times 7 is 42", 3, frozenset())
    assert (model.stats.errors, model.stats.lost) == ({"stalled": 1}, 2)


@pytest.mark.parametrize(("silent", "attempts"), [(True, 1), (False, 2)])
async def test_time_in_which_its_server_shows_no_sign_of_life_makes_no_request_late(
    endpoint: Opener, silent: bool, attempts: int
) -> None:
    """As of a machine that stood still: neither others nor the health check heard of it. Of one that answers
    health checks meanwhile, a request that hangs is sent a second time."""
    awake = asyncio.Event()

    async def script(asked: Exchange) -> None:
        if asked.index == KNOWN:
            await awake.wait()
            await asyncio.sleep(1.0)
        await asked.answer("42")

    async def health(asked: Exchange) -> None:
        if silent and len(server.seen) > KNOWN:
            await awake.wait()
        await asked.reply(200, b"", "Connection: close")

    async with raw_server(script, pages={"/health": health}) as server:
        model = endpoint(server.base_url, timeout=1800.0, retry_for=300.0, max_tokens=100)
        for seed in range(KNOWN):
            await model.sample(CHAT, range(seed, seed + 1))
        assert model._sender._second.times.response_limit == DEFAULT.min_late
        asking = asyncio.create_task(model.sample(CHAT, range(KNOWN, KNOWN + 1)))
        await asyncio.sleep(2.0 * DEFAULT.min_late)
        awake.set()
        (answer,) = await asking
    assert (answer.text, answer.attempts) == ("42", attempts)


async def test_it_is_known_how_long_the_oldest_attempt_has_been_waited_for(endpoint: Opener) -> None:
    over = asyncio.Event()

    async def script(asked: Exchange) -> None:
        await over.wait()
        await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, timeout=1800.0)
        assert model.stats.oldest == 0.0
        first = asyncio.create_task(model.sample(CHAT, range(1)))
        await asyncio.sleep(3.0)
        second = asyncio.create_task(model.sample(CHAT, range(1, 2)))
        await asyncio.sleep(1.0)
        assert 3.9 < model.stats.oldest < 4.1
        over.set()
        await asyncio.gather(first, second)
        assert model.stats.oldest == 0.0


async def test_a_server_that_refuses_streams_is_asked_without_from_then_on(endpoint: Opener) -> None:
    async def script(asked: Exchange) -> None:
        if "stream" in asked.body:
            await asked.reply(400, {"error": {"message": "stream_options is not supported"}})
        else:
            await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None)
        for seed in range(3):
            assert (await model.sample(CHAT, range(seed, seed + 1)))[0].text == "42"
    assert ["stream" in asked.body for asked in server.seen] == [True, True, False, False, False]


async def test_a_server_whose_streams_break_is_asked_without(endpoint: Opener) -> None:
    async def script(asked: Exchange) -> None:
        if "stream" in asked.body:
            await asked.send(STREAM_HEAD + piece("6 times") + b"0\r\n\r\n")
            asked.close()
        else:
            await asked.answer("42")

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None)
        assert (await model.sample(CHAT, range(1)))[0].text == "42"


async def test_what_failed_before_it_was_known_that_its_server_streams_is_streamed_again(endpoint: Opener) -> None:
    """A request that is asked for in one piece would hang unseen until its time limit."""
    asked_twice = asyncio.Event()
    bodies: list[bool] = []

    async def script(asked: Exchange) -> None:
        if asked.body["seed"] == 1:
            bodies.append("stream" in asked.body)
            if len(bodies) == 2:
                asked_twice.set()
                await until(lambda: bool(model._sender.streaming))
            if len(bodies) < 3:
                await asked.reply(500, {"error": {"message": "overloaded"}})
                return
        else:
            await asked_twice.wait()
        await asked.send(STREAM_HEAD + piece("6 times 7 is") + END)

    async with raw_server(script) as server:
        model = endpoint(server.base_url, stream=None, timeout=1800.0)
        both = asyncio.gather(*(model.sample(CHAT, range(seed, seed + 1)) for seed in range(2)))
        answers = await asyncio.wait_for(both, HANGS)
    assert [answer.text for (answer,) in answers] == ["6 times 7 is 42"] * 2
    assert bodies[0] and bodies[2]
