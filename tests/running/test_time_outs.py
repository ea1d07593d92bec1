"""A missing answer is not a wrong one: whole runs against servers that hang, or end answers for unknown reasons."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import typed
from live_runs import models_at
from patient_time import HANGS
from small_http import JsonHandler, ThreadedServer, completion, model_list, serving_in_a_thread
from stored_runs import events_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.core.types import Cause
from adaptive_eval.endpoints.client import Caller, Reply, converted_failures
from adaptive_eval.endpoints.traffic import Attempt
from adaptive_eval.notes import ModelSetAside
from adaptive_eval.report.stored import open_run

QUESTIONS = 8
SOON = 0.2


class Hanging(ThreadedServer):
    """A server that answers for all models except the silent; skilled models are right, others rarely."""

    def __init__(self) -> None:
        self.silent = {"bob"}
        self.skilled = {"ada"}
        self.late: Callable[[str, str], bool] = lambda model, question: False
        """Further requests that it does not answer, by model and question."""
        self.is_right: Callable[[str, str, int], bool] = lambda model, question, seed: (
            model in self.skilled or seed % 8 == 0
        )
        """Whether an answer is right, by model, question and seed."""
        self.released = threading.Event()
        super().__init__(Handler)

    def hangs(self, asked: Mapping[str, Any]) -> bool:
        """Whether it never answers this."""
        return asked["model"] in self.silent or self.late(asked["model"], asked["messages"][-1]["content"])


class Handler(JsonHandler):
    server: Hanging

    def do_GET(self) -> None:
        self.reply(model_list("ada", "bob"))

    def do_POST(self) -> None:
        asked = self.asked()
        place = asked["model"], asked["messages"][-1]["content"], asked["seed"]
        if self.server.hangs(asked):
            self.server.released.wait(HANGS)
            self.close_connection = True
            return
        text = "The answer is 7." if self.server.is_right(*place) else "The answer is 1."
        with suppress(ConnectionError):  # a run that has ended does not wait for it
            self.reply(completion(text))


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


def write(folder: Path, server: Hanging, questions_asked: int = QUESTIONS, **changes: object) -> Path:
    """The configuration of a run of ada and bob, who may not take long; ada may."""
    rows = [json.dumps({"id": f"q{i}", "prompt": f"{i}?", "answer": "7"}) for i in range(questions_asked)]
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
    return path


def run(folder: Path, server: Hanging, *options: str, **changes: Any) -> tuple[int, str]:
    path = write(folder, server, **changes)
    done = typed("run", path, "--run-dir", folder / "run", "--display", "plain", *options)
    return done.exit_code, done.output


def results(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run" / "results.json").read_text()))


GATE = {"kind": "baseline", "baseline": "ada", "gate": True}


@pytest.mark.parametrize("changes", [{}, {"objective": GATE}], ids=["ranking", "gate"])
def test_a_silent_model_has_no_score_until_mended(tmp_path: Path, server: Hanging, changes: dict[str, object]) -> None:
    code, output = run(tmp_path, server, **changes)
    assert code == ExitCode.ENDPOINTS, output
    assert "sampling.timeout" in output and "worse" not in output
    bob = next(row for row in results(tmp_path)["models"] if row["name"] == "bob")
    assert (bob["score"], bob["trials"], bob["lowest"]) == (None, 0, None)
    assert "32 of the 32 requests of a round timed out" in bob["set_aside"]
    (pair,) = results(tmp_path)["pairs"]
    assert pair["verdict"] == "blocked"
    (aside,) = events_in(tmp_path / "run", ModelSetAside)
    assert aside.cause == Cause.SERVER
    with open_run(tmp_path / "run") as stored:
        restored = stored.results(running=False)
    assert restored is not None
    assert [(row.name, row.score) for row in restored.models] == [("ada", 1.0), ("bob", None)]
    server.silent.clear()
    code, output = run(tmp_path, server, models=models_at(server.base_url, "ada", "bob"), **changes)
    assert code == (ExitCode.WORSE if changes else ExitCode.REACHED), output
    document = results(tmp_path)
    assert [(row["name"], row["signals"]) for row in document["models"]] == [("ada", {}), ("bob", {})]
    assert "asked_again" in {warning["kind"] for warning in document["warnings"]}


NAMED = {
    "categories": [
        {"name": "late", "weight": 0, "when": {"timed_out": True}},
        {"name": "right", "weight": 1, "when": {"is_correct": True}},
        {"name": "wrong", "weight": 0},
    ]
}


def test_a_better_model_that_times_out_on_a_question_is_not_called_worse(tmp_path: Path, server: Hanging) -> None:
    """Bob is always right, but slow on one question; ada is quick, and wrong in half of its answers to another one."""
    server.silent.clear()
    server.is_right = lambda model, question, seed: (model, question) != ("ada", "1?") or seed % 2 == 0
    server.late = lambda model, question: (model, question) == ("bob", "2?")
    settings = {"trials": {"min": 8, "max": 48, "optimize": "cost"}, "questions_asked": 16}
    code, output = run(tmp_path, server, **settings)
    assert code == ExitCode.SPENT and "better than" not in output and "worse than" not in output, output
    (pair,) = results(tmp_path)["pairs"]
    assert pair["verdict"] == "blocked" and not results(tmp_path)["alarms"]
    assert "needs complete answers instead of incomplete ones of bob" in output
    assert "(use a longer sampling.timeout), start over" in output
    bob = next(row for row in results(tmp_path)["models"] if row["name"] == "bob")
    assert bob["unsure"] == bob["signals"]["timed_out"] > 0
    assert (bob["score"], bob["lowest"], bob["highest"]) == pytest.approx((15 / 16, 15 / 16, 1.0))
    (warning,) = [warning["text"] for warning in results(tmp_path)["warnings"] if warning["kind"] == "unknown"]
    assert "timed out at every attempt; the score would be 93.75% if all of them were wrong, 100.00% if r" in warning
    config = write(tmp_path, server, rubric=NAMED, **settings)
    assert typed("regrade", tmp_path / "run", "--config", config).exit_code == 0
    code, output = run(tmp_path, server, rubric=NAMED, **settings)
    assert code == ExitCode.REACHED and "ada is best" in output, output
    server.late = lambda model, question: False
    (tmp_path / "new").mkdir()
    code, output = run(tmp_path / "new", server, **settings, sampling={"timeout": HANGS})
    assert code == ExitCode.REACHED and "bob is best" in output, output


def test_many_time_outs_end_the_run_by_an_alarm(tmp_path: Path, server: Hanging) -> None:
    server.silent.clear()
    server.late = lambda model, question: model == "bob" and question in ("2?", "5?")
    code, output = run(tmp_path, server)
    assert code == ExitCode.SPENT and "better than" not in output, output
    (alarm,) = results(tmp_path)["alarms"]
    assert (alarm["model"], alarm["kind"], alarm["answers"], alarm["of"]) == ("bob", "timed_out", 8, 32)
    assert "bob: 8 of its 32 answers (25%) timed out at every attempt" in output
