"""Runs in the loop of uvloop equal those of asyncio."""

import asyncio
import json
from pathlib import Path

import pytest
from command_line import typed

from adaptive_eval.running import event_loop

CONFIG = """
questions: {world: coins}
grader: math
trials: {min: 2, max: 4, optimize: cost}  # which goes by no clock
models:
  - {name: coin-11, simulate: true}
  - {name: coin-01, simulate: true, stream: true}
  - {name: coin-05, simulate: true, client: openai}
"""


def run_once(folder: Path, name: str) -> dict[str, object]:
    """What a whole small run finds, without its times."""
    config = folder / "run.yaml"
    config.write_text(CONFIG)
    done = typed("run", config, "--run-dir", folder / name, "--display", "none")
    assert done.exit_code in (0, 3), done.output
    document = json.loads((folder / name / "results.json").read_bytes())
    return {key: document[key] for key in ("pairs", "looks", "decisions", "warnings")}


@pytest.mark.slow
def test_a_run_finds_the_same_in_either_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = pytest.importorskip("uvloop")
    loops: list[object] = []
    plain = uvloop.new_event_loop

    def watched() -> asyncio.AbstractEventLoop:
        loops.append(made := plain())
        return made

    monkeypatch.setattr(uvloop, "new_event_loop", watched)
    fast = run_once(tmp_path, "fast")
    assert len(loops) == 1
    monkeypatch.setattr(event_loop, "find_spec", lambda name: None)
    assert run_once(tmp_path, "plain") == fast
    assert len(loops) == 1
