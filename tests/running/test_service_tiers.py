"""Whole runs at a service tier that is often without capacity, and in the queue of a busy server."""

import json
from pathlib import Path

import pytest
from contrary_server import Asked, Reply, listening, write_config
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.endpoints import settings
from adaptive_eval.report.reader import RunReader

FULL = {"error": {"message": "Resource unavailable", "code": "resource_unavailable"}}
ROUNDS = {"trials": {"min": 2, "max": 4}, "stopping": {"confidence": 0.999999, "on_alarm": "never"}}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    short = settings.EndpointSettings(tick=0.02, backoff=0.001, longest_backoff=0.002, longest_wait=0.01)
    monkeypatch.setattr(settings, "DEFAULT", short)


def test_a_tier_without_capacity_costs_no_model_and_may_be_left_later(tmp_path: Path) -> None:
    bodies = []

    def script(asked: Asked) -> Reply | None:
        bodies.append(asked.body)
        is_full = asked.body.get("service_tier") == "flex" and asked.repeated < 7
        return Reply(429, FULL) if is_full else None

    run = tmp_path / "run"
    words = ["run", str(tmp_path / "run.yaml"), "--display", "plain", "--run-dir", str(run)]
    with listening(script) as server:
        models = [{"name": name, "base_url": server.base_url, "service_tier": "flex"} for name in ("ada", "bob")]
        limits = {"in_flight": 4, "attempts": 2, "retry_for": 0}
        write_config(tmp_path, server, models=models, concurrency=limits, budget={"trials": 24}, **ROUNDS)
        result = CliRunner().invoke(app, words)
        assert result.exit_code == ExitCode.SPENT, result.output
        tiers = {body.get("service_tier") for body in bodies}
        del models[0]["service_tier"]
        models[1] |= {"service_tier": "default", "priority": 5}  # type: ignore[dict-item]
        write_config(tmp_path, server, models=models, concurrency=limits, **ROUNDS)
        bodies.clear()
        again = CliRunner().invoke(app, words)
        assert again.exit_code in (ExitCode.REACHED, ExitCode.SPENT), again.output
    assert tiers == {"flex"}
    rows = json.loads((run / "results.json").read_text())["models"]
    assert [row["set_aside"] for row in rows] == [None, None] and [row["ungraded"] for row in rows] == [0, 0]
    sent = {(body["model"], body.get("service_tier"), body.get("priority")) for body in bodies}
    assert sent == {("ada", None, None), ("bob", "default", 5)}
    with RunReader.intact(run) as reader:
        assert {record.answer.attempts for record in reader.trials()} == {1, 8}
