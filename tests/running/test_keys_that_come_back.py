"""A server that hands the key back in everything that it says: it is graded, stored nowhere, and shown nowhere."""

from base64 import b64encode
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from contrary_server import Asked, Said, answer, listening, write_config
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.store import RunReader

KEY = "sk/a1b2c3d4+e5f6g7h8i9j0k1l2m3n4o5p6"


def echo(asked: Asked) -> Said | None:
    key = asked.headers["Authorization"].removeprefix("Bearer ")
    said = (key, b64encode(f"{asked.seed}:{key}:7".encode()).decode(), quote(key, safe=""))[asked.seed % 3]
    if asked.number == 3 and asked.model == "bob":
        return Said(500, b" " * 4080 + key.encode())
    text = f"I was sent {said}. {asked.text}"
    body = answer(asked, content=text, reasoning_content=f"I was sent {said} and say {key[:20]}")
    return Said(body={**body, "model": f"{asked.model}-{key}"})


def test_a_key_is_graded_stored_nowhere_and_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)
    runner, run = CliRunner(), tmp_path / "runs" / "run"
    with listening(echo) as server:
        models = [{"name": name, "base_url": server.base_url, "api_key_env": "THE_KEY"} for name in ("ada", "bob")]
        config = write_config(tmp_path, server, models=models)
        told = runner.invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(run)])
        assert told.exit_code == ExitCode.REACHED, told.output
        tried = runner.invoke(app, ["run", str(config), "--dry-run", "--run-dir", str(tmp_path / "other")])
        assert "***" in tried.output
    with closing(RunReader.open(run)) as reader:
        records, events = list(reader.trials()), list(reader.events())
        outcomes = list(reader.outcomes())
    assert len(records) == 48
    for record in records:
        right = (record.answer.seed % 8 == 0) is (record.model == "bob")
        assert record.category == int(right), record
        assert "***" in record.answer.text and "***" in (record.answer.reasoning or "")
    assert all(one.digest == record.outcome().digest for one, record in zip(outcomes, records, strict=True))
    shown = [told.output, tried.output, repr(records), repr(events)]
    shown += [path.read_bytes().decode("latin-1") for path in run.rglob("*") if path.is_file()]
    for form in ("html", "md", "json", "csv"):
        out = tmp_path / f"report.{form}"
        runner.invoke(app, ["report", str(run), "--format", form, "--output", str(out)])
        shown += [out.read_text()] if out.exists() else []
    assert len(shown) > 7
    forms = (KEY, quote(KEY, safe=""), *(b64encode(bytes(n) + KEY.encode()).decode()[4:-4] for n in range(3)))
    for form in forms:
        for piece in (form[at : at + 20] for at in range(len(form) - 20)):
            assert not [text for text in shown if piece in text], piece
    assert runner.invoke(app, ["verify", str(run)]).exit_code == 0
    again = runner.invoke(app, ["regrade", str(run)])
    assert again.exit_code == 0, again.output
    assert "***" not in again.output
