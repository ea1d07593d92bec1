"""Runs whose judge compares each answer with that of a model in an earlier run, of the same question and number."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, Site, stored
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.graders.judge_forms import AnswersOfModel, ComparisonForm
from adaptive_eval.questions.types import Question
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.answering import right_answer

BASELINE, DEPTH = "bob", 3


def settings(site: Site, url: str, **changes: object) -> dict[str, object]:
    against = {"run": str(site.directory("earlier")), "model": BASELINE}
    grader = {"kind": "judge", "server": {"base_url": url, "model": "judge"}, "compare_to": against}
    models = [{"name": name, "base_url": url} for name in MODELS]
    return {"models": models, "grader": grader, "trials": {"min": 2, "max": 5}} | changes


def earlier_run(
    site: Site, url: str, depth: int = DEPTH, models: tuple[str, ...] = MODELS
) -> dict[tuple[str, int], str]:
    """The answers of the baseline in an earlier run, by question and trial."""
    listed = [{"name": name, "base_url": url} for name in models]
    config = site.write("earlier", models=listed, trials={"min": depth, "max": depth})
    assert site.run(config, "--run-dir", str(site.directory("earlier"))).exit_code in ENDED
    return {
        (trial.question, trial.trial): trial.answer.text for trial in stored(site, "earlier") if trial.model == BASELINE
    }


def expected(trial: TrialRecord, others: dict[tuple[str, int], str], depth: int = DEPTH) -> str:
    """The expected verdict, from which of the two is right."""
    right = f"{{{right_answer(trial.question)}}}"
    is_right, other_is_right = right in trial.answer.text, right in others[trial.question, trial.trial % depth]
    return "tie" if is_right == other_is_right else "better" if is_right else "worse"


@pytest.mark.slow
def test_each_answer_is_compared_with_that_of_its_number(site: Site, fair_url: str) -> None:
    others = earlier_run(site, fair_url)
    ended = site.run(site.write(**settings(site, fair_url)))
    assert ended.exit_code in ENDED, ended.output
    trials = stored(site)
    assert {trial.trial for trial in trials} > set(range(DEPTH)), "some come round to the first again"
    for trial in trials:
        same = trial.model == BASELINE and trial.trial < DEPTH
        assert trial.signals["verdict"] == ("tie" if same else expected(trial, others))
        assert (trial.signals["judge_prompt_tokens"] == 0.0) == same, (
            "an answer is a tie with itself, and sent to nobody"
        )
    assert {trial.signals["verdict"] for trial in trials} == {"better", "tie", "worse"}
    results = read_results(site.directory())
    assert results is not None and results.weights == (1.0, 0.5, 0.0)
    # nobody needs the earlier run to read this one
    shutil.rmtree(site.directory("earlier"))
    assert CliRunner().invoke(app, ["report", str(site.directory()), "--format", "md", "--output", "-"]).exit_code == 0
    result = site.run(site.write(**settings(site, fair_url)))
    assert result.exit_code == ExitCode.CONFIGURATION and "is not a run directory" in result.output


@pytest.mark.slow
def test_a_run_whose_compared_answers_have_changed_is_refused(site: Site, fair_url: str) -> None:
    earlier_run(site, fair_url, 2)
    config = site.write(**settings(site, fair_url, trials={"min": 2, "max": 2}))
    assert site.run(config).exit_code in ENDED
    moved = site.directory("elsewhere")
    site.directory("earlier").rename(moved)
    against = {"run": str(moved), "model": BASELINE}
    grader = {**settings(site, fair_url)["grader"], "compare_to": against}  # type: ignore[dict-item]
    again = site.write(**settings(site, fair_url, grader=grader, trials={"min": 2, "max": 3}))
    assert site.run(again).exit_code in ENDED, "where they lie does not matter"
    earlier_run(site, fair_url, 3)
    refused = site.run(site.write(**settings(site, fair_url)))
    assert refused.exit_code == ExitCode.CONFIGURATION and "others" in refused.output


def test_missing_answers_to_compare_with_are_reported_before_anything_is_asked(site: Site, fair_url: str) -> None:
    earlier_run(site, fair_url, 1, ("ada", "bob"))
    lines = (site.folder / "questions.jsonl").read_text().splitlines()
    more = lines[0].replace("q0", "q1000")
    (site.folder / "more.jsonl").write_text("\n".join([*lines, more]))
    for against, why in (
        ({"run": "nowhere", "model": BASELINE}, "grader.compare_to.run: nowhere is not a run directory"),
        ({"model": "eve"}, "has no model 'eve'; it has ada, bob"),
        ({"model": ""}, "grader.compare_to"),
        ({"model": BASELINE}, "has no answer by bob in"),
    ):
        grader = {**settings(site, fair_url)["grader"]}  # type: ignore[dict-item]
        grader["compare_to"] = {"run": str(site.directory("earlier")), **against}
        refused = site.run(site.write(**settings(site, fair_url, grader=grader, questions="more.jsonl")))
        assert refused.exit_code == ExitCode.CONFIGURATION and why in refused.output, refused.output
        assert not site.directory().exists()


def test_equal_and_empty_answers_are_decided_without_a_judge() -> None:
    form = ComparisonForm(compare_to=AnswersOfModel(run=Path("earlier"), model="bob"))

    def decided(answer: str, *others: str, trial: int = 0) -> tuple[str, ...] | None:
        return form.decided(Question("q", "Which?", "7", others=others).for_trial(trial), answer, 1024)

    assert decided("It is 7.", "It is 7.\n") == ("tie",) and decided(" ", "") == ("tie",)
    assert decided("It is 7.", "") == ("better",) and decided("", "It is 7.") == ()
    assert decided("It is 7.", "It is 8.") is None
    assert [decided("b", "a", "b", trial=trial) for trial in range(4)] == [None, ("tie",), None, ("tie",)]
    asked = Question("q", "Which?", "7", others=("a", "b"))
    assert Counter(text.answers["first"] for text in form.shown(asked.for_trial(3), "mine")) == {"mine": 1, "b": 1}
