"""Streams: the same response as without one, however the bytes are cut."""

from codecs import BOM_UTF8
from itertools import count

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.endpoints.failures import Failure, FailureKind, find_error
from adaptive_eval.endpoints.parsing import StreamReader


def event(choices: list[dict[str, object]], **fields: object) -> bytes:
    return b"data: " + orjson.dumps({"choices": choices, **fields}) + b"\n\n"


def delta(text: str, index: int = 0, reason: str | None = None, **fields: object) -> dict[str, object]:
    return {"index": index, "delta": {"content": text, **fields}, "finish_reason": reason}


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
    reader = StreamReader(True, lambda: 0.0)
    try:
        for piece in pieces:
            reader.feed(piece)
        return reader.replacement() or reader.payload()
    except Failure as failure:
        return failure.kind, str(failure)


@given(st.lists(PIECES, max_size=12))
def test_events_read_at_once_say_what_they_say_one_by_one(pieces: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("adaptive_eval.endpoints.parsing.PARSE_BATCH_BYTES", 1)
        one_by_one = outcome(pieces)
    assert outcome([event([delta("x")]), *pieces]) == outcome([event([delta("x")]) + b"".join(pieces)])
    assert outcome([b"".join(pieces)]) == one_by_one


FORMS = [
    b'data: {"id":"a","choices":[{"index":0,"delta":{"content":TEXT},"logprobs":null,"finish_reason":null}]}\n\n',
    b'data:{"model": "m", "choices": [{"delta": {"role": "assistant", "reasoning" : TEXT}}]}\r\n\r\n',
    b'data: {"choices":[{"index":1,"text":TEXT}],"model":"other","timings":{"predicted_n":1}}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"a","content":TEXT,"note":{"content":"b"}}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":TEXT},"logprobs":{"content":[{"logprob":-1}]}}]}\n\n',
]
TEXTS = ["", "a", '"', "\\", '"},"delta":{"content":"', "\n\n", "é😀", "data: [DONE]"]
BETWEEN = st.sampled_from(
    [
        event([], model="third"),
        event([delta("", reason="stop")]),
        event([delta("e", error="no memory")]),
        event([], usage={"completion_tokens": 3}),
        b": still here\n\n",
        b"event: error\n",
        b"event: note\n",
        b"data: 7\n\n",
    ]
)


ALIKE = st.builds(lambda text, times: [text] * times, st.sampled_from(TEXTS), st.integers(2, 4))
RUNS = st.tuples(st.lists(st.sampled_from(TEXTS), max_size=6) | ALIKE, BETWEEN | st.just(b""))


def check_as_any_others(pieces: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("adaptive_eval.endpoints.parsing._EventForm.from_event", lambda line, event: None)
        as_any_others = outcome(pieces)
    for gathered in (1, 300):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("adaptive_eval.endpoints.parsing.PARSE_BATCH_BYTES", gathered)
            assert outcome(pieces) == as_any_others


@settings(max_examples=examples(400))
@given(st.sampled_from(FORMS), st.lists(RUNS, max_size=6), st.sampled_from([0, 7, 150, 1000]))
def test_events_of_one_form_are_read_as_any_others(form: bytes, runs: list[tuple[list[str], bytes]], size: int) -> None:
    pieces = [event([delta("x")])]
    for texts, other in runs:
        pieces += [b"".join(form.replace(b"TEXT", orjson.dumps(text)) for text in texts), other]
    pieces.append(event([delta("", reason="stop"), delta("", index=1, reason="stop")]))
    if size:
        stream = b"".join(pieces)
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    check_as_any_others(pieces)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", [event([], model="third"), b"event: error\n", b"data: 7\n\n", b""])
def test_what_comes_between_events_of_one_form(form: bytes, other: bytes) -> None:
    end = event([delta("", reason="stop"), delta("", index=1, reason="stop")])
    for texts in (["a"], ["same"] * 4, ["", "b", "", "", ""]):
        run, few = (
            b"".join(form.replace(b"TEXT", orjson.dumps(text)) for text in deltas)
            for deltas in (["z", "z", "z", *texts, "z", "z", "z"], [*texts, "x", "y"])
        )
        check_as_any_others([event([delta("x")]), run, other, run, end])
        check_as_any_others([event([delta("x")]), run, other, few, end])


def test_of_many_events_of_one_form_few_are_taken_one_by_one() -> None:
    reader = StreamReader(True, lambda: 0.0)
    counter = count()
    take = reader._event

    def taking(data: bytes) -> None:
        next(counter)
        take(data)

    reader._event = taking  # type: ignore[method-assign]
    for number in range(5000):
        reader.feed(event([delta(f"{number} ")], id="chatcmpl-1"))
    reader.feed(event([delta("", reason="stop")]))
    assert reader.payload()["choices"][0]["message"]["content"] == "".join(f"{number} " for number in range(5000))
    assert next(counter) < 50


def test_a_text_completion_has_its_text_at_the_choice() -> None:
    reader = StreamReader(False, lambda: 0.0)
    reader.feed(event([{"index": 0, "text": "4", "logprobs": {"token_logprobs": [-1.0]}}]))
    reader.feed(event([{"index": 0, "text": "2", "finish_reason": "stop"}]))
    assert reader.payload()["choices"] == [
        {"index": 0, "finish_reason": "stop", "logprobs": {"token_logprobs": [-1.0]}, "text": "42"}
    ]


def test_a_server_without_usage_is_taken_to_send_a_token_per_event() -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(event([delta("4")]) + event([delta("2")]) + event([delta("", reason="stop")]))
    assert reader.payload()["usage"] == {"completion_tokens": 2}


def test_a_stream_that_ends_too_early_is_no_answer() -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(event([delta("4", reason="stop"), delta("x", index=1)]))
    with pytest.raises(Failure) as caught:
        reader.payload()
    assert caught.value.kind is FailureKind.RESET


def test_an_error_in_the_stream_is_kept() -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(event([delta("4")]) + b'data: {"error": {"message": "engine died", "code": 500}}\n\n')
    other = reader.replacement()
    assert other is not None and b"engine died" in other


@pytest.mark.parametrize(
    "data",
    [b"data: {broken\n\n", b"data: [1]\n\n", b"data: " + b"x" * 17_000_000],
    ids=["not JSON", "not an object", "endless line"],
)
def test_what_is_no_event_is_a_failure(data: bytes) -> None:
    with pytest.raises(Failure) as caught:
        StreamReader(True, lambda: 0.0).feed(data)
    assert caught.value.kind is FailureKind.BAD_RESPONSE


@pytest.mark.parametrize("choices", ["x", [1], [{"index": "a"}], [{"delta": 3, "logprobs": {"content": 7}}]])
def test_strange_choices_break_nothing(choices: object) -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(b"data: " + orjson.dumps({"choices": choices}) + b"\n\ndata: [DONE]\n\n")
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
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(event([delta("4", reason="stop")]) + error)
    other = reader.replacement()
    assert other is not None and b"engine died" in other
    assert find_error(orjson.loads(other)) is not None


def test_an_event_of_another_name_is_no_error() -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(b"event: error_rate\n" + event([delta("4")]) + b"event: message\n" + event([delta("2", reason="stop")]))
    assert reader.replacement() is None
    assert reader.payload()["choices"][0]["message"] == {"content": "42"}


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_response_that_is_no_stream_is_taken_whole(cut: int) -> None:
    response = b'\n {"choices": [{"index": 0, "message": {"content": "4\\n2"}, "finish_reason": "stop"}]}\n'
    reader = StreamReader(True, lambda: 0.0)
    for start in range(0, len(response), cut):
        reader.feed(response[start : start + cut])
    assert orjson.loads(reader.replacement() or b"") == orjson.loads(response)


def test_a_response_that_is_no_stream_has_an_end() -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(b"{")
    with pytest.raises(Failure) as caught:
        reader.feed(b"x" * 17_000_000)
    assert caught.value.kind is FailureKind.BAD_RESPONSE


@pytest.mark.parametrize("cut", range(5))
def test_a_mark_of_the_byte_order_is_passed_over(cut: int) -> None:
    for text, replacement in ((STREAM, None), (b'{"choices": []}', b'{"choices": []}')):
        marked, reader = BOM_UTF8 + text, StreamReader(True, lambda: 0.0)
        reader.feed(marked[:cut])
        reader.feed(marked[cut:])
        assert reader.replacement() == replacement


def test_text_after_the_end_of_a_choice_is_of_another_answer() -> None:
    """As where a server gives all of four choices one index."""
    for more in ([delta("b")], [delta("b", reason="stop")]):
        reader = StreamReader(True, lambda: 0.0)
        reader.feed(event([delta("a")]) + event([delta("", reason="stop")]) + event(more) + b"data: [DONE]\n\n")
        with pytest.raises(Failure, match="the stream continues a choice that has ended"):
            reader.payload()


def test_a_stream_has_the_id_of_its_first_event_and_the_model_that_it_names_last() -> None:
    reader = StreamReader(True, lambda: 0.0)
    reader.feed(event([delta("a")], id="x1", model="old"))
    reader.feed(event([delta("b", reason="stop")], id="x2", model="new") + b"data: [DONE]\n\n")
    assert (reader.payload()["id"], reader.payload()["model"]) == ("x1", "new")
