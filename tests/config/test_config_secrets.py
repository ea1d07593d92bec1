"""No key in the file and none in a message; and the secrets that a run knows."""

from pathlib import Path

import pytest
from checked_text import config_in, problems_in

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.endpoints.redaction import environment_secrets
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
    return problems_in(BASE.format(line=line), **environment)


@pytest.mark.parametrize(
    "line",
    [
        *(f"{name}: {KEY}" for name in ("api_key", "model")),
        *(f"{name}: abc" for name in ("api_key", "apiKey", "authorization", "password")),
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
    lines = problems_of("model: ${INNOCENT}", INNOCENT=KEY)
    assert any("has a secret" in message for message in lines) and KEY not in str(lines), "whatever its name"


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
        lines = problems_in(text, **values)
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
    assert problems_in(text, WHERE=url) == []
    text = text.replace("${WHERE}", f"http://a/accounts/{WORD}/v1")
    assert problems_in(text) == [], "a long word that stands in the file is no key"


def test_a_header_from_the_environment_is_never_shown() -> None:
    text = BASE.format(line='headers: {Authorization: "Bearer ${MY_KEY}"}') + "seeed: 1"
    assert len(problems_in(text, MY_KEY=KEY)) == 1
    config = config_in(text.replace("seeed", "seed"), MY_KEY=KEY)
    assert KEY not in repr(config) + str(config) + config.model_dump_json() + str(config.model_dump())
    assert config.models[0].headers["Authorization"].get_secret_value() == f"Bearer {KEY}"


def test_a_key_in_an_override_or_as_a_name_is_refused_and_not_shown() -> None:
    assert KEY not in str(problems_of(f"{KEY}: 1"))
    first, *others = problems_in(BASE.format(line="model: m"), f"models.0.api_key={KEY}")
    assert first.startswith("--set models.0.api_key: models[0].api_key has a secret")
    assert KEY not in str([first, *others])


SHAPES = [KEY, "hf_" + "a1" * 17, "ghp_" + "a1" * 18, "gsk_" + "a1" * 12, "AIza" + "a1" * 18, "AKIA" + "A1" * 8]
SHAPES += [f"model_{KEY}", "Bearer " + "a1" * 10, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.x"]
SHAPES += ["http://user:pass@host/v1", "http://host/v1?api_key=abc"]


def test_shapes_of_keys() -> None:
    for value in SHAPES:
        assert looks_secret(value) and remove_patterns(value) != value, value
    for value in ("sk-learn", "org/model-sk-7b", "task-specific-benchmark-name", "http://host:8000/v1", ""):
        assert not looks_secret(value) and remove_patterns(value) == value, value


def test_names_of_keys() -> None:
    for name in ("api_key", "API-Key", "my_api_key", "token", "access_token", "client_secret"):
        assert holds_secret(name) is True, name
    counts = ("max_tokens", "max_token", "max_new_token", "tokens", "tokens_per_minute")
    for name in (*counts, "eos_token", "api_key_env", "key", "keyword"):
        assert holds_secret(name) is False, name


MODELS = "models: [{name: a, base_url: 'http://a/v1', api_key_env: A_KEY}, {name: b, base_url: 'http://b/v1'}]"
ENVIRONMENT = {
    "A_KEY": "key-of-a-1234567",
    "B_KEY": "key-of-b-1234567",
    "JUDGE_KEY": "key-of-j-1234567",
    "HEADER": "header-12345678",
    "OTHER_API_KEY": "other-key-123456",
    "HTTPS_PROXY": "http://me:proxy-word-1@proxy:3128",
    "NOTES": "see https://host/v1?api_key=in-an-address-1 for more",
    "SHORT_TOKEN": "abc",
    "PLAIN_TOKEN": "production",
}
SENT = {"key-of-a-1234567", "proxy-word-1", "in-an-address-1"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", dict(ENVIRONMENT))


def secrets_of(folder: Path, text: str) -> set[str]:
    """The secrets that a run with this configuration removes, without encodings."""
    (folder / "questions.jsonl").write_text('{"id": "q", "prompt": "6 * 7?", "answer": "42"}')
    (path := folder / "run.yaml").write_text(f"questions: questions.jsonl\n{text}\n")
    return {*run_redactor(load_config(path, ())).secrets}


def test_keys_and_headers_of_models_and_judges_are_known_and_no_others(environment: None, tmp_path: Path) -> None:
    assert secrets_of(tmp_path, f"{MODELS}\ngrader: numeric") == SENT
    judge = "grader: {kind: judge, server: {base_url: 'http://j/v1', model: j, api_key_env: JUDGE_KEY}}"
    assert secrets_of(tmp_path, f"{MODELS}\n{judge}") == SENT | {"key-of-j-1234567"}
    headers = MODELS.replace("'http://b/v1'", "'http://b/v1', headers: {X-Key: '${HEADER}'}")
    assert secrets_of(tmp_path, f"{headers}\ngrader: numeric") == SENT | {"header-12345678"}


@pytest.mark.parametrize("more", ["launch: {command: [serve, '{port}']}", "base_url: 'http://b/v1', auth: 'my:signer'"])
def test_programs_that_can_read_the_environment_make_it_secret(environment: None, tmp_path: Path, more: str) -> None:
    models = MODELS.replace("base_url: 'http://b/v1'", more)
    others = {"key-of-b-1234567", "key-of-j-1234567", "other-key-123456"}
    assert secrets_of(tmp_path, f"{models}\ngrader: numeric") == SENT | others


def test_the_file_of_a_key_is_no_secret_and_neither_are_words(tmp_path: Path) -> None:
    (path := tmp_path / "the-key-of-this-machine-1").touch()
    variables = {"KEY_FILE": str(path), "A_TOKEN": "word", "B_TOKEN": "placeholder", "C_TOKEN": " abc-1234-def\n"}
    assert environment_secrets(variables) == {"abc-1234-def"}
