"""Runs of two benchmarks of which a judge grades one: by question, with kills, caps and an unreachable judge."""

import json
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, RunOutcome, Site, small_world, stored
from result_rows import rows_in_file
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.answering import question_rows

PRICE = {"input": 3.0, "output": 4.0}


def write(site: Site, url: str, name: str = "run", judge_url: str = "", **changes: object) -> Path:
    """A configuration of two benchmarks, of which a judge grades `open`; without `judge_url` a key grades both."""
    rows = list(question_rows(small_world()))
    for benchmark, chosen in (("exact", rows[::2]), ("open", rows[1::2])):
        (site.folder / f"{benchmark}.jsonl").write_text("\n".join(map(json.dumps, chosen)))
    server = {"base_url": judge_url, "model": "judge"}
    judge = (
        {"grader": {"kind": "judge", "server": {**server, "price": PRICE}, "max_answer_bytes": 1024}}
        if judge_url
        else {}
    )
    config = site.config(
        benchmarks=[
            {"name": "exact", "questions": "exact.jsonl"},
            {"name": "open", "questions": "open.jsonl", **judge},
        ],
        models=[{"name": model, "base_url": url} for model in MODELS],
        **{"trials": {"min": 2, "max": 6}} | changes,
    )
    del config["questions"]
    (path := site.folder / f"{name}.yaml").write_text(json.dumps(config))
    return path


@pytest.mark.slow
def test_answers_are_judged_or_parsed_as_their_benchmark_says(site: Site, fair_url: str) -> None:
    config = write(site, fair_url, judge_url=fair_url)
    assert "the judge of open" in site.run(config, "--dry-run").stdout
    ended = site.run(config)
    assert ended.exit_code in ENDED, ended.output
    keyed = write(site, fair_url, "keyed")
    assert site.run(keyed, "--run-dir", str(site.directory("keyed"))).exit_code in ENDED
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("keyed"))
    for trial in stored(site):
        assert ("verdict" in trial.signals) == trial.question.startswith("open/")
    results = read_results(site.directory())
    assert results is not None and results.cost.grading is not None
    judged = sum(sum(row.trials) for row in rows_in_file(site.directory()) if row.id.startswith("open/"))
    assert results.cost.grading.answers == judged > 0
    assert "judged" in {warning.kind for warning in results.warnings}
    verified = CliRunner().invoke(app, ["verify", str(site.directory())])
    assert verified.exit_code == 0, verified.output


@pytest.mark.slow
def test_an_unreachable_judge_leaves_only_its_own_answers_without_a_grade(site: Site, fair_url: str) -> None:
    result = site.run(write(site, fair_url, judge_url="http://127.0.0.1:9/v1"))
    assert result.exit_code not in ENDED
    graded = {trial.question.partition("/")[0]: trial.category is not None for trial in stored(site)}
    assert graded == {"exact": True, "open": False}
    assert site.run(write(site, fair_url, judge_url=fair_url)).exit_code in {ExitCode.REACHED, ExitCode.SPENT}
    assert all(trial.category is not None for trial in stored(site))
