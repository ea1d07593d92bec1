"""What an error means: repeat it, make an answer of it, or stop."""

import asyncio
import errno
from typing import Any

import orjson
import pytest
from endpoint_opener import CLIENTS, Opener, first
from raw_servers import CHAT, Exchange, Script, raw_server

from adaptive_eval.base.errors import Rejected, Unavailable
from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.client import decode_payload
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
        assert decode_payload(200, sent, ()) == (status, None)


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
async def test_nobody_waits_for_tomorrow_and_asks_ever_less(endpoint: Opener, client: str) -> None:
    async with raw_server(lambda asked: asked.reply(429, b"{}", "Retry-After: 86400")) as server:
        model = endpoint(server.base_url, client=client, timeout=1.0)
        with pytest.raises(Unavailable, match="rate_limited"):
            await asyncio.gather(*(model.sample(CHAT, range(i, i + 1)) for i in range(8)))
        assert 8 < len(server.seen) < 40


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


async def test_pauses_of_a_full_tier_grow(
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


OUT = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many open files in system")]


async def slowly(asked: Exchange) -> None:
    await asyncio.sleep(0.02)
    await asked.answer("42")


@pytest.mark.parametrize("error", OUT, ids=["process", "machine"])
async def test_a_passing_shortage_costs_no_answer(
    endpoint: Opener, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """No request finds a file for a while; the model has never answered."""
    loop, tries = asyncio.get_running_loop(), [0]
    connect = loop.create_connection

    async def refuse(*arguments: Any, **options: Any) -> Any:
        tries[0] += 1
        if tries[0] <= 6:
            raise error
        return await connect(*arguments, **options)

    monkeypatch.setattr(loop, "create_connection", refuse)
    async with raw_server(slowly) as server:
        model = endpoint(server.base_url, in_flight=4, attempts=1)
        answers = await asyncio.gather(*(model.sample(CHAT, range(i, i + 1)) for i in range(4)))
    assert [answer.text for (answer,) in answers] == ["42"] * 4
    stats = model.stats
    assert "this machine has no open file left" in stats.last_error and stats.lost == 0
    assert all(replica.healthy for replica in stats.replicas)


def test_too_few_files_are_told_with_how_to_mend_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "limits", lambda: (256, 256))
    message = open_files.too_few_message(files_needed(512, 1), 256)
    assert "578 open files" in message and "this process may have only 256" in message
    assert "`ulimit -n 578`" in message and "hard limit of 256" in message and "concurrency" in message
