"""Tasks of inspect_evals whose data come with the package, beside a server on this machine: `pytest -m harness`."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import typed
from live_runs import ENDED
from small_http import JsonHandler, ThreadedServer, serving_in_a_thread
from stored_runs import stored_header, stored_trials

pytestmark = pytest.mark.harness
pytest.importorskip("inspect_evals")

SKILLS = {"good": 0.9, "bad": 0.3}
GUARD = "```python\ndef CheckRule(*a):\n    return False, None\nprint('action {}')\n```"


def is_right(model: str, seed: int | None) -> bool:
    """Whether a trial is right, by its seed alone."""
    return random.Random(f"{model} {seed}").random() < SKILLS[model]


def reply_to(request: dict[str, Any]) -> dict[str, Any]:
    """What a model says: a judge knows a fine text, and a customer ends the conversation at once."""
    model, messages, last = request["model"], json.dumps(request["messages"]), request["messages"][-1]
    if model == "judge":
        return {"content": json.dumps({"score": 9 if "a fine text" in messages else 2})}
    if model == "customer":
        return {"content": "###STOP###"}
    right = is_right(model, request.get("seed"))
    if "memory_read" in json.dumps(request.get("tools")):
        if last["role"] == "tool":
            return {"content": last["content"] if right else "Nobody knows."}
        call = {"name": "memory_read", "arguments": json.dumps({"key": ""})}
        return {"content": "", "tool_calls": [{"id": "call-1", "type": "function", "function": call}]}
    if "CheckRule" in messages:
        return {"content": GUARD.format("granted" if right else "denied")}
    return {"content": "a fine text" if right else "no"}


class Handler(JsonHandler):
    def do_POST(self) -> None:
        request = self.asked()
        message = {"role": "assistant", **reply_to(request)}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
        response = {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"], "usage": usage}
        self.reply({**response, "choices": [choice]})


@pytest.fixture(autouse=True)
def _served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving_in_a_thread(ThreadedServer(Handler)) as server:
        monkeypatch.setenv("OWN_BASE_URL", server.base_url)
        monkeypatch.setenv("OWN_API_KEY", "none")
        yield


FINE = [{"name": "fine", "weight": 1.0, "when": {"score": {"at_least": 5}}}, {"name": "poor", "weight": 0.0}]
TASKS: dict[str, dict[str, Any]] = {
    "agent_threat_bench_memory_poison": {"benchmark": {"scorer": "agent_threat_bench_scorer.utility"}},
    "mind2web_sc": {"benchmark": {"sandbox": "local"}},
    "tau2_airline": {"benchmark": {"roles": {"user": "openai-api/own/customer"}}, "questions": {"limit": 1}},
    "writingbench": {"benchmark": {"args": {"judge_model": "openai-api/own/judge"}}, "rubric": {"categories": FINE}},
}
TOKENS = {"agent_threat_bench_memory_poison": 58, "mind2web_sc": 29, "tau2_airline": 29, "writingbench": 6 * 29}
"""Of a trial, by all models that it calls."""


LONG = {"tau2_airline": pytest.mark.release}  # a minute for eight conversations of a word


@pytest.mark.parametrize("task", [pytest.param(name, marks=LONG.get(name, ())) for name in TASKS])
def test_a_task_of_the_package_is_asked_and_graded_by_the_seeds_of_its_trials(task: str, tmp_path: Path) -> None:
    settings = {
        "models": [{"name": name, "inspect": f"openai-api/own/{name}"} for name in SKILLS],
        "questions": {"limit": 3},
        "trials": {"min": 4, "max": 4, "optimize": "cost"},
        "stopping": {"on_alarm": "never"},
        **TASKS[task],
        "benchmark": {"inspect": f"inspect_evals/{task}", **TASKS[task]["benchmark"]},
    }
    (path := tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    typed("run", path, "--run-dir", tmp_path / "run", "--display", "plain", code=ENDED)
    records, weights = stored_trials(tmp_path / "run"), [1, 0] if "rubric" in settings else [0, 1]
    keys = {name: str(body["answer"]) for name, body in stored_header(tmp_path / "run").questions.items()}
    assert len(records) == len(SKILLS) * len(keys) * 4
    for record in records:
        assert record.category is not None and record.cost.tokens == TOKENS[task], record
        right = is_right(record.model, record.answer.seed) and "DENY" not in keys[record.question]
        assert task == "tau2_airline" or weights[record.category] <= right, record
    counted = sum(weights[record.category or 0] for record in records)
    assert counted > len(records) // 4 or task == "tau2_airline"
