"""Runs whose judge scores by criteria, or compares in both orders: over HTTP, structured or not, killed and resumed."""

import json
import re
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, RunOutcome, Site, small_world, stored
from stored_runs import events_in
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.notes import ServersNoticed
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.answering import question_rows, right_answer
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving

CRITERIA = [
    {"name": "sound", "meaning": "it says what the reference says", "weight": 0.7},
    {"name": "form", "meaning": "its answer stands in a box", "weight": 0.3},
]
SCORES = {"scores": CRITERIA}
AGAINST = {"compare_to": "other"}


def settings(site: Site, url: str, grader: dict[str, object], **changes: object) -> dict[str, object]:
    """A run whose judge is at `url`; the questions have another answer, which is right to half of them."""
    rows = list(question_rows(small_world()))
    others = [row["answer"] if at % 2 else "1000" for at, row in enumerate(rows)]
    lines = (json.dumps(row | {"other": f"\\boxed{{{other}}}"}) for row, other in zip(rows, others, strict=True))
    (site.folder / "with_others.jsonl").write_text("\n".join(lines))
    questions = {"path": "with_others.jsonl", "fields": {"metadata": ["other"]}}
    judge = {"kind": "judge", "server": {"base_url": url, "model": "judge"}, **grader}
    models = [{"name": name, "base_url": url} for name in MODELS]
    return {"questions": questions, "models": models, "grader": judge, "trials": {"min": 2, "max": 4}} | changes


def is_right(trial: TrialRecord) -> bool:
    return trial.answer.text.rstrip(".").endswith(f"{right_answer(trial.question)}}}")


def report_of(directory: Path) -> str:
    result = CliRunner().invoke(app, ["report", str(directory), "--format", "md", "--output", "-"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_scores_by_criteria_make_the_categories(site: Site, fair_url: str) -> None:
    """Without a rubric each sum of weights is a category, and the score of a model is the mean of its sums."""
    config = site.write(**settings(site, fair_url, {**SCORES, "votes": 3}))
    assert site.run(config).exit_code in ENDED
    results = read_results(site.directory())
    assert results is not None and results.weights == (1.0, 0.7, 0.3, 0.0)
    for trial in stored(site):
        right = is_right(trial)
        assert (trial.signals["sound"], trial.signals["form"]) == ("met" if right else "not met", "met")
        assert trial.signals["score"] == (1.0 if right else 0.3) and trial.category == (0 if right else 2)
        assert trial.signals["agreement"] == 1.0
        used = [float(trial.signals[f"judge_{kind}_tokens"]) for kind in ("prompt", "completion")]
        assert trial.cost.tokens == trial.answer.prompt_tokens + trial.answer.completion_tokens + sum(used)


@pytest.mark.slow
def test_a_server_that_refuses_the_schema_is_asked_line_by_line_and_noted_once(site: Site, fair_url: str) -> None:
    judge = SimulatedServer(small_world(), judge=SimulatedJudge(structured=False))
    with serving(judge) as url:
        config = site.write("plain", **settings(site, url, SCORES))
        assert site.run(config, "--run-dir", str(site.directory("plain"))).exit_code in ENDED
    refused = judge.counts["rejected"]
    notices = [event for event in events_in(site.directory("plain"), ServersNoticed) if not event.model]
    assert [event.notice for event in notices] == ["judge_unstructured"] and 0 < refused <= 3 * 16
    assert site.run(site.write(**settings(site, fair_url, SCORES))).exit_code in ENDED
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("plain"))


@pytest.mark.slow
def test_a_schema_is_not_asked_for_beside_a_format_of_the_user(site: Site) -> None:
    server = SimulatedServer(small_world(), judge=SimulatedJudge(structured=False))
    with serving(server) as url:
        grader = {**SCORES, "sampling": {"extra_body": {"response_format": {"type": "text"}}}}
        assert site.run(site.write(**settings(site, url, grader, trials={"min": 2, "max": 2}))).exit_code in ENDED
    assert server.counts["rejected"] == 0 and all(trial.category is not None for trial in stored(site))


@pytest.mark.slow
@pytest.mark.parametrize(("bias", "expected"), [(0.3, {"better", "tie", "worse"}), (1.0, {"tie"})])
def test_a_judge_with_position_bias_is_reported_and_moves_no_score(site: Site, bias: float, expected: set[str]) -> None:
    """A judge that always prefers the first calls every comparison a tie, and the report gives its bias."""
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge(position_bias=bias))) as url:
        config = site.write(**settings(site, url, AGAINST, trials={"min": 4, "max": 4}))
        assert site.run(config).exit_code in ENDED
    trials = stored(site)
    assert {trial.signals["verdict"] for trial in trials} == expected
    depend = [float(trial.signals["order_dependent"]) for trial in trials]
    match = re.search(
        r"([\d.]+)% depend on the order .*, by ([\d.]+)% in favour of the first", report_of(site.directory())
    )
    assert match is not None and float(match[1]) == pytest.approx(100 * sum(depend) / len(depend), abs=0.06)
    assert float(match[2]) > 10
    # what both orders say is never the verdict of a place: a wrong answer never beats a right one
    right_others = {f"q{at}" for at in range(8) if at % 2}
    for trial in trials:
        worst = "better" if not is_right(trial) else "worse"
        assert trial.signals["verdict"] != worst or is_right(trial) != (trial.question in right_others)


@pytest.mark.slow
def test_a_custom_rubric_may_use_the_levels_of_criteria(site: Site, fair_url: str) -> None:
    categories = [
        {"name": "good", "weight": 1, "when": {"score": {"at_least": 0.6}, "form": "met"}},
        {"name": "rest", "weight": 0},
    ]
    config = site.write(**settings(site, fair_url, SCORES, rubric={"categories": categories}))
    assert site.run(config).exit_code in ENDED
    assert all((trial.category == 0) == is_right(trial) for trial in stored(site))
