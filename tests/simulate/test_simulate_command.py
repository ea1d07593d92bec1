"""`adaptive-eval simulate`: it serves until Ctrl-C and reports mistakes."""

import errno
import json
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import httpx2
import pytest
import typer
from command_line import typed
from patient_time import HANGS
from thoroughness import first_of

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli.simulate import _world_from_config
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.simulate.answering import Respondent
from adaptive_eval.simulate.server import SimulatedServer, serving


@pytest.mark.slow
def test_it_serves_until_ctrl_c_and_says_what_it_did() -> None:
    command = [sys.executable, "-m", "adaptive_eval", "simulate", "coins", "--port", "0"]
    with subprocess.Popen([*command, "--fault", "ignore_n"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://127\.0\.0\.1:\d+/v1", process.stdout.readline())
            assert match is not None
            body = {"model": "coin-01", "messages": [{"role": "user", "content": "[q1] Which?"}], "n": 2, "seed": 1}
            response = httpx2.post(match.group() + "/chat/completions", json=body, timeout=HANGS)
            assert len(response.json()["choices"]) == 1
            listed = httpx2.get(match.group() + "/models", timeout=HANGS).json()["data"]
            assert {"judge", "verifier"} <= {model["id"] for model in listed}
            process.send_signal(signal.SIGINT)
            output = process.stdout.read()
            process.wait(timeout=HANGS)
        finally:
            process.kill()
    assert "coin-11  73.3%" in output
    assert output.endswith("1 answered\n")
    assert process.returncode == 0


@pytest.mark.parametrize(
    "grader", first_of(["exact", "{kind: json, field: a}", "math", "{kind: regex, pattern: 'Answer: (.*)'}"], 2)
)
def test_a_simulated_configuration_knows_its_own_questions_alone(tmp_path: Path, grader: str) -> None:
    """Each answer gets the grade of its category; the answer to an unknown question says so."""
    rows = [{"id": f"q{at}", "prompt": f"What is {at} + 1?", "answer": str(at + 1)} for at in range(9)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = tmp_path / "mine.yaml"
    models = "models:\n" + "".join(f"  - {{name: {name}, base_url: 'http://x/v1'}}\n" for name in ("ada", "bob"))
    config.write_text(f"questions: {{path: mine.jsonl}}\n{models}prompt: '{{prompt}} So?'\ngrader: {grader}\n")
    (world, questions), prepared = _world_from_config(config), prepare(load_config(config))
    respondent, graded = Respondent(world, own=questions), Counter[bool]()
    assert world.models == ("ada", "bob") and questions is not None
    for question in prepared.questions:
        for seed in range(20):
            drawn = respondent.answer("ada", question.id, seed)
            marks = prepared.config.grader.grade(drawn.text, question)
            assert marks.signals["is_correct"] == bool(drawn.category)
            graded[bool(drawn.category)] += 1
    assert min(graded.values()) > 20
    with serving(SimulatedServer(world, own=questions)) as url:
        for prompt in ("What is 1 + 1? So?", "Say OK.", "What is 1 + 1?", "And now?"):
            body = {"model": "ada", "messages": [{"role": "user", "content": prompt}], "seed": 1}
            reply = httpx2.post(url + "/chat/completions", json=body, timeout=HANGS).json()
            answer = reply["choices"][0]["message"]["content"]
            assert ("answer only the exact prompts of your configuration" in answer) == (
                prompt[-3:] != "So?" and prompt[-1] == "?"
            )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["atlantis"], "WORLD must be one of coins"),
        (["coins", "--fault", "rest=0.1"], "unknown fault 'rest'"),
        (["coins", "--judge", "kind=1"], "unknown judge 'kind'; known are right, wrong"),
        (["coins", "--judge", "right=often"], "judge right needs a number, but got 'often'"),
        (["coins", "--judge", "mute=2"], "judge mute must be from 0 to 1"),
    ],
)
def test_mistakes_are_reported_with_a_remedy(arguments: list[str], why: str) -> None:
    assert why in typed("simulate", *arguments, code=2).stderr


def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = typed("simulate", "--port", other.getsockname()[1])
    assert result.exit_code == 2
    assert "give another --port" in result.stderr


def test_an_output_that_cannot_be_written_is_no_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(typer, "echo", fail)
    with pytest.raises(OSError, match="No space left on device"):
        typed("simulate", "--port", "0")


def test_a_file_of_questions_is_not_simulated(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": 1, "prompt": "1 + 1?", "answer": "2"}\n')
    assert "is a file of questions" in typed("simulate", path, code=ExitCode.CONFIGURATION).output
