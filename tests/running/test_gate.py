"""The gate of continuous integration: PASS, FAIL or UNDECIDED, with an exit code for each, in every report."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from live_runs import trials_in
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.core import Reason
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.next_steps import next_steps
from adaptive_eval.report.results_file import read_results
from adaptive_eval.show.serve.folder import RunsFolder

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


@pytest.mark.release
def test_a_baseline_is_recorded_as_the_guide_says_and_the_gate_asks_the_build_alone(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "continuous-integration.md").read_text("utf-8")
    recipe = next(block for block in guide.split("```") if "half_width" in block)
    settings = yaml.safe_load(GATE.format(build="coin-01", gate="true"))
    alone = settings | yaml.safe_load(recipe.partition("\n")[2]) | {"models": settings["models"][:1]}
    recorded = {"name": "production", "recorded": str(tmp_path / "baseline")}
    for name, config, code in (
        ("baseline", alone | {"stopping": {}}, ExitCode.REACHED),
        ("gate", settings | {"models": [recorded, settings["models"][1]]}, ExitCode.WORSE),
    ):
        path, run = tmp_path / f"{name}.yaml", tmp_path / name
        path.write_text(yaml.safe_dump(config))
        ended = CliRunner().invoke(app, ["run", str(path), "--run-dir", str(run), "--display", "plain"])
        assert ended.exit_code == code, ended.output
        assert "this start requested nothing" not in ended.output
    active = json.loads((run / "results.json").read_text())["run"]["active_seconds"]
    again = CliRunner().invoke(app, ["run", str(path), "--run-dir", str(run), "--display", "plain"])
    assert again.exit_code == ExitCode.WORSE
    assert json.loads((run / "results.json").read_text())["run"]["active_seconds"] == active > 0.0
    assert "to do     this start requested nothing: for a new build, start over:\n" in again.output
    assert trials_in(tmp_path / "baseline") == 30 * 80 > 2 * trials_in(tmp_path / "gate")


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
    assert [line.split(":")[0] for line in report(tmp_path, "summary").splitlines()[:3]] == ["gate", "", "FAIL"]
    verdict, ranking, ending, promise, *_ = report(tmp_path, "pr").split("\n\n")
    assert verdict.startswith("**FAIL: build ") and verdict.endswith("**")
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in ranking.splitlines()[2:]]
    assert [name for name, _, _ in cells] == ["production", "build"]
    assert all(re.fullmatch(SCORE, score) and re.fullmatch(rf"{SCORE} .. {SCORE}", lo_hi) for _, score, lo_hi in cells)
    assert re.match(r"1 of 1 comparisons decided\. Cost: [\d,]+ trials \(", ending)
    assert promise.startswith("Promise: ")
    assert '"outcome":"FAIL"' in report(tmp_path, "html") and '"outcome":"FAIL"' in report(tmp_path, "json")
    (case,) = ElementTree.fromstring(report(tmp_path, "junit")).iter("testcase")
    assert case.attrib == {"classname": "gate", "name": "build against production"}
    (failure,) = case
    assert failure.tag == "failure" and failure.attrib["message"] in output.splitlines()
    assert "production: 5" in (failure.text or "")


@pytest.mark.slow
@pytest.mark.parametrize(("build", "delta"), [("coin-11", "5%"), ("coin-08", "30%")])
def test_a_build_that_is_better_or_as_good_passes(tmp_path: Path, build: str, delta: str) -> None:
    code, output = gate(tmp_path, build, "true", **{"stopping.delta": delta})
    assert code == ExitCode.REACHED, output
    pattern = rf"^PASS: build {SCORE}, production {SCORE}, .*; not worse than production by more than \d+ points\.$"
    assert re.search(pattern, output, re.MULTILINE)
    assert "FAIL:" not in output and "to continue:" not in output


@pytest.mark.slow
def test_a_gate_without_enough_trials_is_undecided(tmp_path: Path) -> None:
    code, output = gate(tmp_path, "coin-07", "true", **{"trials.max": "6"})
    assert code == ExitCode.SPENT and "\nUNDECIDED: build " in output
    suites = ElementTree.fromstring(report(tmp_path, "junit"))
    assert (suites.attrib["failures"], suites.attrib["errors"]) == ("0", "1")
    results = read_results(tmp_path / "run")
    assert results is not None
    failed = replace(results, gate=(*results.gate, replace(results.gate[0], outcome="FAIL")))
    beside = Ending(reason=Reason.OUT_OF_REACH, results=failed, trials=9)
    assert beside.exit_code is ExitCode.WORSE
    assert next(next_steps(beside, "RUN")).text.startswith("raise trials.max to "), "another asks no more"


def test_a_gate_without_a_look_is_undecided_in_one_sentence_everywhere(tmp_path: Path) -> None:
    _, output = gate(tmp_path, "coin-07", "true", **{"budget.trials": "100"})
    sentence = "UNDECIDED: no answers were requested: the budget does not cover the first round."
    for kind in ("md", "pr", "summary", "junit", "json", "html"):
        assert sentence in report(tmp_path, kind), kind
    assert sentence in output and sentence in (tmp_path / "run" / "results.json").read_text()
    (case,) = ElementTree.fromstring(report(tmp_path, "junit")).iter("testcase")
    assert case.attrib["name"] == "build against production" and case[0].attrib["message"].count("UNDECIDED") == 1
    assert [brief.gate for brief in RunsFolder(tmp_path).briefs()] == ["UNDECIDED"]


@pytest.mark.slow
def test_only_a_gate_fails_a_worse_build_and_is_junit(tmp_path: Path) -> None:
    code, output = gate(tmp_path, "coin-01", "false")
    assert code == ExitCode.REACHED, output
    assert "FAIL" not in output and "PASS" not in output and "to continue:" not in output
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--format", "junit"])
    assert result.exit_code == ExitCode.CONFIGURATION and "set objective.gate" in result.output


def report(folder: Path, kind: str) -> str:
    result = CliRunner().invoke(app, ["report", str(folder / "run"), "--format", kind, "--output", "-"])
    assert result.exit_code == 0, result.output
    return result.stdout


ON_VALUE = {"objective": "{kind: threshold, value: 0.53, gate: true}"}


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
    assert report(tmp_path, "pr").startswith(f"**{line}**\n")
    assert f"**{line}**" in report(tmp_path, "md")
    assert f"A gate: PASS where a model is not below {value:.1%} by more than 5 points" in report(tmp_path, "md")
    assert report(tmp_path, "summary").splitlines()[2] == line and line in report(tmp_path, "html")
    (case,) = ElementTree.fromstring(report(tmp_path, "junit")).iter("testcase")
    assert case.attrib == {"classname": "gate", "name": f"build against {value:.1%}"}
    (result,) = case
    assert result.tag == tag and line in (result.attrib.get("message") or str(result.text))


@pytest.mark.slow
def test_a_gate_on_a_value_fails_if_one_of_several_models_fails(tmp_path: Path) -> None:
    change = {"objective": "{kind: threshold, value: 0.45, gate: true}"}
    code, output = gate(tmp_path, "coin-01", "true", **change)
    assert code == ExitCode.WORSE, output
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["gate"]
    assert {row["model"]: row["outcome"] for row in rows} == {"production": "PASS", "build": "FAIL"}
    suites = ElementTree.fromstring(report(tmp_path, "junit"))
    assert (suites.attrib["tests"], suites.attrib["failures"], suites.attrib["errors"]) == ("2", "1", "0")


def test_a_gate_on_a_value_without_a_look_is_undecided(tmp_path: Path) -> None:
    _, output = gate(tmp_path, "coin-07", "true", **ON_VALUE, **{"budget.trials": "100"})
    assert "UNDECIDED: no answers were requested: the budget does not cover the first round." in output
    suites = ElementTree.fromstring(report(tmp_path, "junit"))
    names = [case.attrib["name"] for case in suites.iter("testcase")]
    assert names == ["production against 53.0%", "build against 53.0%"] and suites.attrib["errors"] == "2"


def test_a_gate_needs_a_baseline_or_a_value(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(
        GATE.format(build="coin-11", gate="true").replace("kind: baseline, baseline: production", "kind: best")
    )
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == ExitCode.CONFIGURATION
    assert "objective.gate is only for the objectives baseline and threshold" in result.output
