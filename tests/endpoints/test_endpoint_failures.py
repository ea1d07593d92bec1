"""Failures and refusals: what is read from an error, what is waited for or asked again, and what is believed."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from endpoint_opener import CLIENTS, Opener, Served, answer, ask, first
from raw_servers import CHAT, Exchange, Script, raw_server, replying
from thoroughness import in_turns

from adaptive_eval.base.errors import Rejected, Unavailable
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.client import decode_payload
from adaptive_eval.endpoints.endpoint import ModelEndpoint
from adaptive_eval.endpoints.failures import (
    HANDLING,
    Failure,
    FailureKind,
    error_signal,
    error_status,
    find_error,
    read_retry_after,
)
from adaptive_eval.endpoints.open_files import files_needed
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.retry import believed_wait
from adaptive_eval.endpoints.settings import DEFAULT, EndpointSettings


def error(message: str, **fields: object) -> bytes:
    return orjson.dumps({"error": {"message": message, **fields}})


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        *((status, b"<html>oops</html>", FailureKind.SERVER_ERROR) for status in (500, 502, 504, 520, 408, 409, 425)),
        *((status, b"<html>oops</html>", FailureKind.OVERLOADED) for status in (503, 529)),
        (429, error("no capacity"), FailureKind.RATE_LIMITED),
        (429, error("no capacity", code="resource_unavailable"), FailureKind.TIER_FULL),
        (429, error("no capacity", type="resource_unavailable"), FailureKind.TIER_FULL),
        (498, error("no capacity", code="capacity_exceeded"), FailureKind.TIER_FULL),
    ],
)
def test_what_passes_is_a_failure_of_its_kind(status: int, body: bytes, kind: FailureKind) -> None:
    with pytest.raises(Failure) as caught:
        error_signal(status, body, {"retry-after": "7"})
    assert (caught.value.kind, caught.value.retry_after) == (kind, 7.0)


def test_a_used_up_quota_is_no_passing_refusal() -> None:
    with pytest.raises(Rejected, match="quota"):
        error_signal(429, error("You exceeded your current quota", code="insufficient_quota"), {})


CONTEXT_ERRORS = [
    # OpenAI
    error("Your input exceeds the limit.", code="context_length_exceeded"),
    # vLLM, older and newer
    orjson.dumps(
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
            "(4000 in the messages, 1000 in the completion). Please reduce the length.",
            "type": "BadRequestError",
            "code": 400,
        }
    ),
    error("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", code=400),
    # llama-server
    error("the request exceeds the available context size", type="exceed_context_size_error", code=400),
    error("prompt is too long: 210000 tokens > 200000 maximum"),
]


@pytest.mark.parametrize("body", CONTEXT_ERRORS)
def test_a_prompt_longer_than_the_context_is_an_answer(body: bytes) -> None:
    assert error_signal(400, body, {}, max_tokens=1000) == "context_length"


def test_a_limit_that_no_prompt_could_fit_is_the_configurations_fault() -> None:
    body = error("This model's maximum context length is 4096 tokens. 'max_tokens' is too large: 8192.")
    with pytest.raises(Rejected, match="too large"):
        error_signal(400, body, {}, max_tokens=8192)
    assert error_signal(400, body, {}, max_tokens=2048) == "context_length"


@pytest.mark.parametrize(
    "body",
    [
        error("blocked", code="content_filter"),
        error("blocked", code="x", innererror={"code": "ResponsibleAIPolicyViolation"}),
        error("The response was filtered due to the content management policy."),
    ],
)
def test_a_content_filter_is_an_answer(body: bytes) -> None:
    assert error_signal(400, body, {}) == "content_filter"


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[]", b"null", b'"text"', b'{"error": null}', b'{"error": [1]}'])
def test_any_body_can_be_an_error(body: bytes) -> None:
    with pytest.raises(Rejected):
        error_signal(400, body, {})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
        ({}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": ""}, 0.0),
        ({"retry-after": "9" * 400}, float("inf")),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 253402300739.0),
        ({"retry-after": "Fri, 31 Dec 99999 23:59:59 GMT"}, 0.0),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:00 +9999"}, 0.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float) -> None:
    assert read_retry_after(headers, now=60.0) == seconds


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("https://elsewhere.example:8443/v1/chat/completions", "to elsewhere.example:8443.*base_url at elsewhere"),
        ("//elsewhere.example/v1", "to elsewhere.example"),
        ("https://user:sk-1234567890@elsewhere.example/", "to elsewhere.example"),
        ("/v2/chat/completions", "another path of its own"),
        ("", "without saying where"),
        ("http://[broken", "another path"),
        ("https://sk-1234567890.example/", r"to \*\*\*.example"),
    ],
)
def test_a_redirect_is_named_and_no_key_with_it(location: str, message: str) -> None:
    with pytest.raises(Rejected, match=message) as caught:
        error_signal(307, b"", {"location": location} if location else {}, redactor=Redactor(["sk-1234567890"]))
    assert "base_url" in str(caught.value)
    assert "sk-1234567890" not in str(caught.value)


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        ({"error": {"message": "x", "code": 502}, "choices": []}, 502),
        ({"error": {"message": "x", "code": "429"}, "choices": [{"message": {"content": ""}}]}, 429),
        ({"error": "x", "choices": [{"message": {"content": "half"}, "finish_reason": "stop"}]}, 500),
        ({"choices": [{"error": {"code": 502}, "message": {"content": "half"}, "finish_reason": "stop"}]}, 502),
        ({"choices": [{"error": {"code": 200}}, 7]}, 500),
        ({"choices": [{"message": {"content": "", "error": {"code": 503}}, "finish_reason": "stop"}]}, 503),
        ({"object": "error", "message": "x", "code": 404}, 404),
        ({"type": "error", "message": "x", "choices": [{"message": {"content": "half"}}]}, 500),
    ],
)
def test_an_error_within_a_200_is_found_wherever_it_stands(payload: dict[str, object], status: int) -> None:
    assert error_status(find_error(payload)) == status
    body = orjson.dumps(payload)
    for sent in (body, body.replace(b"error", b"err\\u006fr")):
        assert decode_payload(200, sent, ())[0] == status


@pytest.mark.parametrize(
    "payload",
    [
        *(None, [], {"error": None}, {"choices": [{"error": None}]}, {"choices": {"error": 1}}),
        {"object": "chat.completion", "choices": [{"message": {"content": "error", "error": None}}]},
    ],
)
def test_where_no_error_is_none_is_found(payload: object) -> None:
    assert find_error(payload) is None


def test_it_is_said_of_every_kind_of_failure_what_is_done() -> None:
    assert HANDLING.keys() == set(FailureKind)


@pytest.mark.parametrize(
    ("seconds", "waited"),
    [(0.0, 0.0), (30.0, 30.0), (DEFAULT.longest_wait + 1, DEFAULT.longest_wait), (601.0, 0.0), (float("inf"), 0.0)],
)
def test_a_wait_is_believed_up_to_a_minute_at_a_time(seconds: float, waited: float) -> None:
    failure = Failure(FailureKind.RATE_LIMITED, "HTTP 429", seconds)
    assert believed_wait(failure, 600.0, DEFAULT) == waited


@CLIENTS
async def test_nobody_waits_for_tomorrow_and_asks_ever_less(served: Served, client: str) -> None:
    async with served(replying(b"{}", "Retry-After: 86400", status=429), client=client, timeout=1.0) as (server, model):
        with pytest.raises(Unavailable, match="rate_limited"):
            await ask(model, 8)
        assert 8 < len(server.seen) < 40


FULL: dict[str, object] = {"error": {"message": "Resource unavailable", "code": "resource_unavailable"}}


def full(times: int) -> Script:
    """A script whose tier is full so many times."""
    return first(times, replying(FULL, status=429))


@CLIENTS
async def test_a_request_waits_for_capacity_whatever_its_attempts(served: Served, client: str) -> None:
    async with served(full(12), client=client, attempts=1, extra_body={"service_tier": "flex"}) as (server, model):
        (answer,) = await model.sample(CHAT, range(1))
    assert answer.attempts == 13 and {asked.body["service_tier"] for asked in server.seen} == {"flex"}
    assert model.stats.errors == {"tier_full": 12} and model.stats.lost == 0
    assert all(replica.healthy for replica in model.stats.replicas)


async def test_pauses_of_full_tiers_grow(endpoint: Opener, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    settings = EndpointSettings(backoff=0.01, longest_backoff=0.02, longest_wait=0.1)
    async with raw_server(full(6)) as server:
        await endpoint(server.base_url, settings=settings).sample(CHAT, range(1))
    assert waits == [0.01, 0.02, 0.04, 0.08, 0.1, 0.1]


async def test_capacity_that_never_comes_is_waited_for_as_long_as_an_answer_may_take(served: Served) -> None:
    async with served(full(10**6), timeout=0.2) as (_, model):
        with pytest.raises(Unavailable, match="tier_full: HTTP 429: Resource unavailable"):
            async with asyncio.timeout(4.0):
                await model.sample(CHAT, range(1))


async def test_a_check_accepts_a_server_whose_tier_is_full(endpoint: Opener) -> None:
    async with raw_server(full(10**6)) as server:
        health = await endpoint(server.base_url).check()
    assert health.ok and "Resource unavailable" in health.replicas[0].detail


OUT = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many open files in system")]


async def slowly(asked: Exchange) -> None:
    await asyncio.sleep(0.02)
    await asked.answer("42")


@pytest.mark.parametrize("error", OUT, ids=["process", "machine"])
async def test_passing_shortages_cost_nothing(served: Served, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """No request finds a file for a while; the model has never answered."""
    loop, tries = asyncio.get_running_loop(), [0]
    connect = loop.create_connection

    async def refuse(*arguments: Any, **options: Any) -> Any:
        tries[0] += 1
        if tries[0] <= 6:
            raise error
        return await connect(*arguments, **options)

    monkeypatch.setattr(loop, "create_connection", refuse)
    async with served(slowly, in_flight=4, attempts=1) as (_, model):
        assert [answer.text for answer in await ask(model, 4)] == ["42"] * 4
    stats = model.stats
    assert "this machine has no open file left" in stats.last_error and stats.lost == 0
    assert all(replica.healthy for replica in stats.replicas)


def test_too_few_files_are_told_with_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "limits", lambda: (256, 256))
    message = open_files.too_few_message(files_needed(512, 1), 256)
    assert "578 open files" in message and "this process may have only 256" in message
    assert "`ulimit -n 578`" in message and "hard limit of 256" in message and "concurrency" in message


LATER = DEFAULT.refusals
AT_FIRST = LATER // 2
TWO_CLIENTS = pytest.mark.parametrize("client", ["http", "openai"])


def refusing(when: Callable[[Exchange], bool], status: int = 403) -> Script:
    """A script that refuses then."""

    async def script(asked: Exchange) -> None:
        refusal = replying({"error": {"message": f"no ({asked.index})"}}, status=status)
        await (refusal if when(asked) else answer)(asked)

    return script


async def refused(model: ModelEndpoint, number: int) -> dict[int, str]:
    """Those of so many requests at once that are refused, by their seeds."""
    tasks = (model.sample(CHAT, range(seed, seed + 1)) for seed in range(number))
    results = enumerate(await asyncio.gather(*tasks, return_exceptions=True))
    failed = {seed: result for seed, result in results if isinstance(result, BaseException)}
    assert all(isinstance(error, Rejected) for error in failed.values()), failed
    return {seed: str(error) for seed, error in failed.items()}


@pytest.mark.parametrize(
    ("status", "client"), in_turns([301, 400, 401, 402, 403, 404, 405, 410, 418, 422, 451], ["http", "openai"])
)
async def test_one_stray_refusal_costs_one_request(served: Served, client: str, status: int) -> None:
    async with served(refusing(lambda asked: asked.index == 3, status), client=client, in_flight=4) as (server, model):
        assert not await refused(model, 12)
    assert len(server.seen) == 13
    assert model.stats.errors == {"refused": 1} and f"HTTP {status}: no (3)" in model.stats.last_error
    assert model.stats.replicas[0].limit == 4


async def test_who_refuses_everything_is_believed_soon_and_asked_again_once_mended(served: Served) -> None:
    wrong = [True]
    async with served(refusing(lambda asked: wrong[0], 401), in_flight=64) as (server, model):
        reasons = (await refused(model, 200)).values()
        assert len(reasons) == 200 and all("HTTP 401: no" in reason for reason in reasons)
        assert len(server.seen) <= 64 + 2 * AT_FIRST
        await asyncio.sleep(0.05)
        assert len(await refused(model, 2)) == 2
        wrong[0] = False
        assert not await refused(model, 8) and model.stats.replicas[0].healthy


async def test_one_that_has_answered_gets_more_time(endpoint: Opener, served: Served) -> None:
    async with served(refusing(lambda asked: asked.index >= 3)) as (server, model):
        assert not await refused(model, 3)
        with pytest.raises(Rejected, match="HTTP 403"):
            await model.sample(CHAT, range(1))
    assert len(server.seen) == 3 + LATER
    async with raw_server(refusing(lambda asked: 3 <= asked.index < 3 + LATER - 1)) as server:
        assert not await refused(endpoint(server.base_url), 8)


async def test_a_request_that_is_refused_alone_fails_and_others_go_on(served: Served) -> None:
    async with served(refusing(lambda asked: asked.body["seed"] == 7, 422), in_flight=4) as (server, model):
        assert [*await refused(model, 60), *await refused(model, 6)] == [7]
    assert Counter(asked.body["seed"] for asked in server.seen)[7] == LATER


async def test_a_replica_that_refuses_everything_is_left_alone_until_it_does_not(endpoint: Opener) -> None:
    wrong = [True]
    async with raw_server(refusing(lambda asked: wrong[0], 404)) as bad, raw_server(refusing(lambda _: False)) as good:
        model = endpoint(bad.base_url, good.base_url, in_flight=4)
        assert not await refused(model, 200)
        assert len(bad.seen) < 30 and len(good.seen) == 200
        assert [replica.healthy for replica in model.stats.replicas] == [len(bad.seen) < 4 + AT_FIRST - 1, True]
        wrong[0] = False
        async with asyncio.timeout(10.0):
            while len(bad.seen) < 100:
                await refused(model, 20)
                await asyncio.sleep(0.01)
        assert [replica.healthy for replica in model.stats.replicas] == [True, True]


async def test_where_one_refuses_and_the_other_is_dead_nobody_waits(served: Served, unused_tcp_port: int) -> None:
    dead = f"http://127.0.0.1:{unused_tcp_port}/v1"
    async with served(refusing(lambda asked: True), dead) as (_, model):
        async with asyncio.timeout(10.0):
            with pytest.raises((Rejected, Unavailable)):
                await model.sample(CHAT, range(1))


@TWO_CLIENTS
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
        async with raw_server(first(failures, replying(b"hiccup", status=500))) as server:
            health = await endpoint(server.base_url).check()
        assert (health.ok, health.replicas[0].detail) == (failures == 1, detail)


async def test_a_stray_refusal_of_several_answers_leaves_them_together(served: Served) -> None:
    async with served(refusing(lambda asked: asked.index == 2, 400), samples_per_request=3) as (server, model):
        for start in range(0, 15, 3):
            assert len(await model.sample(CHAT, range(start, start + 3))) == 3
    assert [asked.body.get("n") for asked in server.seen] == [3] * 6


async def test_a_stream_that_goes_on_is_a_sign_that_requests_are_accepted(served: Served) -> None:
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

    async with served(script, stream=True, in_flight=8) as (_, model):
        asking = asyncio.create_task(refused(model, 8))
        async with asyncio.timeout(3.0):
            await enough.wait()
        released.set()
        assert not await asking
