"""Responses into answers: the servers' dialects, and nothing trusted."""

from math import log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_servers import CHAT, TEXT

from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin, mean_bits
from adaptive_eval.endpoints.failures import Failure, FailureKind, UnknownFinish
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR
from adaptive_eval.endpoints.types import Answer, AnswerLogprobs, EndpointConfig, Sampling

ARRIVAL = ResponseOrigin("http://a/v1", 1.5, 0.25, 2)
LN2 = log(2.0)
KEPT = Sampling(logprobs="tokens")


def reader(sampling: Sampling = Sampling(), notices: list[str] | None = None, **values: Any) -> AnswerReader:  # noqa: B008
    config, noted = EndpointConfig(base_url="http://a/v1", model="m", **values), [] if notices is None else notices
    return AnswerReader(config, sampling, EMPTY_REDACTOR, lambda notice: noted.append(notice.kind))


def chat(payload: object, n: int = 1, **values: Any) -> list[Answer]:
    return reader(**values).answers(payload, CHAT, range(10, 10 + n), ARRIVAL)


def tokens_of(texts: list[dict[str, object]], completion_tokens: int, **more: object) -> list[int]:
    """How many each of these choices is said to have."""
    usage = {"prompt_tokens": 1, "completion_tokens": completion_tokens}
    return [answer.completion_tokens for answer in chat({"choices": texts, "usage": usage, **more}, n=len(texts))]


def choice(content: object, reason: object = "stop", **fields: object) -> dict[str, object]:
    return {"index": 0, "message": {"role": "assistant", "content": content, **fields}, "finish_reason": reason}


def at_slot(*tops: object, **first: object) -> dict[str, object]:
    """A reply of one token with what was likeliest beside it."""
    return {"content": [{"token": "A", "logprob": -0.5, "top_logprobs": list(tops)} | first]}


@pytest.mark.parametrize(
    ("logprobs", "slot"),
    [
        (at_slot({"token": "B", "logprob": -1}), (("A", -0.5), ("B", -1.0))),
        (at_slot(), ()),
        (at_slot({"token": "B"}, {"token": 7, "logprob": -1.0}, "C", {"token": "C", "logprob": True}), (("A", -0.5),)),
        (at_slot({"token": "B", "logprob": -2.0}, logprob=float("nan")), (("B", -2.0),)),
        (at_slot({"token": "B", "logprob": -1})["content"], ()),
        ({"content": ["A"]}, ()),
        ({"content": []}, ()),
        (None, ()),
    ],
)
def test_what_could_have_stood_first_is_kept(logprobs: object, slot: tuple[tuple[str, float], ...]) -> None:
    (answer,) = chat({"choices": [choice("A") | {"logprobs": logprobs}]})
    assert answer.slot == slot
    many = at_slot(*({"token": str(number), "logprob": -9.0} for number in range(5000)))
    assert len(chat({"choices": [choice("A") | {"logprobs": many}]})[0].slot) < 200


@pytest.mark.parametrize(
    ("content", "fields", "text", "reasoning"),
    [
        ("42", {"reasoning_content": "six times seven"}, "42", "six times seven"),
        ("42", {"reasoning": "six times seven"}, "42", "six times seven"),
        (None, {"refusal": "I will not."}, "I will not.", ""),
        (["4", {"type": "text", "text": "2"}, {"type": "thinking", "thinking": []}], {}, "42", ""),
        (None, {"text": "42"}, "42", ""),
    ],
)
def test_texts_beside_the_content(content: object, fields: dict[str, str], text: str, reasoning: str) -> None:
    (answer,) = chat({"choices": [choice(content, **fields)]})
    assert (answer.text, answer.reasoning or "") == (text, reasoning)


