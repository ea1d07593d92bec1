"""No key in the file, and no key in a message."""

from pathlib import Path

import pytest
from checked_text import check_text

from adaptive_eval.endpoints.secrets import holds_secret, looks_secret, remove_patterns

KEY = "sk-proj-Aa1Bb2Cc3Dd4Ee5Ff6Gg7"
BASE = """\
questions: q.jsonl
grader: math
models:
  - name: a
    base_url: http://a/v1
    {line}
  - {{name: b, base_url: http://b/v1}}
"""


def problems_of(line: str, **environment: str) -> list[str]:
    checked = check_text(BASE.format(line=line), Path("c.yaml"), (), environment)
    return [str(problem) for problem in checked.problems]


@pytest.mark.parametrize(
    "line",
    [
        f"api_key: {KEY}",
        "api_key: EMPTY",
        "apiKey: abc",
        "authorization: abc",
        "password: abc",
        f"model: {KEY}",
        f"headers: {{Authorization: Bearer {KEY}}}",
        "headers: {Authorization: abc}",
        "headers: {x-api-key: abc}",
        f"headers: {{X-Anything: {KEY}}}",
        f"sampling: {{extra_body: {{nested: [{{key: {KEY}}}]}}}}",
        "sampling: {extra_body: {api_key: abc}}",
        "model: Bearer abcdefgh12345678",
    ],
)
def test_a_literal_key_is_refused_without_being_shown(line: str) -> None:
    lines = problems_of(line)
    assert any("has a secret, which must not be in the file" in message for message in lines), lines
    assert KEY not in str(lines)
    assert "abc" not in str(lines).replace("'abc'", "")


@pytest.mark.parametrize(
    "line",
    [
        "api_key_env: MY_KEY",
        "api_key_env: ${WHICH_KEY}",
        'headers: {Authorization: "Bearer ${MY_KEY}"}',
        "headers: {X-Team: research}",
        "sampling: {max_tokens: 5}",
        "model: org/sk-model",
        "model: hf-internal-testing/tiny-random-llama",
        "model: sk-learn-benchmark-assistant",
        "prompt: {template: '{prompt}', system: Basic understanding}",
        "prompt: '{prompt} Who is the Bearer of tokens?'",
    ],
)
def test_names_of_variables_and_harmless_words_are_not(line: str) -> None:
    assert problems_of(line, MY_KEY=KEY, WHICH_KEY="MY_KEY") == []


@pytest.mark.parametrize(
    "line", ["model: ${MY_KEY}", "sampling: {extra_body: {user: '${HF_TOKEN}'}}", "model: x-${DB_PASSWORD}"]
)
def test_a_secret_variable_goes_into_headers_only(line: str) -> None:
    lines = problems_of(line, MY_KEY="harmless", HF_TOKEN="harmless", DB_PASSWORD="harmless")
    assert any("includes a secret, which would be stored with the results" in message for message in lines), lines
    assert "harmless" not in str(lines)


def test_a_key_from_a_variable_of_any_name_is_recognised() -> None:
    lines = problems_of("model: ${INNOCENT}", INNOCENT=KEY)
    assert any("has a secret" in message for message in lines), lines
    assert KEY not in str(lines)


WORD = "0a1b2c3d4e5f0a1b2c3d4e5f"


@pytest.mark.parametrize("key", [KEY, WORD, f"tok_{WORD}"])
def test_no_variable_brings_a_key_into_an_address(key: str) -> None:
    address = BASE.format(line="model: m").replace("http://a/v1", '"http://a/${INNOCENT}/v1"')
    from_the_environment = BASE.format(line="model: m").replace("    base_url: http://a/v1\n", "")
    for text, values in (
        (address, {"INNOCENT": key}),
        (address.replace('"http://a/${INNOCENT}/v1"', '["${INNOCENT}"]'), {"INNOCENT": f"http://a/v1/{key}"}),
        (from_the_environment, {"OPENAI_BASE_URL": f"http://a/{key}/v1"}),
    ):
        lines = [str(problem) for problem in check_text(text, Path("c.yaml"), (), values).problems]
        assert "looks like a key" in lines[0] or "has a secret" in lines[0], lines
        assert key not in str(lines)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "https://0a1b2c3d4e5f0a1b2c3d4e5f.endpoints.example/v1",
        "https://a/deployments/llama-3-70b-instruct-turbo-fp8/v1",
        "https://a/123e4567-e89b-12d3-a456-426614174000/v1",
    ],
)
def test_an_address_from_a_variable_is_one(url: str) -> None:
    text = BASE.format(line="model: m").replace("http://a/v1", "${WHERE}")
    assert check_text(text, Path("c.yaml"), (), {"WHERE": url}).problems == ()


def test_a_long_word_that_stands_in_the_file_is_no_key() -> None:
    text = BASE.format(line="model: m").replace("http://a/v1", f"http://a/accounts/{WORD}/v1")
    assert check_text(text, Path("c.yaml"), (), {}).problems == ()


def test_a_header_from_the_environment_is_never_shown() -> None:
    text = BASE.format(line='headers: {Authorization: "Bearer ${MY_KEY}"}') + "seeed: 1"
    checked = check_text(text, Path("c.yaml"), (), {"MY_KEY": KEY})
    assert len(checked.problems) == 1
    config = check_text(text.replace("seeed", "seed"), Path("c.yaml"), (), {"MY_KEY": KEY}).config
    assert config is not None
    assert KEY not in repr(config) + str(config) + config.model_dump_json() + str(config.model_dump())
    assert config.models[0].headers["Authorization"].get_secret_value() == f"Bearer {KEY}"


def test_a_key_as_a_key_is_not_shown_either() -> None:
    assert KEY not in str(problems_of(f"{KEY}: 1"))


def test_an_override_with_a_key_is_refused() -> None:
    checked = check_text(BASE.format(line="model: m"), Path("c.yaml"), [f"models.0.api_key={KEY}"], {})
    assert str(checked.problems[0]).startswith("--set models.0.api_key: models[0].api_key has a secret")
    assert KEY not in str(list(map(str, checked.problems)))


@pytest.mark.parametrize(
    "value",
    [
        KEY,
        "hf_" + "a1" * 17,
        "ghp_" + "a1" * 18,
        "gsk_" + "a1" * 12,
        "AIza" + "a1" * 18,
        "AKIA" + "A1" * 8,
        "model_" + KEY,
        "Bearer " + "a1" * 10,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.x",
        "http://user:pass@host/v1",
        "http://host/v1?api_key=abc",
    ],
)
def test_shapes_of_keys(value: str) -> None:
    assert looks_secret(value)
    assert remove_patterns(value) != value


@pytest.mark.parametrize(
    "value", ["sk-learn", "org/model-sk-7b", "task-specific-benchmark-name", "http://host:8000/v1", ""]
)
def test_other_things(value: str) -> None:
    assert not looks_secret(value)
    assert remove_patterns(value) == value


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True),
        ("API-Key", True),
        ("my_api_key", True),
        ("token", True),
        ("access_token", True),
        ("client_secret", True),
        ("max_tokens", False),
        ("max_token", False),
        ("max_new_token", False),
        ("eos_token", False),
        ("api_key_env", False),
        ("tokens", False),
        ("key", False),
        ("keyword", False),
        ("tokens_per_minute", False),
    ],
)
def test_names_of_keys(name: str, secret: bool) -> None:
    assert holds_secret(name) is secret
