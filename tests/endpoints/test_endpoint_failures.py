"""What an error means: repeat it, make an answer of it, or stop."""

import orjson
import pytest

from adaptive_eval.base.errors import Rejected
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
from adaptive_eval.endpoints.redaction import Redactor


def error(message: str, **fields: object) -> bytes:
    return orjson.dumps({"error": {"message": message, **fields}})


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((500, 502, 504, 520, 408, 409, 425), FailureKind.SERVER_ERROR),
        ((503, 529), FailureKind.OVERLOADED),
    ],
)
def test_server_errors_are_repeated(statuses: tuple[int, ...], kind: FailureKind) -> None:
    for status in statuses:
        with pytest.raises(Failure) as caught:
            error_signal(status, b"<html>oops</html>", {})
        assert caught.value.kind is kind


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (429, {"code": "resource_unavailable"}),
        (429, {"type": "resource_unavailable"}),
        (498, {"code": "capacity_exceeded"}),
    ],
)
def test_a_service_tier_without_capacity_is_no_rate_limit(status: int, fields: dict[str, object]) -> None:
    with pytest.raises(Failure) as caught:
        error_signal(status, error("no capacity", **fields), {"retry-after": "7"})
    assert caught.value.kind is FailureKind.TIER_FULL
    assert caught.value.retry_after == 7.0


@pytest.mark.parametrize("status", [301, 400, 401, 402, 403, 404, 405, 422])
def test_other_errors_are_not_mended_by_a_retry(status: int) -> None:
    with pytest.raises(Rejected, match=f"HTTP {status}: what happened"):
        error_signal(status, error("what happened"), {})


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
