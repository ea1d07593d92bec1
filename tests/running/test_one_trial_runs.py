"""A run with one trial of each question says the same of a pair wherever it says something."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app

MODELS = [f"model-{number:02}" for number in range(1, 7)]


@pytest.mark.slow
def test_verdicts_matrix_and_tiers_of_other_rubrics_agree(tmp_path: Path) -> None:
    """Questions of mixed difficulty, which two independent variances would count twice."""
    config = {
        "questions": {"world": "many_questions", "limit": 400},
        "models": [{"name": name, "simulate": True} for name in MODELS],
        "prompt": "{prompt}\nPut your final answer within \\boxed{}.",
        "grader": "math",
        "trials": {"max": 1},
        "concurrency": 64,
    }
    path, run = tmp_path / "one.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(config))
    ended = CliRunner().invoke(app, ["run", str(path), "--run-dir", str(run), "--display", "plain"])
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.output
    report = CliRunner().invoke(app, ["report", str(run), "--format", "json", "--output", "-"])
    view = json.loads(report.stdout)["run"]
    names = [row["name"] for row in view["results"]["models"]]
    for pair in view["results"]["pairs"]:
        assert view["z"][names.index(pair["first"])][names.index(pair["second"])] == pytest.approx(pair["z"])
    called = sum(pair["verdict"] == "resolved" for pair in view["results"]["pairs"])
    rescoring = CliRunner().invoke(app, ["rescore", str(run), "--format", "json"])
    (rubric, *_) = json.loads(rescoring.stdout)["rescoring"]["rubrics"]
    rescored = {row["name"]: row["rank"] for row in rubric["models"]}
    assert rescored == {row["name"]: row["rank"] for row in view["results"]["models"]}
    assert max(row["tier"] for row in view["results"]["models"]) == 1 + called > 1
