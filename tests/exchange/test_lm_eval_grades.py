"""Samples of lm-eval with their own grades, folders of several tasks, and configurations that ask otherwise."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from logs import imported, lines, lm_eval_row, outcomes

TIME = "2026-01-02T03-04-05.678901"
Rows = list[dict[str, object]]
UP = {"exact_match": True, "f1": True, "errors": False, "bleu": True}


def row(key: int, by: str = "none", text: str = "4", **metrics: object) -> dict[str, object]:
    """A document with one answer and its grades."""
    plain = {name: value for name, value in lm_eval_row(key, [text], by).items() if name != "exact_match"}
    return plain | {"metrics": list(metrics)} | metrics


def log(
    folder: Path, rows: list[dict[str, object]], task: str = "sums", higher: Mapping[str, bool] | None = UP
) -> Path:
    """A file of samples with the file of results beside it; without `higher` there is none."""
    path = lines(folder / f"samples_{task}_{TIME}.jsonl", rows)
    results = folder / f"results_{TIME}.json"
    if higher is not None:
        before = json.loads(results.read_text())["higher_is_better"] if results.exists() else {}
        summary = {"model_name": "org/m", "config": {"model": "local-chat-completions"}, "results": {}}
        results.write_text(json.dumps(summary | {"higher_is_better": before | {task: dict(higher)}}))
    return path


def categories(run: Path) -> list[int | None]:
    return list(outcomes(run).values())


def refusal(*words: object) -> str:
    refused = imported(*words)
    assert refused.exit_code == 2, refused.output
    return " ".join(refused.stderr.split())


def test_metric_and_filter_can_be_named(tmp_path: Path) -> None:
    rows = [
        row(key, by, exact_match=float(by == "last"), errors=float(key == 0))
        for by in ("strict", "last")
        for key in (0, 1)
    ]
    path = log(tmp_path, rows)
    for scorer, expected in (
        (None, [0, 0]),
        ("exact_match", [0, 0]),
        ("exact_match,last", [1, 1]),
        ("errors,last", [0, 1]),
    ):
        run = tmp_path / f"run {scorer}"
        assert imported(path, "--to", run, *(["--scorer", scorer] if scorer else [])).exit_code == 0
        assert categories(run) == expected, scorer
    words = (path, "--to", tmp_path / "none", "--scorer", "f2")
    assert "line 1: has no metric 'f2'; name one with --scorer: exact_match, errors" in refusal(*words)


def test_lower_values_are_better_where_the_results_say_so(tmp_path: Path) -> None:
    path = log(tmp_path, [row(key, errors=value) for key, value in enumerate((0, 1, 2))])
    run = tmp_path / "run"
    assert "got -2; name all scores with --weights, as in --weights 0,0.5,1, with a minus sign" in refusal(
        path, "--to", run
    )
    assert imported(path, "--to", run, "--weights", "0,-1,-2").exit_code == 0
    with (run / "results.json").open() as file:
        assert json.load(file)["models"][0]["score"] == pytest.approx(-1.0)
    alone = log(tmp_path / "alone", [row(0, errors=0), row(1, errors=1)])
    assert imported(alone, "--to", tmp_path / "binary").exit_code == 0
    assert categories(tmp_path / "binary") == [1, 0], "no error is right"


@pytest.mark.parametrize(
    ("metrics", "higher", "problem"),
    [
        ({"f1": 0.7}, UP, "but got 0.7; name all scores with --weights, as in --weights 0,0.5,1, or give --config"),
        ({"bleu": ["4", "4"]}, UP, "line 1: bleu is computed over all answers together, so single answers"),
        ({"errors": 0.0}, None, "line 1: does not say whether higher values of errors are better; put results_TIME"),
        ({}, UP, "the log has no grade of this trial; give --grader"),
    ],
)
def test_what_is_no_grade_is_refused(
    tmp_path: Path, metrics: dict[str, object], higher: Mapping[str, bool] | None, problem: str
) -> None:
    path = log(tmp_path / "org__m", [row(0, **metrics)], higher=higher)
    assert problem in refusal(path, "--to", tmp_path / "run")
    assert imported(path, "--to", tmp_path / "run", "--grader", "exact").exit_code == 0, "texts are graded anew"


def test_folder_of_several_tasks_is_one_run(tmp_path: Path) -> None:
    """Each task has its own sampling, which one configuration cannot have."""
    other = [row(0, exact_match=1.0), row(1, exact_match=1.0)]
    for sample in other:
        sample["arguments"]["gen_args_0"]["arg_1"] |= {"max_gen_toks": 9}  # type: ignore[index]
    log(tmp_path / "out" / "m", [row(0, exact_match=0.0)])
    log(tmp_path / "out" / "m", other, task="more")
    done = imported(tmp_path / "out", "--to", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert {question: category for (_, question, _), category in outcomes(tmp_path / "run").items()} == {
        "more/0": 1,
        "more/1": 1,
        "sums/0": 0,
    }
    assert "org/m had a different max_tokens in each task; config.yaml omits it" in done.stdout
    assert "for more" not in done.stdout
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["models"][0]["sampling"] == {"temperature": 0.8, "stop": ["\n\n"]}


ASKED = {"temperature": 0.8, "max_tokens": 64, "stop": ["\n\n"]}


def configured(folder: Path, **changes: object) -> Path:
    """A configuration that asks as the samples say they were asked, but for these changes."""
    questions = [{"id": str(key), "prompt": f"question {key}?", "answer": "4"} for key in (0, 1)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("org/m", "org/n")]
    tree = {"questions": "questions.jsonl", "grader": "exact", "models": models, "sampling": ASKED}
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump(tree | changes))
    return file


def test_configuration_that_asks_as_the_log_says_is_taken(tmp_path: Path) -> None:
    path = log(tmp_path / "out", [row(0, exact_match=1.0), row(1, text="5", exact_match=0.0)])
    done = imported(path, "--to", tmp_path / "run", "--config", configured(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert categories(tmp_path / "run") == [1, 0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"sampling": ASKED | {"temperature": 0.2}},
            "org/m was asked with sampling.temperature 0.8, and the configuration has 0.2",
        ),
        (
            {"sampling": {"temperature": 0.8, "max_tokens": 64}},
            r"with sampling.stop ['\n\n'], and the configuration does not set it",
        ),
        (
            {"prompt": "{prompt} Think first."},
            "question '0' was sent to org/m as 'question 0?', and the configuration sends 'question 0? Think first.'",
        ),
    ],
)
def test_configuration_that_asks_otherwise_is_refused(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    rows = [row(0, exact_match=1.0), row(1, exact_match=0.0)]
    if "prompt" in changes:  # which the log's question is, so that the sent prompt is what differs
        for sample in rows:
            turns = json.dumps([{"role": "user", "content": f"question {sample['doc_id']}? At once!"}])
            sample["arguments"]["gen_args_0"]["arg_0"] = [turns]  # type: ignore[index]
        problem = problem.replace("as 'question 0?'", "as 'question 0? At once!'")
    path = log(tmp_path / "out", rows)
    message = refusal(path, "--to", tmp_path / "run", "--config", configured(tmp_path, **changes))
    assert problem in message and "import the log without --config, or give a configuration with the same" in message


def test_system_message_must_be_the_same(tmp_path: Path) -> None:
    sample = row(0, exact_match=1.0)
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "question 0?"}]
    sample["arguments"]["gen_args_0"]["arg_0"] = [json.dumps(turns)]  # type: ignore[index]
    path = log(tmp_path / "out", [sample])
    words = (path, "--to", tmp_path / "run", "--config")
    assert "had the system message 'Be brief.', and the configuration has none" in refusal(*words, configured(tmp_path))
    prompt = {"system": "Be brief.", "template": "{prompt}"}
    assert imported(*words, configured(tmp_path, prompt=prompt)).exit_code == 0


@pytest.mark.slow
def test_scores_go_by_the_rubric_of_the_configuration(tmp_path: Path) -> None:
    """A value of a metric is placed by conditions on `score`, without the text being graded anew."""
    half = {"name": "half", "weight": 0.5, "when": {"score": {"at_least": 0.5}}}
    upper = {"name": "most", "weight": 1, "when": {"score": {"at_least": 0.9}}}
    rubric = {"categories": [upper, half, {"name": "little", "weight": 0}]}
    grader = {"kind": "python", "function": "absent:grade", "key_is_answer": False}
    path = log(tmp_path / "out", [row(0, f1=0.7), row(1, f1=0.95)])
    config = configured(tmp_path, rubric=rubric, grader=grader)
    imported(path, "--to", tmp_path / "run", "--config", config)
    assert categories(tmp_path / "run") == [1, 0]
