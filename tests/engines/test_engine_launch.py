"""(d) Servers that the run starts itself: vLLM and llama-server in turn on one place, and one that is killed."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_runs import Finished, Workplace, true_score
from engine_servers import VLLM_ENVIRONMENT, VLLM_PYTHON, descendants, llama, require, title
from family import checkpoints, weights
from to_gguf import convert

from adaptive_eval.notes import ServerDied, ServerLaunched

pytestmark = pytest.mark.engine

FLAGS = {"dtype": "float32", "max-model-len": 32, "enforce-eager": True, "kv-cache-memory-bytes": "32M"}
SERVE = """#!/bin/sh
# vLLM's command line looks for a distribution of another name than the one for CPUs has
shift
exec {python} -m vllm.entrypoints.openai.api_server --model "$@"
"""


@pytest.fixture
def vllm_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program `vllm`, as a user has it."""
    require(VLLM_PYTHON)
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text(SERVE.format(python=VLLM_PYTHON))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """The processes that are there before a test are those that are there after it."""
    before = set(descendants(os.getpid()))
    yield
    assert not set(descendants(os.getpid())) - before


def with_vllm(name: str, **launch: object) -> dict[str, object]:
    section = {"flags": FLAGS, "env": VLLM_ENVIRONMENT, **launch}
    return {"name": name, "model": str(checkpoints()[name]), "launch": section}


def with_llama(name: str, folder: Path, **launch: object) -> dict[str, object]:
    server = llama(convert(checkpoints()[name], folder / f"{name}.gguf"), folder / "unused.log")
    command = ["{port}" if word == str(server.port) else word for word in server.command]
    return {"name": name, "launch": {"command": command, **launch}}


def test_vllm_and_llama_server_take_turns(workplace: Workplace, vllm_on_the_path: None) -> None:
    names = sorted(checkpoints())[:3]
    models = [with_vllm(names[0]), with_llama(names[1], workplace.folder)]
    models.append(with_vllm(names[2]))
    run = workplace.run(workplace.configure("turns", models, pool=[0], trials={"min": 8, "max": 8}), accepted=(0, 3))
    served = {row["model"]: row for row in run.results["servers"]}
    assert [row["starts"] for row in served.values()] == [1, 1, 1]
    assert re.match(r"0\.\d+", served[names[0]]["version"])
    assert re.match(r"b\d+", served[names[1]]["version"]), "the build of llama.cpp"
    assert served[names[2]]["command"][:2] == ["vllm", "serve"]
    for row in run.results["models"]:
        exact, slack = true_score(weights(row["name"]))
        assert exact - 4 * row["sigma"] <= row["score"] <= exact + slack + 4 * row["sigma"], row


def test_a_server_whose_worker_is_killed_is_started_again(workplace: Workplace, vllm_on_the_path: None) -> None:
    name = sorted(checkpoints())[0]
    settings = {"trials": {"min": 60, "max": 60}, "objective": {"kind": "precision", "half_width": 0.001}}
    disturbed = workplace.configure("disturbed", [with_vllm(name)], **settings)
    process = workplace.start(disturbed)
    workplace.await_trials(disturbed, 300, process)
    (worker,) = [pid for pid in descendants(process.pid) if title(pid).startswith("VLLM::Worker")]
    os.kill(worker, signal.SIGKILL)
    finished = workplace.finish(disturbed, process, accepted=(0, 3))
    assert finished.events.count(ServerDied.KIND) == 1 and finished.events.count(ServerLaunched.KIND) == 2
    assert len(finished.records) == 30 * 60
    undisturbed = workplace.run(workplace.configure("undisturbed", [with_vllm(name)], **settings), accepted=(0, 3))
    assert _answers(finished) == _answers(undisturbed)


def _answers(run: Finished) -> object:
    return run.outcomes, run.looks
