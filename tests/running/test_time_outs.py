"""A missing answer is not a wrong one: whole runs against servers that hang, or end answers for unknown reasons."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from patient_time import HANGS
from small_http import JsonHandler, ThreadedServer, completion, model_list, serving_in_a_thread
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.core.types import Cause
from adaptive_eval.endpoints.client import Caller, Reply, converted_failures
from adaptive_eval.endpoints.traffic import Attempt
from adaptive_eval.notes import ModelSetAside, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.stored import StoredRun

QUESTIONS = 8
SOON = 0.2


class Hanging(ThreadedServer):
    """A server that answers for all models except the silent; skilled models are right, others rarely."""

    def __init__(self) -> None:
        self.silent = {"bob"}
        self.skilled = {"ada"}
        self.reason = "stop"
        self.late: Callable[[str, int], bool] = lambda model, seed: False
        """Further requests that it does not answer."""
        self.released = threading.Event()
        super().__init__(Handler)

    def hangs(self, asked: Mapping[str, Any]) -> bool:
        """Whether it never answers this."""
        return asked["model"] in self.silent or self.late(asked["model"], asked["seed"])


class Handler(JsonHandler):
    server: Hanging

    def do_GET(self) -> None:
        self.reply(model_list("ada", "bob"))

    def do_POST(self) -> None:
        asked = self.asked()
        model, seed = asked["model"], asked["seed"]
        if self.server.hangs(asked):
            self.server.released.wait(HANGS)
            self.close_connection = True
            return
        text = "The answer is 7." if model in self.server.skilled or seed % 8 == 0 else "The answer is 1."
        with suppress(ConnectionError):  # a run that has ended does not wait for it
            self.reply(completion(text, self.server.reason))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, set_attempts: Callable[[int], None]) -> Iterator[Hanging]:
    """It, and a client that waits long for all but what will never come: no test depends on the clock."""
    set_attempts(1)
    send = Caller.send

    async def patient_send(
        self: Caller, base_url: str, body: Mapping[str, object], attempt: Attempt | None = None
    ) -> Reply:
        limit = SOON if listening.hangs(body) else HANGS
        with converted_failures(self.redactor, limit):
            async with asyncio.timeout(limit):
                return await send(self, base_url, body, attempt)

    monkeypatch.setattr(Caller, "send", patient_send)
    with serving_in_a_thread(Hanging()) as listening:
        yield listening
        listening.released.set()


def run(folder: Path, server: Hanging, *options: str, **changes: object) -> tuple[int, str]:
    """Ada and bob, who may not take long; ada may."""
    rows = [json.dumps({"id": f"q{i}", "prompt": f"{i}?", "answer": "7"}) for i in range(QUESTIONS)]
    (folder / "questions.jsonl").write_text("\n".join(rows))
    settings: dict[str, Any] = {
        "questions": "questions.jsonl",
        "models": [
            {"name": "ada", "base_url": server.base_url},
            {"name": "bob", "base_url": server.base_url, "sampling": {"timeout": HANGS}},
        ],
        "grader": "numeric",
        "trials": {"min": 4, "max": 8, "optimize": "cost"},
        "concurrency": 64,
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    where = ["--run-dir", str(folder / "run"), "--display", "plain"]
    done = CliRunner().invoke(app, ["run", str(path), *where, *options])
    return done.exit_code, done.output


def results(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / "run" / "results.json").read_text())
    assert isinstance(document, dict)
    return document


GATE = {"kind": "baseline", "baseline": "ada", "gate": True}


@pytest.mark.parametrize("changes", [{}, {"objective": GATE}], ids=["ranking", "gate"])
def test_a_server_that_answers_nothing_has_no_score(
    tmp_path: Path, server: Hanging, changes: dict[str, object]
) -> None:
    code, output = run(tmp_path, server, **changes)
    assert code == ExitCode.ENDPOINTS, output
    assert "sampling.timeout" in output and "worse" not in output
    bob = next(row for row in results(tmp_path)["models"] if row["name"] == "bob")
    assert (bob["score"], bob["trials"], bob["lowest"]) == (None, 0, None)
    assert "32 of the 32 requests of a round timed out" in bob["set_aside"]
    (pair,) = results(tmp_path)["pairs"]
    assert pair["verdict"] == "blocked"
    with closing(RunReader.open(tmp_path / "run")) as reader:
        (aside,) = events_of_kind(reader.events(), ModelSetAside)
        assert aside.cause == Cause.SERVER
        restored = StoredRun(reader).results(running=False)
        assert restored is not None
        assert [(row.name, row.score) for row in restored.models] == [("ada", 1.0), ("bob", None)]


def test_a_repaired_server_is_asked_again(tmp_path: Path, server: Hanging) -> None:
    assert run(tmp_path, server)[0] == ExitCode.ENDPOINTS
    server.silent.clear()
    models = [{"name": name, "base_url": server.base_url} for name in ("ada", "bob")]
    code, output = run(tmp_path, server, models=models)
    assert code == ExitCode.REACHED, output
    document = results(tmp_path)
    assert [(row["name"], row["signals"]) for row in document["models"]] == [("ada", {}), ("bob", {})]
    assert "asked_again" in {warning["kind"] for warning in document["warnings"]}


def test_a_few_time_outs_are_answers_and_bounded(tmp_path: Path, server: Hanging) -> None:
    server.silent.clear()
    server.late = lambda model, seed: model == "bob" and seed % 4 == 1
    code, output = run(tmp_path, server)
    assert code == ExitCode.REACHED, output
    bob = next(row for row in results(tmp_path)["models"] if row["name"] == "bob")
    assert bob["signals"]["timed_out"] > 0
    assert bob["lowest"] == pytest.approx(bob["score"])
    assert bob["score"] < bob["highest"] <= bob["score"] + bob["signals"]["timed_out"] / bob["trials"]
    (warning,) = [warning for warning in results(tmp_path)["warnings"] if warning["kind"] == "unknown"]
    assert f"{bob['highest']:.2%} if right" in warning["text"]


@pytest.mark.slow
def test_an_unknown_finish_reason_stops_the_run_before_it_spends(tmp_path: Path, server: Hanging) -> None:
    """The dry run names it too, with the option that declares it as finished."""
    server.silent.clear()
    server.reason = "flux_capacitor"
    names = {"models": [{"name": name, "base_url": server.base_url} for name in ("ada", "bob")]}
    for options in ((), ("--dry-run",)):
        code, output = run(tmp_path, server, *options, **names)
        assert code == ExitCode.ENDPOINTS, output
        assert "finish_reasons: [flux_capacitor]" in output
    with closing(RunReader.open(tmp_path / "run")) as reader:
        assert reader.trial_count() == 0
    declared = {"models": [{**model, "finish_reasons": ["flux_capacitor"]} for model in names["models"]]}
    code, output = run(tmp_path, server, **declared)
    assert code == ExitCode.REACHED, output
