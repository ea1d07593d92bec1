"""The experiments of the paper, in small: each script runs, and what the paper prints comes out."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[1] / "benchmarks" / "paper"


def run_quickly(name: str, folder: Path, *arguments: str) -> tuple[str, list[dict[str, object]]]:
    """The output of a script, and its checks."""
    words = [sys.executable, str(SCRIPTS / name), "--quick", "--json", str(folder / "checks.json"), *arguments]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "checks.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in SCRIPTS.glob("*.py")))
def test_a_script_runs_quickly_and_no_goal_is_missed(name: str, tmp_path: Path) -> None:
    text, checks = run_quickly(name, tmp_path)
    assert "| check" in text and checks
    assert not [check for check in checks if check["holds"] is False]


@pytest.mark.slow
def test_convergence_reads_recorded_trials_and_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    outcomes = (rng.random((6, 10, 20)) < np.linspace(0.2, 0.8, 6)[:, None, None]).astype(np.int8)
    np.savez(tmp_path / "six.npz", R=outcomes)
    np.savez(tmp_path / "counted.npz", correct=outcomes.sum(axis=2), count=np.full((6, 10), 20))
    text, _ = run_quickly("convergence.py", tmp_path, str(tmp_path / "six.npz"), str(tmp_path / "counted.npz"))
    assert "six: 6 models, 10 questions, 20 trials" in text and "counted: 6 models, 10 questions, 20 trials" in text
