"""Runs in the loop of uvloop equal those of asyncio."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import typed
from live_runs import ENDED

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


def run_once(folder: Path, name: str) -> list[object]:
    """What a whole small run finds, without its times."""
    config = folder / "run.yaml"
    config.write_text(CONFIG)
    done = typed("run", config, "--run-dir", folder / name, "--display", "none")
    assert done.exit_code in ENDED, done.output
    document = json.loads((folder / name / "results.json").read_bytes())
    return [document[key] for key in ("pairs", "looks", "decisions", "warnings")]


@pytest.mark.slow
def test_a_run_finds_the_same_in_either_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = pytest.importorskip("uvloop")
    made = Mock(side_effect=uvloop.new_event_loop)
    monkeypatch.setattr(uvloop, "new_event_loop", made)
    fast = run_once(tmp_path, "fast")
    assert made.call_count == 1
    monkeypatch.setattr(event_loop, "find_spec", lambda name: None)
    assert run_once(tmp_path, "plain") == fast
    assert made.call_count == 1
