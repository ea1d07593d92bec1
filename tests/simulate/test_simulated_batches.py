"""The simulated batch service: its states, and its answers to invalid calls."""

from typing import Any

import orjson
import pytest
from live_runs import small_world
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli import app
from adaptive_eval.simulate.answering import Respondent
from adaptive_eval.simulate.api import Api
from adaptive_eval.simulate.faults import BatchHabits, Faults, parse_habits

pytestmark = pytest.mark.patient(settle=0.0)  # nothing goes through sockets


class Clocked:
    """The service at a time set by the test."""

    def __init__(self, **habits: float) -> None:
        self.now = 0.0
        self.api = Api(Respondent(small_world()), Faults(), lambda: self.now, habits=BatchHabits(**habits))  # type: ignore[arg-type]

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        reply = self.api.handle(method, path, raw)
        return reply.status, orjson.loads(reply.parts[0][1])

    def batch(self, number: int = 4) -> str:
        """A batch of so many requests."""
        lines = (
            {"custom_id": f"r{seed}", "body": {"model": "ada", "messages": [{"content": "[q1]"}], "seed": seed}}
            for seed in range(number)
        )
        part = b'--b\r\nContent-Disposition: form-data; filename="f"\r\n\r\n%b\r\n--b--\r\n'
        file = self.call("POST", "/v1/files", part % b"\n".join(map(orjson.dumps, lines)))[1]["id"]
        request = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        status, reply = self.call("POST", "/v1/batches", request)
        assert status == 200
        return str(reply["id"])

    def results(self, name: str) -> list[dict[str, Any]]:
        """What the batch has answered."""
        file = self.call("GET", f"/v1/batches/{name}")[1]["output_file_id"]
        reply = self.api.handle("GET", f"/v1/files/{file}/content", b"")
        return [orjson.loads(line) for line in reply.parts[0][1].splitlines()]


def test_invalid_batch_calls_are_refused_with_a_reason() -> None:
    service = Clocked(seconds=100.0)
    assert service.call("GET", "/v1/batches/none")[0] == 404
    assert service.call("GET", "/v1/messages/batches/none/results")[0] == 404
    for path, body in (
        ("/v1/batches", {"input_file_id": "none", "completion_window": "24h"}),
        ("/v1/batches", b"{"),
        ("/v1/messages/batches", {"requests": [{"custom_id": "a", "params": {"seed": 1, "max_tokens": 4}}]}),
        ("/v1/messages/batches", {"requests": [{"custom_id": "a", "params": {"messages": []}}]}),
    ):
        assert service.call("POST", path, body)[0] == 400


def test_batch_habits_are_parsed_and_unknown_ones_refused() -> None:
    assert parse_habits(["seconds=20", "expired=0.5"]) == BatchHabits(seconds=20.0, expired=0.5)
    for text, why in (
        ("haste=1", "known are seconds"),
        ("expired=often", "needs a number"),
        ("expired=2", "from 0 to 1"),
    ):
        with pytest.raises(ConfigError, match=why):
            parse_habits([text])
    result = CliRunner().invoke(app, ["simulate", "coins", "--batch", "haste=1"])
    assert result.exit_code == 2 and "unknown batch 'haste'" in result.stderr
