"""Long responses with log-probabilities: read by the parser of the extra `fast` as by the ordinary one."""

import random
from typing import Any

import orjson
import pytest
from raw_servers import CHAT

from adaptive_eval.endpoints import parsing
from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin, mean_bits
from adaptive_eval.endpoints.failures import Failure, UnknownFinish, error_in, status_in_body
from adaptive_eval.endpoints.long_responses import parse_long
from adaptive_eval.endpoints.parsing import LONG, TokenLogprobs, parse_response, parse_server_json
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs, EndpointConfig

ARRIVAL = ResponseOrigin("http://a/v1", 1.5, 0.25, 2)
Payload = dict[str, Any]


def token(number: int, tops: int = 0) -> Payload:
    beside = [{"token": f"t{number}.{top}", "logprob": -1.5 - top, "bytes": [1, 2]} for top in range(tops)]
    return {"token": f" w{number}", "logprob": -number / 7, "bytes": [32, 119], "top_logprobs": beside}


def whole(logprobs: object, **fields: object) -> Payload:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x" * LONG}}
    return {
        "id": "1", "model": "m", "choices": [choice | {"logprobs": logprobs} | fields],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2000}, "system_fingerprint": None,
    }  # fmt: skip


def content(*tokens: object) -> Payload:
    return {"content": list(tokens), "refusal": None}


def read(payload: object, api: str = "chat", n: int = 1, *, keeps: bool = False) -> list[Answer] | str:
    """The answers, or what is made of a response without."""
    config = EndpointConfig(base_url="http://a/v1", model="m", api=api)
    if (error := error_in(payload)) is not None:
        return f"status {status_in_body(error)}"
    try:
        return AnswerReader(config, keeps_tokens=keeps).answers(payload, CHAT, range(10, 10 + n), ARRIVAL)
    except (Failure, UnknownFinish) as failure:
        return str(failure)


