"""Configuration of endpoints: what is refused, what is never shown, and what is sent for it."""

import pytest
from pydantic import ValidationError
from raw_servers import CHAT, TEXT

from adaptive_eval.endpoints.types import EndpointConfig, Sampling
from adaptive_eval.endpoints.wire import MIN_STREAM_TOKENS, BodyBuilder, streams


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a/v1", "http"),
        ("a:8000/v1", "http"),
        ("http:///v1", "http"),
        ((), "an empty list"),
        (("http://a/v1", "http://a/v1/"), "each replica once"),
        ("http://me:hunter2@a/v1", "no user name"),
        ("http://a/v1?key=hunter2", "no user name"),
    ],
)
def test_bad_base_urls_are_refused_without_being_shown(url: str | tuple[str, ...], why: str) -> None:
    with pytest.raises(ValidationError, match=why) as caught:
        EndpointConfig(base_url=url, model="m")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        *({"temperature": -0.1}, {"timeout": 0}, {"temprature": 1.0}),
        {"extra_body": {"seed": 3}},
        {"extra_body": {"n": 3}},
    ],
)
def test_sampling_refuses(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Sampling(**values)


@pytest.mark.parametrize("values", [{"prompt_logprobs": "echo"}, {"prompt_logprobs": "vllm", "stream": True}])
def test_prompt_logprobs_need_what_gives_them(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="prompt"):
        EndpointConfig(base_url="http://a/v1", model="m", **values)


def test_header_values_show_in_no_representation() -> None:
    config = EndpointConfig(base_url="http://a/v1", model="m", headers={"X-Key": "hunter2"})
    for text in (repr(config), str(config), config.model_dump_json()):
        assert "hunter2" not in text
    with pytest.raises(ValidationError) as caught:
        EndpointConfig(base_url="http://a/v1", model="m", headers={"X-Key": "hunter2"}, prompt_logprobs="echo")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "host", "X Key", "X-Key:", "X-Key\r\nX-Other", ""])
def test_headers_that_would_break_a_request_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be set as a header"):
        EndpointConfig(base_url="http://a/v1", model="m", headers={name: "x"})


@pytest.mark.parametrize(
    ("urls", "variable"),
    [
        (("https://api.openai.com/v1",), "OPENAI_API_KEY"),
        (("https://eu.api.openai.com:443/v1",), "OPENAI_API_KEY"),
        (("http://api.openai.com/v1",), None),
        (("https://api.openai.com.example.org/v1",), None),
        (("https://notapi.openai.com/v1",), None),
        (("https://openai.com/v1",), None),
        (("https://example.org/api.openai.com/v1",), None),
        (("http://localhost:8000/v1",), None),
        (("https://api.openai.com/v1", "http://localhost:8000/v1"), None),
    ],
)
def test_the_key_of_a_provider_is_for_the_provider_alone(urls: tuple[str, ...], variable: str | None) -> None:
    config = EndpointConfig(base_url=urls, model="m")
    assert config.key_variable == variable
    assert config.missing_key({}) is None, "a server behind its address may need none"
    assert config.model_copy(update={"api_key_env": "MY_KEY"}).key_variable == "MY_KEY"


def config(**values: object) -> EndpointConfig:
    return EndpointConfig(base_url="http://a/v1", model="m", **values)


def test_what_was_set_is_sent_by_its_name_and_nothing_else() -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "How much is 6 times 7?"}], "seed": 7}
    assert BodyBuilder(config(stream=False), Sampling()).body(CHAT, range(7, 8)) == plain
    assert BodyBuilder(config(prompt_logprobs="vllm"), Sampling()).body(CHAT, range(1))["prompt_logprobs"] == 0
    body = BodyBuilder(config(stream=True), Sampling()).body(CHAT, range(1))
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    plain = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "max_tokens": 100, "stop": ("a", "b")}
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    body = BodyBuilder(config(), Sampling(**plain, logprobs=True, extra_body=extra, timeout=5)).body(CHAT, range(9, 12))
    assert body == {"model": "m", "messages": body["messages"], "seed": 9, "n": 3, "logprobs": True, **plain, **extra}


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
def test_long_answers_are_streamed(given: dict[str, object], sampling: dict[str, object], streamed: bool) -> None:
    asked = config(**given)
    drawn = Sampling(**sampling)
    assert streams(asked, drawn) is streamed
    assert ("stream" in BodyBuilder(asked, drawn).body(CHAT, range(1))) is streamed