@pytest.mark.parametrize(
    ("made", "signals"),
    [
        (choice("cut o", "length"), {"truncated"}),
        (choice("", "stop"), {"empty"}),
        (choice(None, "length"), {"empty", "truncated"}),
        (choice(None, reasoning_content="It is 42."), {"empty", "reasoning_only"}),
        (choice("", reasoning="It is 42."), {"empty", "reasoning_only"}),
        (choice("", "length", reasoning="It may b"), {"empty", "truncated"}),
        (choice(None, tool_calls=[{"id": "a"}]), {"empty"}),
        (choice(None, "tool_calls"), {"empty"}),
        (choice("cut o", "MAX_TOKENS"), {"truncated"}),
        (choice("no", "sensitive"), {"content_filter"}),
        (choice("no", "refusal"), {"refusal"}),
        (choice("", "content_filter"), {"content_filter", "empty"}),
        (choice(None, refusal="I will not."), {"refusal"}),
        (choice([{"type": "refusal", "refusal": "I will not."}]), {"refusal"}),
        (choice("42"), set()),
        (choice("42", refusal=""), set()),
    ],
)
def test_signals(made: dict[str, object], signals: set[str]) -> None:
    assert chat({"choices": [made]})[0].signals == signals


NO_TOKENS = {"usage": {"prompt_tokens": 9, "completion_tokens": 0}}


@pytest.mark.parametrize(("content", "usage"), [(None, {}), (None, NO_TOKENS), ("", NO_TOKENS), ([], NO_TOKENS)])
def test_where_nothing_was_generated_there_is_no_answer(content: object, usage: dict[str, object]) -> None:
    with pytest.raises(Failure, match="generated nothing") as caught:
        chat({"choices": [choice(content)], **usage})
    assert caught.value.kind is FailureKind.SERVER_ERROR
    with pytest.raises(Failure, match="generated nothing"):
        chat({"choices": [choice(content), choice(content) | {"index": 1}], **usage}, n=2)
    with pytest.raises(Failure, match="generated nothing"):
        chat({"choices": [choice("42"), choice(None) | {"index": 1}], **usage}, n=2)


def test_no_text_is_an_empty_answer_where_tokens_were_generated_or_are_not_counted() -> None:
    for content in (None, ""):
        (answer,) = chat({"choices": [choice(content)], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
        assert (answer.text, answer.signals) == ("", {"empty"})
    for usage in ({}, {"completion_tokens": 0}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": 9}):
        assert chat({"choices": [choice("")], "usage": usage})[0].signals == {"empty"}
    both = {"choices": [choice("42"), choice("") | {"index": 1}], **NO_TOKENS}
    assert [result.text for result in chat(both, n=2)] == ["42", ""]
    asked = reader()
    _, (empty,) = (asked.answers({**strange(text), **NO_TOKENS}, CHAT, range(1), ARRIVAL) for text in ("42", ""))
    assert empty.signals == {"empty"}, "a server that says of a text that it has no tokens does not count them"


def strange(content: object, reason: object = "stop") -> dict[str, object]:
    return {"choices": [choice(content, reason)]}


REASONS = ("abort", "error", "ERROR", "cancelled", "insufficient_system_resource", "network_error", "timeout", "null")


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        *((strange("half an ans", reason), FailureKind.SERVER_ERROR) for reason in (*REASONS, None)),
        *((payload, FailureKind.BAD_RESPONSE) for payload in (None, "42", {}, {"choices": []}, {"choices": ["42"]})),
        ({"choices": [{"text": "42"}]}, FailureKind.BAD_RESPONSE),
        *((strange(content), FailureKind.BAD_RESPONSE) for content in (42, {"text": "42"})),
        (strange([{"type": "output_text", "content": "42"}]), FailureKind.BAD_RESPONSE),
        (strange("42", 7), FailureKind.BAD_RESPONSE),
    ],
)
def test_what_was_given_up_in_the_middle_or_holds_no_text_is_a_failure(payload: object, kind: FailureKind) -> None:
    with pytest.raises(Failure) as caught:
        chat(payload)
    assert caught.value.kind is kind


def test_an_answer_without_a_finish_reason_has_to_be_declared_as_finished() -> None:
    """Null is what an unfinished choice has, and is asked again; of a field that is not there nobody can tell."""
    without = choice("42")
    del without["finish_reason"]
    with pytest.raises(UnknownFinish, match=r"without a finish reason.*finish_reasons: \[none\]"):
        chat({"choices": [without]})
    with pytest.raises(Failure, match=r"finish_reason null.*finish_reasons: \[none\]"):
        chat({"choices": [choice("42", None)]})
    for made in (without, choice("42", None)):
        assert chat({"choices": [made]}, finish_reasons=("none",))[0].finish_reason == "none"


def test_several_choices_get_the_seeds_in_the_order_of_their_index() -> None:
    second, first = choice("b"), choice("a")
    second["index"] = 1
    usage = {"prompt_tokens": 9, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 7}}
    answers = chat({"choices": [second, first], "usage": usage}, n=2)
    assert [(answer.text, answer.seed) for answer in answers] == [("a", 10), ("b", 11)]
    assert [(answer.prompt_tokens, answer.cached_tokens) for answer in answers] == [(4, 3), (5, 4)], "they share them"
    assert sum(answer.completion_tokens for answer in answers) == 6