TOKENS = [token(number, 3) for number in range(40)]
PAYLOADS: dict[str, Payload] = {
    "plain": whole(content(*map(token, range(40)))),
    "with alternatives": whole(content(*TOKENS)),
    "one token": whole(content(token(3, 20))),
    "no token": whole(content()),
    "none": whole(None),
    "nothing in it": whole({}),
    "of no kind": whole([1, 2]),
    "null among them": whole(content(token(1), {"token": "a", "logprob": None}, {"token": "b"})),
    "a number for a token": whole(content(token(1), 7, token(2))),
    "true for a number": whole(content(token(1, 1) | {"logprob": True}, token(2))),
    "a text for a number": whole(content(token(1), {"token": "a", "logprob": "-1"})),
    "an enormous number": whole(content(token(1), {"token": "a", "logprob": -1e300})),
    "a whole number": whole(content(token(1), {"token": "a", "logprob": -3})),
    "alternatives of no kind": whole(content(token(1) | {"top_logprobs": {"a": 1}}, token(2))),
    "an error beside": whole(content(token(1))) | {"error": {"code": 429, "message": "later"}},
    "an error in the choice": whole(content(token(1)), error={"message": "broken"}),
    "an error as an object": whole(content(token(1))) | {"object": "error"},
    "llama-server": whole(content(token(1))) | {"timings": {"predicted_n": 5}},
    "not finished": whole(content(token(1)), finish_reason=None),
    "no reason": {"choices": [{"message": {"content": "x" * LONG}, "logprobs": content(token(1))}]},
    "no choices": {"logprobs": content(*TOKENS), "text": "x" * LONG},
    "two choices": {
        "choices": [whole(content(token(1), token(2)))["choices"][0] | {"index": at} for at in (1, 0)],
        "usage": {"completion_tokens": 4},
    },
    "two choices, alternatives in the second": {
        "choices": [whole(content(token(1, tops), token(2)), index=at)["choices"][0] for at, tops in enumerate((0, 3))],
        "usage": {"completion_tokens": 4},
    },
    "text completions": whole({"tokens": ["a", "b"], "token_logprobs": [None, -0.5], "text_offset": [0, 1]})
    | {"choices": [{"text": "x" * LONG, "finish_reason": "length", "logprobs": {"token_logprobs": [None, -0.5]}}]},
    "deep": whole(content(token(1)), extra=[[[{"a": [[]]}]]]),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_answers_are_those_of_the_ordinary_parser(name: str) -> None:
    body = orjson.dumps(PAYLOADS[name])
    for api in ("chat", "completions"):
        for keeps in (False, True):
            fast, ordinary = (read(parse(body), api, 2, keeps=keeps) for parse in (parse_response, parse_server_json))
            assert fast == ordinary


def test_what_looks_as_expected_is_read_the_short_way_with_the_first_token_whole() -> None:
    payload = parse_long(orjson.dumps(PAYLOADS["with alternatives"]))
    assert payload is not None
    logprobs = payload["choices"][0]["logprobs"]
    assert isinstance(logprobs, TokenLogprobs) and logprobs.values == [one["logprob"] for one in TOKENS]
    (answer,) = read(payload)
    assert isinstance(answer, Answer) and [name for name, _ in answer.slot] == [" w0", "t0.0", "t0.1", "t0.2"]


def test_the_tokens_of_a_long_response_are_read_where_they_are_kept() -> None:
    body = orjson.dumps(PAYLOADS["two choices"] | {"choices": PAYLOADS["two choices"]["choices"][:1]})
    payload = parse_long(body)
    (kept,), (left,) = read(payload, keeps=True), read(payload)
    assert isinstance(kept, Answer) and isinstance(left, Answer) and left.token_logprobs is None
    assert kept.token_logprobs == AnswerLogprobs((" w1", " w2"), (-1 / 7, -2 / 7))


def test_a_response_that_is_damaged_anywhere_is_no_other_answer() -> None:
    """Bytes are changed, cut off and put in: what the ordinary parser reads is read alike, and what it refuses is
    refused, unless nobody reads the part that is damaged: then the answer is the one that was sent."""
    rng = random.Random(5)
    body = orjson.dumps(whole(content(*TOKENS)))
    sent, same = read(parse_server_json(body)), 0
    for _ in range(400):
        at = (
            rng.randrange(len(body))
            if rng.random() < 0.2
            else rng.choice([rng.randrange(130), -rng.randrange(1, 9000)])
        )
        damaged = bytearray(body)
        match rng.randrange(4):
            case 0:
                damaged[at] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[at:]
            case 2:
                damaged[at:at] = rng.choice([b'"', b"\\", b"{", b"]", b"\xff", b"NaN", b",", b"null", b"\n"])
            case _:
                del damaged[at]
        fast, found = parse_long(bytes(damaged)), None
        if fast is None:
            continue
        try:
            found = read(parse_server_json(bytes(damaged)))
        except ValueError:
            found = sent
        assert read(fast) == found
        same += 1
    assert same > 40


def test_hostile_responses_go_the_ordinary_way() -> None:
    deep = b'{"choices": [{"logprobs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    for body in (
        deep,
        b'{"logprobs"' + b" " * LONG,
        b"[" + orjson.dumps(PAYLOADS["plain"]) + b"]",
        b'"logprobs"' * LONG,
    ):
        assert parse_long(body) is None


def test_without_the_extra_all_is_read_by_the_ordinary_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    body = orjson.dumps(PAYLOADS["with alternatives"])
    whole_answer = read(parse_response(body))
    monkeypatch.setattr(parsing, "find_spec", lambda name: None)
    parsing._parser_of_long_ones.cache_clear()
    try:
        assert parse_response(body) == orjson.loads(body)
        assert read(parse_response(body)) == whole_answer
    finally:
        parsing._parser_of_long_ones.cache_clear()


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([-1.0, -2.0], 1.5),
        ([-1.0, None, True, -4], 4 / 3),
        ([-1.0, float("nan"), -2.0], 1.5),
        ([float("nan"), -2.0], 2.0),
        ([-1.0, float("-inf")], 1.0),
        ([-1.0, -1e300], 1.0),
        ([float("inf"), float("-inf"), -3.0], 3.0),
        ([float("nan")], None),
        ([], None),
    ],
)
def test_bits_are_of_the_tokens_that_say_something(values: list[object], mean: float | None) -> None:
    found = mean_bits(values)
    assert found == (None if mean is None else pytest.approx(mean / 0.6931471805599453))
