"""JSON with flaws is read, and a stream is the same response as without one, however its bytes are cut."""

import math
import tracemalloc
from codecs import BOM_UTF8
from collections.abc import Sequence
from itertools import count
from typing import Any

import orjson
import pytest
from endpoint_opener import CLIENTS, Served, first
from hypothesis import given
from hypothesis import strategies as st
from raw_servers import CHAT, replying

from adaptive_eval.endpoints.failures import Failure, FailureKind, find_error
from adaptive_eval.endpoints.parsing import StreamReader, parse_server_json


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'{"a": "\ud800x"}', {"a": "?x"}),
        (rb'{"a": "x\udc00"}', {"a": "x?"}),
        (rb'{"\ud800": 1}', {"?": 1}),
        (rb'{"a": "\ud83d\ude00\ud800"}', {"a": "\U0001f600?"}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b'{"a": -Infinity}', {"a": -math.inf}),
        (BOM_UTF8 + b'{"a": 1}', {"a": 1}),
    ],
)
def test_flaws_are_read_over(body: bytes, value: object) -> None:
    assert parse_server_json(body) == value


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a": [', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        parse_server_json(body)


DEEP = b"[" * 300 + b"]" * 300
"""Deeper than orjson writes, though it reads it."""
HUGE = b"[NaN, %s]" % (b"9" * 400)


@CLIENTS
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("value", [DEEP, HUGE])
async def test_what_cannot_be_written_again_is_no_answer(
    served: Served, client: str, stream: bool, value: bytes
) -> None:
    body = b"event: error\ndata: %s\n\n" % value if stream else b'{"id": "a", "choices": [%s]}' % value
    async with served(first(1, replying(body)), key="k", client=client, stream=stream) as (_, opened):
        (answer,) = await opened.sample(CHAT, range(7, 8))
    assert (answer.text, answer.attempts) == ("42", 2)


@CLIENTS
@pytest.mark.parametrize("stream", [False, True])
async def test_flaws_and_byte_order_marks_make_no_answer_unreadable(served: Served, client: str, stream: bool) -> None:
    part = b"delta" if stream else b"message"
    payload = rb'{"choices": [{"index": 0, "%s": {"content": "\ud800 42"}, "finish_reason": "stop"}]}' % part

    body = b"data: %s\n\ndata: [DONE]\n\n" % payload if stream else payload
    async with served(replying(BOM_UTF8 + body), key="k", client=client, stream=stream) as (_, opened):
        (answer,) = await opened.sample(CHAT, range(7, 8))
    assert (answer.text, answer.attempts) == ("? 42", 1)


def event(choices: list[dict[str, object]], **fields: object) -> bytes:
    return b"data: " + orjson.dumps({"choices": choices, **fields}) + b"\n\n"


def delta(text: str, index: int | None = 0, reason: str | None = None, **fields: object) -> dict[str, object]:
    return {"index": index, "delta": {"content": text, **fields}, "finish_reason": reason}


def fed(*events: bytes, is_chat: bool = True) -> StreamReader:
    """The reader of these events."""
    reader = StreamReader(is_chat, lambda: 0.0)
    for data in events:
        reader.feed(data)
    return reader


def message_in(reader: StreamReader) -> Any:
    """That of the only choice."""
    (choice,) = reader.payload()["choices"]
    return choice["message"]


STREAM = (
    b": a comment\n\n"
    + event([{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    + event([delta("", reasoning_content="six by seven, ")])
    + event([delta("é4") | {"logprobs": {"content": [{"logprob": -1.0}]}}, delta("x", index=1)])
    + event([delta("2", reason="stop") | {"logprobs": {"content": [{"logprob": -2.0}]}}])
    + event([delta("y", index=1, reason="length")])
    + event([], usage={"prompt_tokens": 5, "completion_tokens": 7})
    + b"data: [DONE]\r\n\r\n"
)
WHOLE = {
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -2.0}]},
            "message": {"content": "é42", "reasoning_content": "six by seven, "},
        },
        {"index": 1, "finish_reason": "length", "message": {"content": "xy"}},
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 7},
}


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_a_stream_is_the_same_however_it_is_cut(cuts: list[int]) -> None:
    clock = count()
    reader = StreamReader(True, lambda: float(next(clock)))
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in zip(edges, edges[1:], strict=False):
        reader.feed(STREAM[start:end])
    assert reader.payload() == WHOLE
    assert reader.first_token_at == 0.0