def indexed(*indices: object) -> dict[str, object]:
    """Choices with these indices, each with its letter as text; without one for `...`."""
    texts = [choice(letter) | {"index": index} for letter, index in zip("abcdef", indices, strict=False)]
    return {"choices": [{key: entry[key] for key in entry if entry[key] is not ...} for entry in texts]}


@pytest.mark.parametrize("indices", [(0, 1, 2), (..., ..., ...), (None, None, None)])
def test_fewer_choices_than_asked_are_given(indices: tuple[object, ...]) -> None:
    assert [answer.text for answer in chat(indexed(*indices), n=4)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("indices", "n", "problem"),
    [
        ((0, 0, 0, 0), 4, r"indices of its choices are \[0, 0, 0, 0\], not 0 to 3"),
        ((0, 2), 4, r"\[0, 2\], not 0 to 1"),
        ((-1, 0), 2, r"\[-1, 0\], not 0 to 1"),
        ((0, ...), 2, r"\[0, None\], not 0 to 1"),
        ((True, 0), 2, r"\[True, 0\], not 0 to 1"),
        ((7,), 1, r"\[7\], not 0 to 0"),
        ((0, 1), 1, "it has 2 choices, and 1 was asked for"),
        ((0, 1, 2, 3, 0), 4, "it has 5 choices, and 4 were asked for"),
    ],
)
def test_choices_that_answer_no_request_are_refused(indices: tuple[object, ...], n: int, problem: str) -> None:
    with pytest.raises(Failure, match=problem) as caught:
        chat(indexed(*indices), n=n)
    assert caught.value.kind is FailureKind.BAD_RESPONSE


def test_tokens_are_shared_by_length_and_counted_by_logprobs_where_there_are_any() -> None:
    texts = [choice("x" * 30), choice("x" * 10) | {"index": 1}]
    assert tokens_of(texts, 20) == [15, 5]
    for made, tokens in zip(texts, (3, 2), strict=True):
        made["logprobs"] = {"content": [{"token": "x", "logprob": -1.0}] * tokens}
    assert tokens_of(texts, 20) == [3, 2] and tokens_of(texts[:1], 20) == [20], "with its reasoning"
    # llama-server counts the first choice only
    texts = [choice("x" * 40), choice("x" * 120) | {"index": 1}]
    counts = {"predicted_n": 10}
    assert tokens_of(texts, 10, timings=counts) == [10, 30] and tokens_of(texts[:1], 10, timings=counts) == [10]


@pytest.mark.parametrize(
    ("other", "tokens"),
    [
        (choice(None, tool_calls=[{"id": "a"}]), [50, 50]),
        (choice("", "content_filter"), [50, 50]),
        (choice("", "stop"), [100, 0]),
    ],
)
def test_an_answer_without_a_text_is_counted_as_long_as_the_others(other: dict[str, Any], tokens: list[int]) -> None:
    assert tokens_of([choice("x" * 30), other | {"index": 1}], 100) == tokens


