"""Configuration of endpoints: what is refused, and that nothing secret is ever shown."""

import pytest
from pydantic import ValidationError

from adaptive_eval.endpoints.types import EndpointConfig, Sampling


def test_one_url_and_many_are_both_replicas() -> None:
    assert EndpointConfig(base_url="http://a:1/v1/", model="m").replicas == ("http://a:1/v1",)
    assert EndpointConfig(base_url=("http://a/v1", "http://b/v1"), model="m").replicas == ("http://a/v1", "http://b/v1")


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
        {"temperature": -0.1},
        {"timeout": 0},
        {"temprature": 1.0},
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
