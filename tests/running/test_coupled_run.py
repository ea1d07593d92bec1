"""`trials.seeds: coupled` over HTTP: near copies on servers that draw by the seed, killed, resumed and extended."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_runs import ENDED, FAST, Found, Site, kill, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.seeds import SHARED, hashed_base
from adaptive_eval.cli import app
from adaptive_eval.record.view import read_view
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import copies
from adaptive_eval.store import RunReader

OVER = ENDED | {ExitCode.WORSE}
"""One of the copies is worse, or it is not known yet."""
WORLD = replace(copies(questions=20), latency=FAST)
GATE: dict[str, object] = {
    "objective": {"kind": "baseline", "baseline": "original", "gate": True},
    "stopping": {"delta": 0.04},
    "trials": {"min": 4, "max": 60, "seeds": "coupled"},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SimulatedServer(WORLD)) as url:
        yield url


@pytest.fixture
def coupled(tmp_path: Path, url: str) -> Site:
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(WORLD)))
    return Site(tmp_path, url)


def write(site: Site, name: str = "run", names: tuple[str, ...] = ("original", "int8"), **changes: object) -> Path:
    models = [{"name": one, "base_url": site.base_url} for one in names]
    return site.write(name, **(GATE | {"models": models} | changes))


def trials(directory: Path) -> int:
    with closing(RunReader.open(directory)) as reader:
        return reader.trial_count()


def results(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "results.json").read_text())
    return found


def test_a_copy_passes_its_gate_for_a_fraction_of_the_trials(coupled: Site) -> None:
    paired = coupled.directory("paired")
    done = coupled.run(write(coupled), "--run-dir", str(paired))
    assert done.exit_code == ExitCode.REACHED
    assert trials(paired) < 0.4 * 2 * 20 * 60  # of what would be asked for at most, and with other seeds is
    (pair,) = results(paired)["pairs"]
    assert (pair["better"], pair["verdict"], pair["by_trial"]) == ("int8", "resolved", True)
    with closing(RunReader.open(paired)) as reader:
        seeds = {(one.question, one.trial): one.answer.seed for one in reader.trials() if one.model == "int8"}
    for (question, trial), seed in seeds.items():
        assert seed == (hashed_base(0, SHARED, question) + trial) % 2**31
    report = CliRunner().invoke(app, ["report", str(paired), "--format", "md", "--output", "-"]).output
    assert "compared trial by trial, which takes" in report
    (told,) = read_view(paired).by_trial
    assert told.startswith("int8 and original are compared trial by trial, which takes 0.")
    assert told[len("int8 and original are ") : -1] in report


@pytest.mark.slow
def test_kills_and_another_horizon_change_no_decision(coupled: Site) -> None:
    straight, killed = coupled.directory("straight"), coupled.directory("killed")
    names = ("original", "int6", "int4")
    first, then = ({"trials": {"min": 4, "max": most, "seeds": "coupled"}} for most in (12, 40))
    for changes in (first, then):
        assert coupled.run(write(coupled, "straight", names, **changes), "--run-dir", str(straight)).exit_code in OVER
    config = write(coupled, "killed", names, **first)
    for goal in (60, 330):
        process = coupled.start(config, "--run-dir", str(killed))
        wait_for_trials(killed, goal, process)
        kill(process)
    for changes in (first, then):
        config = write(coupled, "killed", names, **changes)
        assert coupled.run(config, "--run-dir", str(killed)).exit_code in OVER
    assert Found.of(killed) == Found.of(straight)
    assert [pair["by_trial"] for pair in results(killed)["pairs"]] == [True, True]
    assert CliRunner().invoke(app, ["verify", str(killed)]).exit_code == 0