@pytest.mark.parametrize("absurd", [2**63, 10**400, -1, 2.5, "7", None, 0])
def test_where_a_count_cannot_be_it_is_estimated_from_the_text(absurd: object) -> None:
    usage = {"prompt_tokens": absurd, "completion_tokens": absurd}
    (answer,) = chat({"choices": [choice("x" * 31)], "usage": usage})
    assert CHAT.messages is not None
    assert answer.prompt_tokens == -(-len(CHAT.messages[-1].content) // 3)
    assert answer.completion_tokens == 11


def counted(text: str, reason: str = "stop", max_tokens: int | None = 100, **usage: object) -> tuple[int, list[str]]:
    """Tokens of an answer that may have so many, and what is noticed."""
    notices: list[str] = []
    answer_reader = reader(Sampling(max_tokens=max_tokens), notices)
    payload = {"choices": [choice(text, reason)], "usage": {"prompt_tokens": 9, **usage}}
    (answer,) = answer_reader.answers(payload, CHAT, range(1), ResponseOrigin("here", 0.1, None, 1))
    return answer.completion_tokens, notices


def test_usage_is_believed_as_far_as_it_can_be() -> None:
    assert counted("x" * 300, completion_tokens=80) == (80, [])
    assert counted("x" * 300) == (100, ["no_usage"])
    assert counted("x" * 30, reason="length") == (100, ["no_usage"])
    assert counted("x" * 300, completion_tokens=2_000_000_000) == (100, ["absurd_usage"])
    assert counted("x" * 300, completion_tokens=300) == (300, [])
    assert counted("x" * 300, completion_tokens=9000, prompt_tokens=90_000) == (9000, []), "hidden reasoning, a gateway"
    assert counted("x" * 300, completion_tokens=1) == (100, ["low_usage"])
    assert counted("", reason="length", completion_tokens=0) == (0, [])
    assert counted("x" * 1600) == (100, ["no_usage"])
    # no hundred tokens are as long as these texts, whatever was allowed
    assert counted("x" * 6000) == (2000, ["no_usage"])
    assert counted("x" * 6000, completion_tokens=2_000_000) == (2000, ["absurd_usage"])
    assert counted("x" * 6000, completion_tokens=1) == (2000, ["low_usage"])
    assert counted("x", completion_tokens=1, prompt_tokens=2_000_000_000)[1] == ["absurd_usage"]
    assert counted("x" * 300, max_tokens=None, completion_tokens=2_000_000_000) == (100, ["absurd_usage"])


def test_reasoning_reported_beside_the_completion_is_counted_as_far_as_it_can_be() -> None:
    details = {"reasoning_tokens": 90}
    assert counted("42", completion_tokens=5, total_tokens=104, completion_tokens_details=details) == (95, [])
    assert counted("42", completion_tokens=5, completion_tokens_details=details) == (90, [])
    assert counted("42", completion_tokens=95, total_tokens=104, completion_tokens_details=details) == (95, [])
    assert counted("42", completion_tokens=5, total_tokens=104, prompt_tokens=0)[0] == 5, "it includes the prompt"
    cached = {"prompt_tokens_details": {"cached_tokens": 500}}
    assert counted("42", completion_tokens=5, total_tokens=514, **cached) == (5, []), "its prompt has 509 tokens"
    assert counted("42", completion_tokens=5, total_tokens=604, **cached) == (95, [])
    assert counted("42", completion_tokens=5, total_tokens=2_000_000_000) == (100, ["absurd_usage"])


def test_prompt_bits_of_vllm_stand_beside_the_choices() -> None:
    entries = [None, {"17": {"logprob": -2 * LN2, "rank": 3}, "5": {"logprob": -0.1}}, {"3": {"logprob": 0.0}}]
    (answer,) = chat({"choices": [choice("42")], "prompt_logprobs": entries}, prompt_logprobs="vllm")
    assert answer.prompt_bpt == pytest.approx(1.0)
    assert chat({"choices": [choice("42")]}, prompt_logprobs="vllm")[0].prompt_bpt is None


def test_tokens_are_kept_of_chats_and_of_text_completions() -> None:
    content = [{"token": "4", "logprob": -0.5}, {"token": None, "logprob": True}, "2", {"logprob": 5.0}]
    payload = {"choices": [choice("42") | {"logprobs": {"content": content}}]}
    (answer,) = reader(KEPT).answers(payload, CHAT, range(1), ARRIVAL)
    assert answer.token_logprobs == AnswerLogprobs(("4", "", ""), (-0.5, None, None))
    (without_tokens,) = reader().answers(payload, CHAT, range(1), ARRIVAL)
    assert without_tokens.token_logprobs is None
    named = {"tokens": ["a", " b", " 4", "2"], "token_logprobs": [None, -1.0, -0.25, -3]}
    completion = {"choices": [{"text": f"{TEXT.text}42", "logprobs": named, "finish_reason": "stop"}]}
    with_usage = completion | {"usage": {"prompt_tokens": 2, "completion_tokens": 2}}
    (answer,) = reader(KEPT, api="completions", prompt_logprobs="echo").answers(with_usage, TEXT, range(1), ARRIVAL)
    assert answer.token_logprobs == AnswerLogprobs((" 4", "2"), (-0.25, -3.0))


def test_an_echoed_prompt_is_cut_off_the_text_and_its_logprobs() -> None:
    assert TEXT.text is not None
    values = [None, -LN2, -LN2, -5 * LN2, -3 * LN2]
    payload = {
        "choices": [{"text": TEXT.text + " 42", "logprobs": {"token_logprobs": values}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    read = reader(api="completions", prompt_logprobs="echo")
    (answer,) = read.answers(payload, TEXT, range(1), ARRIVAL)
    assert (answer.text, answer.completion_tokens) == (" 42", 2)
    assert (answer.prompt_bpt, answer.completion_bpt) == (pytest.approx(1.0), pytest.approx(4.0))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["index", "message", "text", "logprobs", "finish_reason", "content", "token_logprobs", "reasoning", "refusal"]
CHOICE = st.dictionaries(st.sampled_from(NAMES), JSON | st.dictionaries(st.sampled_from(NAMES), JSON))


@given(
    payload=st.fixed_dictionaries(
        {"choices": st.lists(CHOICE, max_size=3)}, optional={"usage": JSON, "prompt_logprobs": JSON, "timings": JSON}
    ),
    api=st.sampled_from(["chat", "completions"]),
)
def test_no_json_breaks_the_reader(payload: dict[str, Any], api: str) -> None:
    prompt = CHAT if api == "chat" else TEXT
    try:
        answers = reader(api=api).answers(payload, prompt, range(3), ARRIVAL)
    except (Failure, UnknownFinish):
        return
    assert 1 <= len(answers) <= 3
    assert all(isinstance(answer.text, str) and 0 <= answer.completion_tokens < 2**40 for answer in answers)


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 6}}, 6),
        ({"prompt_tokens": 9, "cache_read_input_tokens": 5}, 5),
        ({"prompt_tokens": 9, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 9}, 9),
        ({"prompt_tokens": 9}, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1e300}}, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": [6]}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 6}}, 0),
        ({"prompt_tokens": 10**9, "prompt_tokens_details": {"cached_tokens": 9}}, 0),
    ],
)
def test_cached_tokens_count_as_part_of_a_plausible_prompt_alone(usage: dict[str, object], cached: int) -> None:
    (answer,) = chat({"choices": [choice("42")], "usage": {"completion_tokens": 1, **usage}})
    assert answer.cached_tokens == cached


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([-1.0, -2.0], 1.5),
        ([-1.0, None, True, -4], 5 / 2),
        ([-1.0, float("nan"), -2.0], 1.5),
        ([float("nan"), -2.0], 2.0),
        ([-1.0, float("-inf")], 1.0),
        ([-1.0, -1e300], 1.0),
        ([float("inf"), float("-inf"), -3.0], 3.0),
        ([-1.0, 5.0, -2.0], 1.5),
        ([5], None),
        ([-1.0, 1e-6], 0.4999995),
        ([float("nan")], None),
        ([], None),
    ],
)
def test_bits_are_of_the_tokens_that_say_something(values: list[object], mean: float | None) -> None:
    assert mean_bits(values) == (None if mean is None else pytest.approx(mean / 0.6931471805599453))
