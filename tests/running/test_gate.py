"""The gate of continuous integration: PASS, FAIL or UNDECIDED, with an exit code for each, in every report."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.report.view import read_view
from adaptive_eval.show.junit import junit

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


SCORE, POINTS = r"\d+\.\d%", r"\d+\.\d points"


def gate(folder: Path, build: str, gate: str, **changes: str) -> tuple[int, str]:
    path = folder / "gate.yaml"
    change = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    path.write_text(GATE.format(build=build, gate=gate))
    result = CliRunner().invoke(
        app, ["run", str(path), "--run-dir", str(folder / "run"), "--display", "plain", *change]
    )
    return result.exit_code, result.output


def test_the_comment_of_the_guide_s_workflow_links_to_the_report() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "continuous-integration.md").read_text("utf-8")
    workflow = yaml.safe_load(next(block for block in guide.split("```") if "runs-on" in block).partition("\n")[2])
    (script,) = (step["run"] for step in workflow["jobs"]["gate"]["steps"] if "--format pr" in step.get("run", ""))
    linked, link, comment = script.partition('/actions/runs/$GITHUB_RUN_ID#artifacts)" >> gate.md\n')
    assert link and "-o gate.md" in linked and "--body-file gate.md" in comment


@pytest.mark.slow
def test_a_worse_build_does_not_pass_and_every_report_says_so(tmp_path: Path) -> None:
    code, output = gate(tmp_path, "coin-01", "true")
    assert code == ExitCode.WORSE, output
    apart = rf"difference -{POINTS} \(95% interval -[\d.]+ to -[\d.]+\)"
    pattern = rf"^FAIL: build {SCORE}, production {SCORE}, {apart}; worse than"
    assert re.search(pattern, output, re.MULTILINE) and output.count("FAIL: ") == 1
    assert "to continue:" not in output
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["gate"]
    assert [(row["model"], row["baseline"], row["outcome"]) for row in rows] == [("build", "production", "FAIL")]
    assert report(tmp_path, "md").splitlines()[2].startswith("**FAIL: build ")
    assert report(tmp_path, "pr").startswith("**FAIL: build ")
    (case,) = ElementTree.fromstring(report(tmp_path, "junit")).iter("testcase")
    assert case.attrib == {"classname": "gate", "name": "build against production"}
    (failure,) = case
    assert failure.tag == "failure" and failure.attrib["message"] in output.splitlines()
    assert "production: 5" in (failure.text or "")
    code, output = gate(tmp_path, "coin-01", "true")
    assert code == ExitCode.WORSE and "this start requested nothing: for a new build, start over:\n" in output


def test_a_gate_without_a_look_is_undecided_in_one_sentence_everywhere(tmp_path: Path) -> None:
    _, output = gate(tmp_path, "coin-07", "true", **{"budget.trials": "100"})
    sentence = "UNDECIDED: no answers were requested: the budget does not cover the first round."
    for kind in ("md", "pr", "summary", "junit", "json", "html"):
        assert sentence in report(tmp_path, kind), kind
    assert sentence in output
    ended = replace(read_view(tmp_path / "run"), ended="UNDECIDED: a: no server\nb: no server")
    assert 'message="UNDECIDED: a: no server; b: no server"' in junit(ended)


def report(folder: Path, kind: str) -> str:
    result = CliRunner().invoke(app, ["report", str(folder / "run"), "--format", kind, "--output", "-"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "trials", "outcome", "code", "tag"),
    [
        (0.35, "80", "PASS", ExitCode.REACHED, "system-out"),
        (0.75, "80", "FAIL", ExitCode.WORSE, "failure"),
        (0.58, "5", "UNDECIDED", ExitCode.SPENT, "error"),
    ],
)
def test_a_gate_on_a_value_has_its_exit_code_and_every_report_says_why(
    tmp_path: Path, value: float, trials: str, outcome: str, code: ExitCode, tag: str
) -> None:
    """The build is right in about 53%."""
    objective = f"{{kind: threshold, value: {value}, gate: true}}"
    settings = yaml.safe_load(GATE.format(build="coin-08", gate="true"))
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(settings | {"models": settings["models"][1:], "objective": {"kind": "ranking"}}))
    words = ["run", str(path), "--run-dir", str(tmp_path / "run"), "--display", "plain"]
    ended = CliRunner().invoke(app, [*words, "--set", f"objective={objective}", "--set", f"trials.max={trials}"])
    assert ended.exit_code == code, ended.output
    allowed = "-5 points allowed; " if outcome == "UNDECIDED" else ""
    apart = rf"difference -?{POINTS} \({allowed}95% interval -?[\d.]+ to -?[\d.]+\)"
    why = {"PASS": "not below", "FAIL": "below"}.get(outcome, "the remaining trials")
    (line,) = re.findall(rf"^{outcome}: build {SCORE}, value {value:.1%}, {apart}; {why}.*\.$", ended.output, re.M)
    (row,) = json.loads((tmp_path / "run" / "results.json").read_text())["gate"]
    assert (row["model"], row["baseline"], row["outcome"]) == ("build", None, outcome)
    assert f"**{line}**" in report(tmp_path, "md")
    (case,) = ElementTree.fromstring(report(tmp_path, "junit")).iter("testcase")
    assert case.attrib == {"classname": "gate", "name": f"build against {value:.1%}"}
    (result,) = case
    assert result.tag == tag and line in (result.attrib.get("message") or str(result.text))


def test_a_gate_needs_a_baseline_or_a_value(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(
        GATE.format(build="coin-11", gate="true").replace("kind: baseline, baseline: production", "kind: best")
    )
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == ExitCode.CONFIGURATION
    assert "objective.gate is only for the objectives baseline and threshold" in result.output
