"""Request bodies: the names that servers know, and nothing that was not asked for."""

import pytest
from raw_servers import CHAT, TEXT

from adaptive_eval.endpoints.types import EndpointConfig, Sampling
from adaptive_eval.endpoints.wire import MIN_STREAM_TOKENS, BodyBuilder, streams


def config(**values: object) -> EndpointConfig:
    return EndpointConfig(base_url="http://a/v1", model="m", **values)


def test_only_what_was_set_is_sent() -> None:
    body = BodyBuilder(config(stream=False), Sampling()).body(CHAT, range(7, 8))
    assert body == {"model": "m", "messages": [{"role": "user", "content": "How much is 6 times 7?"}], "seed": 7}


def test_every_sampling_key_is_sent_by_its_name() -> None:
    plain = {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "max_tokens": 100,
        "stop": ("a", "b"),
        "logprobs": True,
    }
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    body = BodyBuilder(config(), Sampling(**plain, extra_body=extra, timeout=5)).body(CHAT, range(9, 12))
    assert body == {"model": "m", "messages": body["messages"], "seed": 9, "n": 3, **plain, **extra}


def test_tier_and_priority_are_sent_with_each_request_and_change_no_answer() -> None:
    sampling = Sampling(extra_body={"service_tier": "flex", "priority": 10, "x": 1})
    bodies = BodyBuilder(config(), sampling)
    for body in (bodies.body(CHAT, range(1)), bodies.tiny()):
        assert (body["service_tier"], body["priority"]) == ("flex", 10)
    assert sampling.answer_body == {"x": 1}


def test_a_prompt_of_the_other_api_is_refused() -> None:
    with pytest.raises(ValueError, match="api: completions"):
        BodyBuilder(config(), Sampling()).body(TEXT, range(1))
    with pytest.raises(ValueError, match="api: chat"):
        BodyBuilder(config(api="completions"), Sampling()).body(CHAT, range(1))


def test_logprobs_are_a_count_for_text_completions() -> None:
    def body(sampling: Sampling, **values: object) -> dict[str, object]:
        return BodyBuilder(config(api="completions", **values), sampling).body(TEXT, range(1))

    assert body(Sampling(logprobs=True))["logprobs"] == 1
    assert body(Sampling(logprobs=True, extra_body={"logprobs": 4}))["logprobs"] == 4
    assert "logprobs" not in body(Sampling())
    echoed = body(Sampling(), prompt_logprobs="echo")
    assert (echoed["echo"], echoed["logprobs"]) == (True, 1)


def test_vllm_gives_the_prompt_logprobs_alone() -> None:
    assert BodyBuilder(config(prompt_logprobs="vllm"), Sampling()).body(CHAT, range(1))["prompt_logprobs"] == 0


def test_a_stream_asks_for_its_usage() -> None:
    body = BodyBuilder(config(stream=True), Sampling()).body(CHAT, range(1))
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_a_tiny_request_keeps_the_name_of_the_limit() -> None:
    assert BodyBuilder(config(), Sampling(max_tokens=9000)).tiny()["max_tokens"] == 16
    tiny = BodyBuilder(config(), Sampling(extra_body={"max_completion_tokens": 9000})).tiny()
    assert tiny["max_completion_tokens"] == 16
    assert "max_tokens" not in tiny


@pytest.mark.parametrize(
    ("given", "sampling", "streamed"),
    [
        ({}, {}, True),
        ({}, {"max_tokens": MIN_STREAM_TOKENS}, True),
        ({}, {"max_tokens": MIN_STREAM_TOKENS - 1}, False),
        ({}, {"extra_body": {"max_completion_tokens": MIN_STREAM_TOKENS - 1}}, False),
        ({}, {"logprobs": True}, False),
        ({"prompt_logprobs": "vllm"}, {}, False),
        ({"stream": True}, {"max_tokens": 1}, True),
        ({"stream": False}, {}, False),
    ],
)
def test_long_answers_are_streamed_unless_told_otherwise(
    given: dict[str, object], sampling: dict[str, object], streamed: bool
) -> None:
    asked = config(**given)
    drawn = Sampling(**sampling)
    assert streams(asked, drawn) is streamed
    assert ("stream" in BodyBuilder(asked, drawn).body(CHAT, range(1))) is streamed