@pytest.mark.parametrize(
    ("reasons", "last"),
    [
        (("error", "stop"), "error"),
        (("length", "stop"), "length"),
        (("content_filter", "end_turn"), "content_filter"),
        (("length", "error"), "error"),
        (("stop", "error"), "error"),
        (("null", "stop"), "stop"),
        (("tool_calls", "stop"), "stop"),
    ],
)
def test_a_stop_after_another_reason_makes_no_half_answer_complete(reasons: tuple[str, str], last: str) -> None:
    reader = fed(event([delta("4", reason=reasons[0])]), event([delta("", reason=reasons[1])]))
    assert reader.payload()["choices"][0]["finish_reason"] == last


PIECES = st.sampled_from(
    [
        event([delta("a")]),
        event([delta("b", index=1)], model="m"),
        event([{"index": 0, "text": "c", "logprobs": {"token_logprobs": [-1.0]}}]),
        event([delta("d", reason="stop")]),
        event([delta("", error="no memory")]),
        event([], error={"message": "too busy"}),
        event([delta("e", index=1, reason="length")]).replace(b"\n", b"\r\n"),
        event([], usage={"completion_tokens": 3}, timings={"predicted_n": 3}),
        b"data: [DONE]\n\n",
        b"event: error\ndata: {}\n\n",
        b": still here\n\n",
        b"data: {\n\n",
        b'data: {"choices": []}, {"choices": []}\n\n',
        b"data: 7\n\n",
        b"error: broken\n",
    ]
)


def outcome(pieces: list[bytes]) -> object:
    try:
        reader = fed(*pieces)
        return reader.replacement() or reader.payload()
    except Failure as failure:
        return failure.kind, str(failure)


@given(st.lists(PIECES, max_size=12))
def test_events_read_at_once_say_what_they_say_one_by_one(pieces: list[bytes]) -> None:
    assert outcome(pieces) == outcome([b"".join(pieces)])


def test_a_stream_has_its_text_its_tokens_its_id_and_its_model() -> None:
    completion = fed(
        event([{"index": 0, "text": "4", "logprobs": {"token_logprobs": [-1.0]}}]),
        event([{"index": 0, "text": "2", "finish_reason": "stop"}]),
        is_chat=False,
    )
    assert completion.payload()["choices"] == [
        {"index": 0, "finish_reason": "stop", "logprobs": {"token_logprobs": [-1.0]}, "text": "42"}
    ]
    chat = fed(
        event([delta("4", index=None)]) + event([{"delta": {"content": "2"}}]) + event([delta("", reason="stop")])
    )
    assert message_in(chat)["content"] == "42" and chat.payload()["usage"] == {"completion_tokens": 2}
    begun, ended = event([delta("a")], id="x1", model="old"), event([delta("b", reason="stop")], id="x2", model="new")
    payload = fed(begun, ended + b"data: [DONE]\n\n").payload()
    assert (payload["id"], payload["model"]) == ("x1", "new")


PART = {"type": "text", "text": "4"}


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ([delta("") | {"delta": {"content": [PART]}}, delta("2", reason="stop")], "42"),
        ([{"message": {"content": "42"}, "finish_reason": "stop"}], "42"),
        ([{"delta": {"content": None}, "message": {"content": "42"}, "finish_reason": "stop"}], "42"),
        (
            [delta("4") | {"message": {"content": "4"}}, delta("2", reason="stop") | {"message": {"content": "42"}}],
            "42",
        ),
        ([{"message": {"content": [PART]}}, delta("", reason="stop")], "4"),
        ([delta("42"), {"message": {"content": "42"}, "finish_reason": "stop"}], "42"),
    ],
)
def test_a_stream_may_have_parts_or_whole_messages(choices: list[dict[str, object]], text: str) -> None:
    assert message_in(fed(b"".join(event([choice]) for choice in choices)))["content"] == text


def test_a_stream_may_refuse_in_parts() -> None:
    parts = [event([{"delta": {"content": [{"type": "refusal", "refusal": said}]}}]) for said in ("I will ", "not.")]
    assert message_in(fed(*parts, event([delta("", reason="stop")])))["refusal"] == "I will not."


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        *(
            (b"".join(event([choice]) for choice in choices), FailureKind.BAD_RESPONSE)
            for choices in (
                [delta("") | {"delta": {"content": [{"type": "output_text", "content": "42"}]}}],
                [delta("") | {"delta": {"content": PART}}],
                [{"message": {"content": "4"}}, {"message": {"content": "2"}, "finish_reason": "stop"}],
                [{"message": {"content": "4"}}, delta("2", reason="stop")],
            )
        ),
        (event([delta("4", reason="stop"), delta("x", index=1)]), FailureKind.RESET),  # it ends too early
        (b"data: {broken\n\n", FailureKind.BAD_RESPONSE),
        (b"data: [1]\n\n", FailureKind.BAD_RESPONSE),
        (b"data: " + b"x" * 17_000_000, FailureKind.BAD_RESPONSE),
    ],
    ids=range(8),
)
def test_a_stream_whose_text_is_not_certain_or_has_no_end_is_no_answer(data: bytes, kind: FailureKind) -> None:
    with pytest.raises(Failure) as caught:
        fed(data).payload()
    assert caught.value.kind is kind


