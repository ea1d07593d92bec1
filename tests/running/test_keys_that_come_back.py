"""A server that repeats the key in everything it sends: answers are graded, the key is never stored or shown."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from command_line import typed
from contrary_server import Asked, Contrary, Reply, answer, listening, write_config
from live_runs import models_at
from stored_runs import stored_events, stored_trials

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.machine.facts import answer_digest
from adaptive_eval.report.reader import RunReader

KEY = "sk/a1b2c3d4+e5f6g7h8i9j0k1l2m3n4o5p6"


def echo(asked: Asked) -> Reply | None:
    key = asked.headers["Authorization"].removeprefix("Bearer ")
    echoed = (key, b64encode(f"{asked.seed}:{key}:7".encode()).decode(), quote(key, safe=""))[asked.seed % 3]
    if asked.number == 3 and asked.model == "bob":
        return Reply(500, b" " * 4080 + key.encode())
    text = f"I was sent {echoed}. {asked.text}"
    body = answer(asked, content=text, reasoning_content=f"I was sent {echoed} and say {key[:20]}")
    return Reply(body={**body, "model": f"{asked.model}-{key}"})


@pytest.fixture(autouse=True)
def the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)


def configured(folder: Path, server: Contrary, **changes: Any) -> Path:
    """The configuration of two models that are sent the key."""
    models = models_at(server.base_url, "ada", "bob", api_key_env="THE_KEY")
    return write_config(folder, server, models=models, **changes)


def assert_shows_no_piece(texts: Sequence[str], key: str = KEY) -> None:
    """Assert that no text has a piece of the key, in any of its forms."""
    forms = (key, quote(key, safe=""), *(b64encode(bytes(n) + key.encode()).decode()[4:-4] for n in range(3)))
    for form in forms:
        for piece in (form[at : at + 20] for at in range(max(1, len(form) - 20))):
            assert not [text for text in texts if piece in text], piece


def files_in(folder: Path) -> list[str]:
    return [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]


def test_a_key_in_an_answer_is_stored_nowhere_and_shown_nowhere(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run"
    with listening(echo) as server:
        config = configured(tmp_path, server)
        result = typed("run", config, "--display", "plain", "--run-dir", run, code=ExitCode.REACHED)
        tried = typed("run", config, "--dry-run", "--run-dir", tmp_path / "other")
        assert "***" in tried.output
    with closing(RunReader.open(run)) as reader:
        records, events = list(reader.trials()), list(reader.events())
        read_without_texts = [trial.trial for trial in reader.graded_trials()]
    assert len(records) == 48
    for record in records:
        right = (record.answer.seed % 8 == 0) is (record.model == "bob")
        assert record.category == int(right), record
        assert "***" in record.answer.text and "***" in (record.answer.reasoning or "")
    digests = [trial.facts and trial.facts.digest for trial in read_without_texts]
    assert digests == [answer_digest(record.answer) for record in records]
    shown = [result.output, tried.output, repr(records), repr(events), *files_in(run)]
    for form in ("html", "md", "json", "csv"):
        out = tmp_path / f"report.{form}"
        typed("report", run, "--format", form, "--output", out)
        shown += [out.read_text()] if out.exists() else []
    assert len(shown) > 7
    assert_shows_no_piece(shown)
    assert typed("verify", run).exit_code == 0
    assert "***" not in typed("regrade", run, "--config", config, code=0).output


def echo_everywhere(asked: Asked) -> Reply | None:
    """Echoes the key in every part of a response: the usage, tokens, names, headers, finish reasons, and errors."""
    bearer = asked.headers["Authorization"]
    key, headers = bearer.removeprefix("Bearer "), {"X-Echo": bearer, "Retry-After": bearer, "x-request-id": bearer}
    if asked.model == "bob" and asked.number in (6, 7, 8):
        status = (500, 429, 503)[asked.number - 6]
        return Reply(status, {"error": {"message": f"no: {key}", "code": key, "param": key, "type": bearer}}, headers)
    if asked.model == "bob" and asked.number == 12:
        return Reply(302, b"", {"Location": f"http://{key.replace('/', '-')}.example/"})
    body: dict[str, Any] = answer(asked, content=f"{asked.text} {json.dumps(bearer)}", reasoning=key)
    tokens = [{"token": part, "logprob": -0.5, "bytes": [*part.encode()]} for part in ("The ", key[:7], key[7:])]
    body["choices"][0] |= {"logprobs": {"content": tokens}}
    body["usage"] |= {"prompt_tokens": 5 + asked.number, "note": key, "completion_tokens_details": {key: key}}
    return Reply(body={**body, "id": key, "model": bearer, "system_fingerprint": bearer}, headers=headers)


def models_with_the_key(path: str, headers: Mapping[str, str]) -> Reply | None:
    names = ["ada", headers.get("Authorization", "nobody")]
    return Reply(body={"data": [{"id": name} for name in names]}) if path.endswith("/models") else None


def test_no_part_of_a_response_leaves_the_key_in_a_file_or_an_output(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "run"
    with listening(echo_everywhere, models_with_the_key) as server:
        sampling = {"temperature": 0.6, "max_tokens": 500, "logprobs": "tokens"}
        config = configured(tmp_path, server, sampling=sampling, notify=["sh", "-c", "cat >> told.jsonl"])
        outputs = [typed("run", config, "--dry-run", "--run-dir", run).output]
        assert "***" in outputs[0] and "has no model" in outputs[0], outputs[0]
        result = typed("run", config, "--display", "plain", "--run-dir", run)
    outputs += [result.output]
    assert "ada" in (run / "results.json").read_text()
    for form in ("jsonl", "csv"):
        typed("export", run, "--format", form, "--output", tmp_path / f"out.{form}", code=0)
    events, answers = stored_events(run), [record.answer for record in stored_trials(run)]
    tokens = {answer.token_logprobs.tokens for answer in answers if answer.token_logprobs is not None}
    assert tokens == {("", "", "")}
    assert any("***" in repr(event) for event in events) and "***" in (tmp_path / "told.jsonl").read_text()
    assert_shows_no_piece([*outputs, repr(events), repr(answers), *files_in(tmp_path)])


def test_keys_of_others_are_removed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge is sent a key of its own, and two models at one gateway have two: either may come back anywhere."""
    other, run = "org-9f8e7d6c5b4a3z2y1x0w", tmp_path / "runs" / "run"
    monkeypatch.setenv("JUDGE_KEY", other)

    def cross(asked: Asked) -> Reply | None:
        text = f"{other} {asked.text}" if asked.model != "judge" else f"maybe {KEY} or {other}? " * 9
        return Reply(body=answer(asked, content=text))

    with listening(cross) as server:
        judge = {"base_url": server.base_url, "model": "judge", "api_key_env": "JUDGE_KEY"}
        grader = {"kind": "judge", "server": judge}
        config = configured(tmp_path, server, grader=grader, trials={"min": 2, "max": 2})
        result = typed("run", config, "--display", "plain", "--run-dir", run, code=ExitCode.ENDPOINTS)
    records = stored_trials(run)
    assert records and all(record.answer.text.startswith("*** ") for record in records)
    shown = [result.output, repr(records), *files_in(tmp_path)]
    assert_shows_no_piece(shown)
    assert_shows_no_piece(shown, other)
