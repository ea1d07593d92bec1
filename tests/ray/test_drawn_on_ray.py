"""Drawn questions (`trials.draw`) at sites of a Ray cluster: a life of a run, begun, killed, taken up, reported."""

import json
import sys
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, RunOutcome, Site, kill, wait_for_trials
from patient_time import HANGS
from raylets import Raylets
from typer.testing import CliRunner

from adaptive_eval.cli import app

pytestmark = pytest.mark.ray

SERVER = Path(__file__).parents[1] / "running" / "small_server.py"


def written(site: Site, *flags: str, **changes: object) -> Path:
    """Two hundred questions in blocks of fifty, and a server for each model."""
    rows = (
        {"id": f"q{number}", "prompt": f"What is 2 + {number}?", "answer": str(2 + number)} for number in range(200)
    )
    (site.folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-S", str(SERVER), "{port}", *flags, str(site.folder)]
    launch = {"command": command, "timeout": HANGS, "resources": {"CPU": 1}}
    settings: dict[str, object] = {
        "models": [{"name": name, "launch": launch} for name in MODELS],
        "questions": {"path": "questions.jsonl", "shuffle": True},
        "trials": {"min": 1, "max": 1, "draw": 50},
        "servers": {"sites": {"heartbeat_timeout": HANGS}},
    }
    return site.write(**(settings | changes))


def test_drawn_questions_are_the_same_at_sites_and_after_the_head_was_killed(site: Site, raylets: Raylets) -> None:
    at_home, at_sites = site.folder / "home", site.directory()
    assert site.run(written(site), "--run-dir", str(at_home)).exit_code in ENDED
    config = written(site, "held", concurrency=16)
    process = site.start(config, "--run-dir", str(at_sites), "--ray", raylets.address)
    assert wait_for_trials(at_sites, 30, process), process.communicate()
    kill(process)
    (site.folder / "go").touch()
    ended = site.run(config, "--ray", raylets.address)
    assert ended.exit_code in ENDED, ended.output
    assert RunOutcome.of(at_sites) == RunOutcome.of(at_home)
    for command in (["verify", str(at_sites)], ["compare", str(at_home), str(at_sites)]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    shown = CliRunner().invoke(app, ["report", str(at_sites), "--format", "md", "-o", "-"])
    assert "Questions were drawn at random, and scores estimate those on all questions" in shown.output
