"""A server that reports cached tokens: what its answers cost, and where that is shown."""

import json
from pathlib import Path

import pytest
from contrary_server import Asked, Reply, answer, listening, write_config
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.view import read_view

PRICE = {"input": 1000, "cached_input": 250, "output": 1000}


def script(asked: Asked) -> Reply:
    """Of five prompt tokens ada's server has four in its cache; bob's says that all of a million were."""
    body = answer(asked)
    body["usage"]["prompt_tokens_details"] = {"cached_tokens": 4 if asked.model == "ada" else 1_000_000}
    return Reply(body=body)


def test_cached_tokens_are_counted_at_their_price_and_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with listening(script) as server:
        models = [{"name": name, "base_url": server.base_url, "price": PRICE} for name in ("ada", "bob")]
        sampling = {"max_tokens": 5}
        config = write_config(tmp_path, server, models=models, sampling=sampling)
        result = CliRunner().invoke(app, ["run", str(config), "--display", "plain", "--run-dir", str(run)])
    assert result.exit_code in (ExitCode.REACHED, ExitCode.SPENT), result.output
    with RunReader.intact(run) as reader:
        records = list(reader.trials())
    assert {(record.model, record.answer.cached_tokens) for record in records} == {("ada", 4), ("bob", 0)}
    usd = {record.model: record.cost.usd for record in records}
    assert usd == {"ada": pytest.approx(0.006), "bob": pytest.approx(0.009)}
    rows = {row["name"]: row for row in json.loads((run / "results.json").read_text())["models"]}
    assert rows["ada"]["usd"] == pytest.approx(24 * 0.006) and rows["bob"]["usd"] == pytest.approx(24 * 0.009)
    traffic = {row.model: (row.prompt_tokens, row.cached_tokens) for row in read_view(run).traffic}
    assert traffic == {"ada": (120, 96), "bob": (120, 0)}