@pytest.mark.parametrize("choices", ["x", [1], [{"index": "a"}], [{"delta": 3, "logprobs": {"content": 7}}]])
def test_strange_choices_break_nothing(choices: object) -> None:
    reader = fed(b"data: " + orjson.dumps({"choices": choices}) + b"\n\ndata: [DONE]\n\n")
    assert all(choice["message"] == {"content": None} for choice in reader.payload()["choices"])


@pytest.mark.parametrize(
    "error",
    [
        b'event: error\ndata: {"message": "engine died"}\n\n',
        b"event: error\ndata: engine died\n\n",
        b'event:error\r\ndata: {"error": {"message": "engine died"}}\r\n\r\n',
        b'error: {"code": 500, "message": "engine died"}\n\n',
        b'error: {"code": 500, "message": "engine died"}',
        b'data: {"error": "engine died"}\n\n',
        b'data: {"choices": [{"index": 0, "delta": {}, "error": {"message": "engine died"}}]}\n\n',
    ],
)
def test_every_notation_of_an_error_is_seen_after_a_whole_answer_too(error: bytes) -> None:
    other = fed(event([delta("4", reason="stop")]) + error).replacement()
    assert other is not None and b"engine died" in other
    assert find_error(orjson.loads(other)) is not None


def test_an_event_of_another_name_is_no_error() -> None:
    named = b"event: error_rate\n" + event([delta("4")]) + b"event: message\n" + event([delta("2", reason="stop")])
    assert fed(named).replacement() is None and message_in(fed(named)) == {"content": "42"}


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_response_that_is_no_stream_is_taken_whole(cut: int) -> None:
    response = b'\n {"choices": [{"index": 0, "message": {"content": "4\\n2"}, "finish_reason": "stop"}]}\n'
    reader = fed(*(response[start : start + cut] for start in range(0, len(response), cut)))
    assert orjson.loads(reader.replacement() or b"") == orjson.loads(response)


@pytest.mark.parametrize("cut", range(5))
def test_a_mark_of_the_byte_order_is_passed_over(cut: int) -> None:
    for text, replacement in ((STREAM, None), (b'{"choices": []}', b'{"choices": []}')):
        marked = BOM_UTF8 + text
        assert fed(marked[:cut], marked[cut:]).replacement() == replacement


def test_white_space_before_a_response_is_not_kept() -> None:
    """Servers send it while a request waits. Kept and searched anew with each piece, it would take minutes."""
    reader, pieces = fed(), 1000
    tracemalloc.start()
    for _ in range(pieces):
        reader.feed(b"\n" * 2**10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(STREAM)
    assert peak < pieces * 2**10 / 4 and reader.payload() == fed(STREAM).payload()


def test_text_after_the_end_of_a_choice_is_of_another_answer() -> None:
    """As where a server gives all of four choices one index."""
    for more in ([delta("b")], [delta("b", reason="stop")]):
        ended = event([delta("a")]) + event([delta("", reason="stop")])
        with pytest.raises(Failure, match="the stream continues a choice that has ended"):
            fed(ended + event(more) + b"data: [DONE]\n\n").payload()


@pytest.mark.parametrize(
    ("ids", "is_spliced"),
    [
        ("xyy", True),
        ("xxyy", True),
        ("xxx", False),
        ("xyz", False),
        (["", "x", "x"], False),
        (["x", "x", ""], False),
        ("xyyz", False),
    ],
)
def test_a_stream_that_goes_on_with_another_response_is_no_answer(ids: Sequence[str], is_spliced: bool) -> None:
    """As where a proxy loses its server. Some servers number each event anew, and say each time whose message it is."""
    reader = StreamReader(True, lambda: 0.0)
    for number, name in enumerate(ids):
        part = delta(str(number), reason="stop" if number == len(ids) - 1 else None)
        part["delta"] = {"role": "assistant", "content": str(number)}
        reader.feed(event([part], id=name, model="m" if number < 2 else ""))
    if is_spliced:
        with pytest.raises(Failure, match="goes on with another response"):
            reader.payload()
    else:
        payload = reader.payload()
        assert (payload["choices"][0]["message"]["content"], payload["model"]) == ("0123"[: len(ids)], "m")
