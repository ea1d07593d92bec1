"""The gate of continuous integration: a build that is worse than the baseline has an exit code of its own."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.errors import ExitCode

GATE = """
questions: {{world: coins}}
models:
  - {{name: production, model: coin-08, simulate: true}}   # 0.53
  - {{name: build, model: {build}, simulate: true}}
prompt: |-
  {{prompt}}
  Put your final answer within \\boxed{{}}.
grader: math
objective: {{kind: baseline, baseline: production, gate: {gate}}}
stopping: {{delta: 5%}}
trials: {{min: 4, max: 80}}
concurrency: 64
"""


def gate(folder: Path, build: str, gate: str) -> tuple[int, str]:
    path = folder / "gate.yaml"
    path.write_text(GATE.format(build=build, gate=gate))
    result = CliRunner().invoke(app, ["run", str(path), "--run-dir", str(folder / "run"), "--display", "plain"])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("build", "gated", "code"),
    [
        ("coin-01", "true", ExitCode.WORSE),
        ("coin-01", "false", ExitCode.REACHED),
        ("coin-11", "true", ExitCode.REACHED),
    ],
)
def test_a_worse_build_does_not_pass(tmp_path: Path, build: str, gated: str, code: ExitCode) -> None:
    found, output = gate(tmp_path, build, gated)
    assert found == code, output
    assert ("worse than production: build" in output) == (code is ExitCode.WORSE)
    assert "continue  " not in output


def test_a_gate_needs_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(
        GATE.format(build="coin-11", gate="true").replace("kind: baseline, baseline: production", "kind: best")
    )
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == ExitCode.CONFIGURATION
    assert "objective.gate is only for the objective baseline" in result.output
