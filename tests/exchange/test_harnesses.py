"""lm-eval: answers are graded one by one, and nothing is counted twice."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import imported, lines, lm_eval_row, outcomes
from stored_runs import stored_header
from thoroughness import examples

from adaptive_eval.exchange.detect import log_files, read_records
from adaptive_eval.report.log_files import LogError

TIME = "2026-01-02T03-04-05.678901"


def lm_eval_log(folder: Path, rows: list[dict[str, object]], model: str | None = "org/m") -> Path:
    """A samples file, with the results that tell its model beside it."""
    path = lines(folder / f"samples_sums_{TIME}.jsonl", rows)
    if model is not None:
        results = {"model_name": model, "config": {"model": "local-chat-completions"}, "results": {}}
        (folder / f"results_{TIME}.json").write_text(json.dumps(results))
    return path


def test_lm_eval_repeats_are_graded_one_by_one_and_filters_count_once(tmp_path: Path) -> None:
    texts = ["it is \\boxed{4}", "it is \\boxed{5}", "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER", "\\boxed{4}"]
    rows = [lm_eval_row(key, texts, by) for by in ("strict", "flexible") for key in (0, 1)]
    log = lm_eval_log(tmp_path / "logs", rows)
    refused = imported(log, "--to", tmp_path / "run")
    assert refused.exit_code == 2
    assert "line 1, sample 1: the log has no grade of this trial; give --grader" in refused.stderr
    done = imported(log, "--to", tmp_path / "run", "--grader", "math")
    assert done.exit_code == 0, done.stderr
    assert "missing   2 of org/m: 2 the server gave no content" in done.stdout
    expected = {("org/m", key, trial): right for key in "01" for trial, right in enumerate([1, 0, 1])}
    assert outcomes(tmp_path / "run") == expected
    stored = stored_header(tmp_path / "run")
    assert stored.questions["0"]["prompt"] == "question 0?"
    assert stored.models["org/m"]["sampling"] == {"temperature": 0.8, "max_tokens": 64, "stop": ["\n\n"]}


def test_lm_eval_folders_tell_the_model_where_nothing_else_does(tmp_path: Path) -> None:
    rows = [lm_eval_row(0, ["4"])]
    named = lm_eval_log(tmp_path / "org__tiny", rows, model=None)
    assert imported(tmp_path / "org__tiny", "--to", tmp_path / "run", "--grader", "exact").exit_code == 0
    assert {model for model, _, _ in outcomes(tmp_path / "run")} == {"org/tiny"}
    unnamed = lm_eval_log(tmp_path / "logs", rows, model=None)
    refused = imported(unnamed, "--to", tmp_path / "other", "--grader", "exact")
    assert refused.exit_code == 2
    assert f"write NAME={unnamed}" in refused.stderr
    words = (f"small={unnamed}", f"large={named}")
    assert imported(*words, "--to", tmp_path / "other", "--grader", "exact").exit_code == 0
    assert {model for model, _, _ in outcomes(tmp_path / "other")} == {"small", "large"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([lm_eval_row(0, ["4"]), lm_eval_row(0, ["4"])], "line 2: has the document of line 1 again"),
        ([lm_eval_row(0, ["4"], "a"), lm_eval_row(0, ["5"], "b")], "line 2: has other answers than line 1"),
        ([{**lm_eval_row(0, []), "resps": [[["-1.5", "False"]], [["-2.5", "True"]]]}], "has no sampled answers"),
        ([lm_eval_row(0, ["4"]), {"doc_id": 1}], "line 2: is not a sample of lm-eval"),
    ],
)
def test_lm_eval_rows_that_cannot_be_trials(tmp_path: Path, rows: list[dict[str, object]], problem: str) -> None:
    refused = imported(lm_eval_log(tmp_path / "logs", rows), "--to", tmp_path / "run", "--grader", "exact")
    assert refused.exit_code == 2
    assert problem in refused.stderr
    assert not (tmp_path / "run").exists()


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    answers=st.lists(st.lists(st.sampled_from(["4", "5", ""]), min_size=1, max_size=4), min_size=1, max_size=4),
    filters=st.integers(1, 3),
    data=st.data(),
)
def test_any_order_of_filters_and_documents_gives_each_repeat_once(
    tmp_path: Path, answers: list[list[str]], filters: int, data: st.DataObject
) -> None:
    rows = [lm_eval_row(key, texts, f"f{by}") for by in range(filters) for key, texts in enumerate(answers)]
    log = lm_eval_log(tmp_path, data.draw(st.permutations(rows)))
    stored = {
        (record.question, record.trial): record.answer.text for record in records(log) if record.answer is not None
    }
    assert stored == {(str(key), trial): text for key, texts in enumerate(answers) for trial, text in enumerate(texts)}
    assert len(records(log)) == len(stored)
    again = data.draw(st.sampled_from(rows))
    with pytest.raises(LogError, match=r"line \d+: has the document of line \d+ again"):
        records(lm_eval_log(tmp_path, [*rows, again]))


def records(path: Path) -> list[object]:  # type: ignore[type-arg]
    """All records of a file."""
    (file,) = log_files([str(path)])
    return list(read_records(file))
