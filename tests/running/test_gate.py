"""Decisions of whole runs: the gate of continuous integration, and one score of two benchmarks."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from command_line import typed
from live_runs import ENDED, RunOutcome, Site, small_world
from result_rows import rows_in_file
from stored_runs import stored_results

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.report.view import read_view
from adaptive_eval.show.junit import junit
from adaptive_eval.simulate.answering import question_rows

GATE = """
questions: {{world: coins}}
models:
  - {{name: production, model: coin-08, simulate: true}}   # 0.53
  - {{name: build, model: {build}, simulate: true}}
prompt: |-
  {{prompt}}
  Put your final answer within \\boxed{{}}.
grader: math
objective: {{kind: baseline, baseline: production, gate: true}}
stopping: {{delta: 5%}}
trials: {{min: 4, max: 80}}
concurrency: 64
"""


SCORE, POINTS = r"\d+\.\d%", r"\d+\.\d points"


def gate(folder: Path, build: str, **changes: str) -> tuple[int, str]:
    path = folder / "gate.yaml"
    path.write_text(GATE.format(build=build))
    change = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    result = typed("run", path, "--run-dir", folder / "run", "--display", "plain", *change)
    return result.exit_code, result.output


def test_the_comment_of_the_guide_s_workflow_links_to_the_report() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "continuous-integration.md").read_text("utf-8")
    workflow = yaml.safe_load(next(block for block in guide.split("```") if "runs-on" in block).partition("\n")[2])
    (script,) = (step["run"] for step in workflow["jobs"]["gate"]["steps"] if "--format pr" in step.get("run", ""))
    linked, link, comment = script.partition('/actions/runs/$GITHUB_RUN_ID#artifacts)" >> gate.md\n')
    assert link and "-o gate.md" in linked and "--body-file gate.md" in comment


@pytest.mark.slow
def test_a_worse_build_does_not_pass_and_every_report_says_so(tmp_path: Path) -> None:
    code, output = gate(tmp_path, "coin-01")
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
    code, output = gate(tmp_path, "coin-01")
    assert code == ExitCode.WORSE and "this start requested nothing: for a new build, start over:\n" in output


def test_a_gate_without_a_look_is_undecided_in_one_sentence_everywhere(tmp_path: Path) -> None:
    _, output = gate(tmp_path, "coin-07", **{"budget.trials": "100"})
    sentence = "UNDECIDED: no answers were requested: the budget does not cover the first round."
    for kind in ("md", "pr", "summary", "junit", "json", "html"):
        assert sentence in report(tmp_path, kind), kind
    assert sentence in output
    ended = replace(read_view(tmp_path / "run"), ended="UNDECIDED: a: no server\nb: no server")
    assert 'message="UNDECIDED: a: no server; b: no server"' in junit(ended)


def report(folder: Path, kind: str) -> str:
    return typed("report", folder / "run", "--format", kind, "--output", "-", code=0).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "trials", "outcome", "code", "tag"),
    [
        (0.35, "80", "PASS", ExitCode.REACHED, "system-out"),
        (0.75, "80", "FAIL", ExitCode.WORSE, "failure"),
        (0.58, "5", "UNDECIDED", ExitCode.SPENT, "error"),
    ],
)
def test_a_gate_on_a_value(tmp_path: Path, value: float, trials: str, outcome: str, code: ExitCode, tag: str) -> None:
    """The build is right in about 53%."""
    objective = f"{{kind: threshold, value: {value}, gate: true}}"
    settings = yaml.safe_load(GATE.format(build="coin-08"))
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(settings | {"models": settings["models"][1:], "objective": {"kind": "ranking"}}))
    changes = ("--set", f"objective={objective}", "--set", f"trials.max={trials}")
    ended = typed("run", path, "--run-dir", tmp_path / "run", "--display", "plain", *changes, code=code)
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
    path.write_text(GATE.format(build="coin-11").replace("kind: baseline, baseline: production", "kind: best"))
    result = typed("validate", path, code=ExitCode.CONFIGURATION)
    assert "objective.gate is only for the objectives baseline and threshold" in result.output


SHARES = {"easy": 0.75, "hard": 0.25}


def test_the_score_is_the_weighted_mean_of_the_benchmarks_whose_questions_are_asked_by_their_weight(site: Site) -> None:
    """Two benchmarks of three and of five questions, the first with three times the weight."""
    rows = [{**row, "level": "odd" if at % 2 else "even"} for at, row in enumerate(question_rows(small_world()))]
    benchmarks = []
    for name, chosen in (("easy", rows[5:]), ("hard", rows[:5])):
        (site.folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, chosen)))
        section = {"path": f"{name}.jsonl", "fields": {"metadata": ["level"]}}
        benchmarks.append({"name": name, "weight": 4 * SHARES[name], "questions": section})
    more = {"stopping": {"rule": "published", "confidence": 0.999}, "trials": {"min": 4, "max": 300}}
    config = site.config(benchmarks=benchmarks, report={"group_by": ["level"]}, **more)
    del config["questions"]
    path = site.folder / "run.yaml"
    path.write_text(json.dumps(config))
    site.run(path, code=ENDED)
    results = stored_results(site.directory())
    trials = {row.id: sum(row.trials) for row in rows_in_file(site.directory())}
    assert {key.partition("/")[0] for key in trials} == {"easy", "hard"}
    assert [row for row in results.models if row.trials > 8 * 6], "some model is asked beyond the opening"
    heavy, light = (np.mean([n for key, n in trials.items() if key.startswith(name)]) for name in SHARES)
    assert heavy > 1.5 * light
    parts = {(row.by, row.group, row.model): row for row in results.groups}
    for model in results.models:
        part_rows = [parts["benchmark", name, model.name] for name in SHARES]
        assert [row.questions for row in part_rows] == [3, 5]
        assert [row.share for row in part_rows] == pytest.approx(list(SHARES.values()))
        assert model.score == pytest.approx(sum(row.share * row.score for row in part_rows))  # type: ignore[operator]
        assert model.trials == sum(row.trials for row in part_rows)
        assert all(0.0 <= row.lo <= row.score <= row.hi <= 1.0 for row in part_rows)  # type: ignore[operator]
    assert {row.group for row in results.groups if row.by == "level"} == {"odd", "even"}
    assert sum(row.share for row in results.groups if row.by == "level") == pytest.approx(len(results.models))

    # a replay weighs the same trials in their order, and a resume has the same weights
    again = site.folder / "again"
    assert typed("replay", site.directory(), "--config", path, "--output", again).exit_code in ENDED
    scores = {row.name: row.score for row in results.models}
    assert {row.name: row.score for row in stored_results(again).models} == pytest.approx(scores)
    assert site.run(path, "--set", "trials.max=32").exit_code in ENDED
    other = site.run(path, "--set", "benchmarks.0.weight=1")
    assert other.exit_code == ExitCode.CONFIGURATION and "benchmarks.easy.weight" in other.stderr


@pytest.mark.slow
def test_gates_of_benchmarks_and_of_the_whole_are_one_decision(site: Site) -> None:
    """A build may be far worse in total, but not on the easy questions: one build is, the other is better."""
    path = site.gated_benchmarks()
    assert "on easy: worse than bob by more than 10 points." in site.run(path, code=ExitCode.WORSE).output
    results = stored_results(site.directory())
    whole, easy = "on all questions: not worse than bob by more than 70", "worse than bob by more than 10 points"
    outcomes = {row.model: (row.outcome, row.why) for row in results.gate}
    assert outcomes == {"ada": ("PASS", f"{whole} points; on easy: not {easy}"), "cyd": ("FAIL", f"on easy: {easy}")}
    gates = {(row.group, row.model): row.gate for row in results.groups if row.by == "benchmark"}
    assert (gates["easy", "ada"], gates["easy", "cyd"]) == ("PASS", "FAIL")
    assert {gates["hard", name] for name in ("ada", "bob", "cyd")} == {gates["easy", "bob"]} == {None}
    comment = site.report("pr")
    assert comment.startswith("**FAIL: ") and comment.count("\n\n**PASS: ") == 1, "the worst first"
    taken = RunOutcome.of(site.directory()).looks
    again = site.run(path, "--set", "benchmarks.0.gate=60%")
    assert again.exit_code in ENDED, "how much worse a build may be says nothing of its trials; all is judged anew"
    assert RunOutcome.of(site.directory()).looks[: len(taken)] == taken
    (warning,) = (row.text for row in stored_results(site.directory()).warnings if row.kind == "redecided")
    assert "benchmarks.easy.gate: 0.1 → 0.6;" in warning and "The promise does not cover" in warning
    assert site.run(path, "--set", "benchmarks.0.gate=60%", "--set", "trials.max=240").exit_code in ENDED
