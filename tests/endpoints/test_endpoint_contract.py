"""What counts as an answer, and what is asked again: the same for both clients, whole or streamed."""

import asyncio
from typing import Any

import orjson
import pytest
from endpoint_opener import CLIENTS, EACH_CLIENT, Opener, first
from raw_servers import CHAT, Exchange, raw_server
from thoroughness import in_turns

from adaptive_eval.base.errors import LaunchFailed, Rejected
from adaptive_eval.launch.server import read_version, wait_until_ready

WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
USAGE = {"prompt_tokens": 5, "completion_tokens": 3}


def choice(content: str | None, reason: str | None, **fields: object) -> dict[str, object]:
    return {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": reason, **fields}


def as_events(payload: dict[str, Any]) -> bytes:
    """A response in one event, and the end of the stream."""
    choices = [
        {("delta" if key == "message" else key): value for key, value in entry.items()} for entry in payload["choices"]
    ]
    return b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps(payload | {"choices": choices})


async def reply(asked: Exchange, payload: dict[str, Any]) -> None:
    if asked.body.get("stream"):
        await asked.reply(200, as_events(payload), "Content-Type: text/event-stream")
    else:
        await asked.reply(200, payload)


async def right(asked: Exchange) -> None:
    await reply(asked, {"choices": [choice("42", "stop")], "usage": USAGE})


NO_ANSWERS: dict[str, dict[str, Any]] = {
    "out of resources": {"choices": [choice("half an ans", "insufficient_system_resource")]},
    "unfinished": {"choices": [choice("half an ans", None)]},
    "error beside an empty choice": {"choices": [choice("", "stop")], "error": {"message": "upstream", "code": 502}},
    "error in a choice": {"choices": [choice("half", "stop", error={"message": "upstream", "code": 502})]},
    "error in what a choice says": {
        "choices": [choice("", "stop", message={"content": "", "error": {"message": "upstream", "code": 502}})]
    },
    "all of it is an error": {"choices": [choice("", "stop")], "object": "error", "message": "out of memory"},
    "null, and no tokens": {
        "choices": [choice(None, "stop")],
        "usage": {"prompt_tokens": 5, "completion_tokens": 0},
    },
}


@pytest.mark.parametrize(("name", "client", "stream"), in_turns(NO_ANSWERS, EACH_CLIENT, [False, True]))
async def test_what_is_not_finished_is_asked_again(endpoint: Opener, client: str, stream: bool, name: str) -> None:
    async with raw_server(first(1, lambda asked: reply(asked, NO_ANSWERS[name]), right)) as server:
        model = endpoint(server.base_url, client=client, stream=stream)
        (answer,) = await model.sample(CHAT, range(9, 10))
        assert len({asked.raw for asked in server.seen}) == 1
    assert (answer.text, answer.attempts) == ("42", 2)
    assert sum(model.stats.errors.values()) == 1


STREAMS = {
    "event error": b'event: error\ndata: {"message": "engine died"}\n\ndata: [DONE]\n\n',
    "error field": b'error: {"code": 500, "message": "engine died"}\n\n',
    "no reason": b"data: [DONE]\n\n",
    "no end": b"",
    "garbage": b"data: {broken\n\n",
    "error": b'data: {"error": {"message": "engine died", "code": 500}}\n\n',
}


@pytest.mark.parametrize(("name", "client"), in_turns(STREAMS, EACH_CLIENT))
async def test_a_stream_that_does_not_end_well_is_asked_again(endpoint: Opener, client: str, name: str) -> None:
    begun = b'data: {"choices": [{"index": 0, "delta": {"content": "41"}, "finish_reason": null}]}\n\n'

    async def broken(asked: Exchange) -> None:
        await asked.reply(200, begun + STREAMS[name], "Content-Type: text/event-stream")

    async with raw_server(first(1, broken, right)) as server:
        (answer,) = await endpoint(server.base_url, client=client, stream=True).sample(CHAT, range(1))
    assert (answer.text, answer.attempts) == ("42", 2)


@CLIENTS
@WAYS
async def test_an_unknown_finish_reason_of_all_answers_is_named_at_once(
    endpoint: Opener, client: str, stream: bool
) -> None:
    strange = {"choices": [choice("42", "flux_capacitor")], "model": "m"}
    async with raw_server(lambda asked: reply(asked, strange)) as server:
        model = endpoint(server.base_url, client=client, stream=stream)
        with pytest.raises(Rejected, match=r"finish_reasons: \[flux_capacitor\]"):
            await model.sample(CHAT, range(1))
        assert len(server.seen) == 2
        health = await model.check()
        assert not health.ok
        assert "finish_reasons: [flux_capacitor]" in health.replicas[0].detail
        declared = endpoint(server.base_url, client=client, stream=stream, finish_reasons=("flux_capacitor",))
        assert (await declared.check()).ok
        (answer,) = await declared.sample(CHAT, range(1))
    assert (answer.text, answer.finish_reason) == ("42", "flux_capacitor")


@pytest.mark.parametrize(("reason", "client", "stream"), in_turns(["preempted", ""], EACH_CLIENT, [False, True]))
async def test_a_rare_unknown_finish_reason_costs_one_answer_at_most(
    endpoint: Opener, client: str, stream: bool, reason: str
) -> None:
    """The first answer and another one end so once, a third at every attempt."""
    odd = {0: 1, 7: 1, 11: 1000}

    async def script(asked: Exchange) -> None:
        seed = int(str(asked.body["seed"]))
        odd[seed] = odd.get(seed, 0) - 1
        await reply(asked, {"choices": [choice("42", reason if odd[seed] >= 0 else "stop")], "model": "m"})

    async with raw_server(script) as server:
        model = endpoint(server.base_url, client=client, stream=stream, in_flight=2, retry_for=300.0)
        answers = [(await model.sample(CHAT, range(seed, seed + 1)))[0] for seed in range(11)]
        later = await asyncio.gather(*(model.sample(CHAT, range(seed, seed + 1)) for seed in range(11, 40)))
    assert [answer.text for answer in answers] == ["42"] * 11 and [answers[at].attempts for at in (0, 1, 7)] == [
        2,
        1,
        2,
    ]
    (unanswered,) = [answer for (answer,) in later if answer.signals]
    assert (unanswered.seed, unanswered.text, unanswered.signals) == (11, "", {"unanswered"})
    assert " finish reason" in unanswered.finish_reason and "finish_reasons:" not in unanswered.finish_reason


@CLIENTS
async def test_a_server_that_does_not_stream_has_answered_nevertheless(endpoint: Opener, client: str) -> None:
    async def script(asked: Exchange) -> None:
        assert asked.body["stream"] is True
        await asked.answer("42")

    async with raw_server(script) as server:
        (answer,) = await endpoint(server.base_url, client=client, stream=True).sample(CHAT, range(1))
    assert (answer.text, answer.attempts, answer.completion_tokens, answer.ttft) == ("42", 1, 3, None)


@CLIENTS
async def test_a_streamed_answer_says_which_model_it_is_from(endpoint: Opener, client: str) -> None:
    """Where the list of models has other names, the name of the answer decides; and an exchanged model is noticed."""

    async def script(asked: Exchange) -> None:
        await reply(asked, {"choices": [choice("42", "stop")], "model": "m-2026" if asked.index < 2 else "m-2027"})

    async def other_models(asked: Exchange) -> None:
        await asked.reply(200, {"data": [{"id": "other"}]})

    async with raw_server(script, pages={"/v1/models": other_models}) as server:
        model = endpoint(server.base_url, client=client, stream=True)
        for seed in range(3):
            await model.sample(CHAT, range(seed, seed + 1))
    assert [notice.kind for notice in model.stats.notices] == ["no_usage", "renamed"]


@pytest.mark.parametrize(("code", "client", "stream"), in_turns([301, 302, 303, 307, 308], EACH_CLIENT, [False, True]))
async def test_no_redirect_is_followed(endpoint: Opener, client: str, stream: bool, code: int) -> None:
    """Neither answers nor the list of models nor health nor load are asked for where a server points to."""

    async def elsewhere(asked: Exchange) -> None:
        await reply(asked, {"choices": [choice("42", "stop")]})

    async with raw_server(elsewhere) as other:

        async def redirect(asked: Exchange) -> None:
            await asked.reply(code, b"", f"Location: {other.base_url}/chat/completions")

        pages = {path: redirect for path in ("/v1/models", "/health", "/metrics")}
        async with raw_server(redirect, pages=pages) as server:
            model = endpoint(server.base_url, client=client, stream=stream, key="sk-123456789")
            host = other.base_url.removeprefix("http://").removesuffix("/v1")
            with pytest.raises(Rejected, match=f"HTTP {code}.*redirects to {host}.*give the base_url at {host}"):
                await model.sample(CHAT, range(1))
            assert not (await model.check()).ok
        assert other.connections == 0


async def test_a_server_that_is_started_is_not_looked_for_elsewhere() -> None:
    async def elsewhere(asked: Exchange) -> None:
        await asked.reply(200, {"version": "1"})

    async with raw_server(elsewhere, pages={"/health": elsewhere, "/version": elsewhere}) as other:

        async def redirect(asked: Exchange) -> None:
            await asked.reply(307, b"", f"Location: {other.base_url.removesuffix('/v1')}{asked.path}")

        async with raw_server(redirect, pages=dict.fromkeys(("/health", "/v1/models", "/version"), redirect)) as server:
            root = server.base_url.removesuffix("/v1")
            with pytest.raises(LaunchFailed, match="HTTP 307; /health"):
                await wait_until_ready(root, asyncio.get_running_loop().create_future(), 30.0)
            assert await read_version(root) is None
        assert other.connections == 0
