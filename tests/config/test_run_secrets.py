"""The secrets that a run knows: what its servers are sent, and what programs that it starts can read."""

from pathlib import Path

import pytest

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.endpoints.redaction import environment_secrets

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


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", dict(ENVIRONMENT))


def secrets_of(folder: Path, text: str) -> set[str]:
    """The secrets that a run with this configuration removes, without encodings."""
    (folder / "questions.jsonl").write_text('{"id": "q", "prompt": "6 * 7?", "answer": "42"}')
    (path := folder / "run.yaml").write_text(f"questions: questions.jsonl\n{text}\n")
    return {*run_redactor(load_config(path, ())).secrets}


def test_keys_and_headers_of_models_and_judges_are_known_and_no_others(tmp_path: Path) -> None:
    assert secrets_of(tmp_path, f"{MODELS}\ngrader: numeric") == SENT
    judge = "grader: {kind: judge, server: {base_url: 'http://j/v1', model: j, api_key_env: JUDGE_KEY}}"
    assert secrets_of(tmp_path, f"{MODELS}\n{judge}") == SENT | {"key-of-j-1234567"}
    headers = MODELS.replace("'http://b/v1'", "'http://b/v1', headers: {X-Key: '${HEADER}'}")
    assert secrets_of(tmp_path, f"{headers}\ngrader: numeric") == SENT | {"header-12345678"}


@pytest.mark.parametrize("more", ["launch: {command: [serve, '{port}']}", "base_url: 'http://b/v1', auth: 'my:signer'"])
def test_a_program_that_can_read_the_environment_makes_all_of_it_secret(tmp_path: Path, more: str) -> None:
    models = MODELS.replace("base_url: 'http://b/v1'", more)
    others = {"key-of-b-1234567", "key-of-j-1234567", "other-key-123456"}
    assert secrets_of(tmp_path, f"{models}\ngrader: numeric") == SENT | others


def test_the_file_of_a_key_is_no_secret_and_neither_are_words(tmp_path: Path) -> None:
    (path := tmp_path / "the-key-of-this-machine-1").touch()
    variables = {"KEY_FILE": str(path), "A_TOKEN": "word", "B_TOKEN": "placeholder", "C_TOKEN": " abc-1234-def\n"}
    assert environment_secrets(variables) == {"abc-1234-def"}
