"""lm-eval: answers are graded one by one, or by the log; nothing counts twice; configurations ask as the log says."""

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import lines, lm_eval_row, outcomes, refusal, taken
from stored_runs import stored_header
from thoroughness import examples

from adaptive_eval.exchange.detect import log_files, read_records
from adaptive_eval.exchange.gather import RepeatFilter
from adaptive_eval.exchange.log_files import LogError
from adaptive_eval.exchange.recording import recording_of_run
from adaptive_eval.exchange.samples import Record, logged_answer
from adaptive_eval.report.results_file import read_results

TIME = "2026-01-02T03-04-05.678901"
UP = {"exact_match": True, "f1": True, "errors": False, "bleu": True}


def test_lm_eval_repeats_are_graded_one_by_one_and_filters_count_once(tmp_path: Path) -> None:
    texts = ["it is \\boxed{4}", "it is \\boxed{5}", "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER", "\\boxed{4}"]
    rows = [lm_eval_row(key, texts, by) for by in ("strict", "flexible") for key in (0, 1)]
    words = (log(tmp_path / "logs", rows), "--to", tmp_path / "run")
    assert "line 1, sample 1: the log has no grade of this trial; give --grader" in refusal(*words)
    done = taken(*words, "--grader", "math")
    assert "missing   2 of org/m: 2 the server gave no content" in done.stdout
    expected = {("org/m", key, trial): right for key in "01" for trial, right in enumerate([1, 0, 1])}
    assert outcomes(tmp_path / "run") == expected
    stored = stored_header(tmp_path / "run")
    assert stored.questions["0"]["prompt"] == "question 0?"
    assert stored.models["org/m"]["sampling"] == {"temperature": 0.8, "max_tokens": 64, "stop": ["\n\n"]}


def test_lm_eval_folders_tell_the_model_where_nothing_else_does(tmp_path: Path) -> None:
    named, unnamed = (log(tmp_path / name, [lm_eval_row(0, ["4"])], higher=None) for name in ("org__tiny", "logs"))
    taken(tmp_path / "org__tiny", "--to", tmp_path / "run", "--grader", "exact")
    assert {model for model, _, _ in outcomes(tmp_path / "run")} == {"org/tiny"}
    words = ("--to", tmp_path / "other", "--grader", "exact")
    assert f"write NAME={unnamed}" in refusal(unnamed, *words)
    taken(f"small={unnamed}", f"large={named}", *words)
    assert {model for model, _, _ in outcomes(tmp_path / "other")} == {"small", "large"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([lm_eval_row(0, ["4"], "a"), lm_eval_row(0, ["5"], "b")], "line 2: has other answers than line 1"),
        ([{**lm_eval_row(0, []), "resps": [[["-1.5", "False"]], [["-2.5", "True"]]]}], "has no sampled answers"),
        ([lm_eval_row(0, ["4"]), {"doc_id": 1}], "line 2: is not a sample of lm-eval"),
    ],
)
def test_lm_eval_rows_that_cannot_be_trials(tmp_path: Path, rows: list[dict[str, object]], problem: str) -> None:
    assert problem in refusal(log(tmp_path / "logs", rows), "--to", tmp_path / "run", "--grader", "exact")


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
    read = records(log(tmp_path, data.draw(st.permutations(rows))))
    stored = {(record.question, record.trial): record.answer.text for record in read if record.answer is not None}
    assert stored == {(str(key), trial): text for key, texts in enumerate(answers) for trial, text in enumerate(texts)}
    assert len(read) == len(stored)
    again = data.draw(st.sampled_from(rows))
    with pytest.raises(LogError, match=r"line \d+: has the document of line \d+ again"):
        records(log(tmp_path, [*rows, again]))


def records(path: Path) -> list[Record]:
    """All records of a file."""
    (file,) = log_files([str(path)])
    return list(read_records(file))


def row(key: int, by: str = "none", text: str = "4", **metrics: object) -> dict[str, object]:
    """A document with one answer and its grades."""
    plain = {name: value for name, value in lm_eval_row(key, [text], by).items() if name != "exact_match"}
    return plain | {"metrics": list(metrics)} | metrics


def log(
    folder: Path, rows: list[dict[str, object]], task: str = "sums", higher: Mapping[str, bool] | None = UP
) -> Path:
    """A samples file with the results that tell its model beside it; without `higher` there are none."""
    results = folder / f"results_{TIME}.json"
    before = json.loads(results.read_text())["higher_is_better"] if results.exists() else {}
    if higher is not None:
        summary = {"model_name": "org/m", "config": {"model": "local-chat-completions"}, "results": {}}
        folder.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps({**summary, "higher_is_better": before | {task: dict(higher)}}))
    return lines(folder / f"samples_{task}_{TIME}.jsonl", rows)


def categories(run: Path) -> list[int | None]:
    return list(outcomes(run).values())


def test_metric_and_filter_can_be_named(tmp_path: Path) -> None:
    keys = [(by, key) for by in ("strict", "last") for key in (0, 1)]
    path = log(tmp_path, [row(key, by, exact_match=float(by == "last"), errors=float(key == 0)) for by, key in keys])
    chosen = {None: [0, 0], "exact_match": [0, 0], "exact_match,last": [1, 1], "errors,last": [0, 1]}
    for scorer, expected in chosen.items():
        taken(path, "--to", tmp_path / f"run {scorer}", *(["--scorer", scorer] if scorer else []))
        assert categories(tmp_path / f"run {scorer}") == expected, scorer
    refused = refusal(path, "--to", tmp_path / "none", "--scorer", "f2")
    assert "line 1: has no metric 'f2'; name one with --scorer: exact_match, errors" in refused


def test_metrics_and_filters_in_another_order_are_not_compared(tmp_path: Path) -> None:
    """An order says nothing: the first of each file would compare two scorers."""
    first = log(tmp_path / "a", [row(0, "strict", exact_match=0.0), row(0, "last", exact_match=1.0)])
    other = log(tmp_path / "b", [row(0, "last", exact_match=1.0), row(0, "strict", exact_match=0.0)])
    words = (f"a={first}", f"b={other}", "--to")
    message = refusal(*words, tmp_path / "run")
    assert "the grade is that of 'exact_match,last' here, and of 'exact_match,strict' in" in message
    assert all(str(tmp_path / name) in message for name in "ab") and "--scorer" in message
    taken(*words, tmp_path / "anew", "--grader", "exact")
    chosen = taken(*words, tmp_path / "chosen", "--scorer", "exact_match,strict")
    assert categories(tmp_path / "chosen") == [0, 0] and "scores    " not in chosen.stdout
    alone = taken(first, "--to", tmp_path / "alone")
    assert "scores    sums: exact_match,strict counts, not exact_match,last; --scorer chooses" in alone.stdout
    two, one = log(tmp_path / "c", [row(0, exact_match=0.0, f1=1.0)]), log(tmp_path / "d", [row(0, f1=1.0)])
    refused = refusal(f"c={two}", f"d={one}", "--to", tmp_path / "metrics")
    assert "that of 'f1,none' here, and of 'exact_match,none'" in refused
    chosen = taken(f"c={two}", "--to", tmp_path / "metric", "--scorer", "f1")
    assert "scores    " not in chosen.stdout, "there is nothing left to choose"


def test_lower_values_are_better_where_the_results_say_so(tmp_path: Path) -> None:
    words = (log(tmp_path, [row(key, errors=value) for key, value in enumerate((0, 1, 2))]), "--to", tmp_path / "run")
    advice = "got -2; name all scores with --weights, as in --weights 0,0.5,1, with a minus sign"
    assert advice in refusal(*words)
    taken(*words, "--weights", "0,-1,-2")
    assert read_results(tmp_path / "run").models[0].score == pytest.approx(-1.0)
    taken(log(tmp_path / "alone", [row(0, errors=0), row(1, errors=1)]), "--to", tmp_path / "binary")
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
    taken(path, "--to", tmp_path / "run", "--grader", "exact")  # texts are graded anew


def test_folder_of_several_tasks_is_one_run(tmp_path: Path) -> None:
    """Each task has its own sampling, which one configuration cannot have."""
    other = [row(0, exact_match=1.0), row(1, exact_match=1.0)]
    for sample in other:
        sample["arguments"]["gen_args_0"]["arg_1"] |= {"max_gen_toks": 9}  # type: ignore[index]
    log(tmp_path / "out" / "m", [row(0, exact_match=0.0)])
    log(tmp_path / "out" / "m", other, task="more")
    done = taken(tmp_path / "out", "--to", tmp_path / "run")
    found = {question: category for (_, question, _), category in outcomes(tmp_path / "run").items()}
    assert found == {"more/0": 1, "more/1": 1, "sums/0": 0}
    assert "org/m had a different max_tokens in each task; config.yaml omits it" in done.stdout
    assert "for more" not in done.stdout
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["models"][0]["sampling"] == {"temperature": 0.8, "stop": ["\n\n"]}


ASKED = {"temperature": 0.8, "max_tokens": 64, "stop": ["\n\n"]}


def configured(folder: Path, **changes: object) -> Path:
    """A configuration that asks as the samples say they were asked, but for these changes."""
    lines(folder / "questions.jsonl", [{"id": key, "prompt": f"question {key}?", "answer": "4"} for key in "01"])
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("org/m", "org/n")]
    tree = {"questions": "questions.jsonl", "grader": "exact", "models": models, "sampling": ASKED}
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree | changes))
    return folder / "mine.yaml"


def sent(key: int, *turns: tuple[str, str]) -> dict[str, object]:
    """A sample whose prompt was sent in these turns."""
    sample = row(key, exact_match=1.0)
    prompt = [json.dumps([{"role": role, "content": content} for role, content in turns])]
    sample["arguments"]["gen_args_0"]["arg_0"] = prompt  # type: ignore[index]
    return sample


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sampling": ASKED | {"temperature": 0.2}}, "asked with sampling.temperature 0.8, and the configuration has"),
        ({"sampling": ASKED | {"stop": None}}, r"with sampling.stop ['\n\n'], and the configuration does"),
        (
            {"prompt": "{prompt} Think first."},
            "question '0' was sent to org/m as 'question 0? At once!', and the configuration sends "
            "'question 0? Think first.'",
        ),
    ],
)
def test_configuration_that_asks_otherwise_is_refused(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    end = " At once!" if "prompt" in changes else ""  # else the log's question is not what differs
    path = log(tmp_path / "out", [sent(key, ("user", f"question {key}?{end}")) for key in (0, 1)])
    message = refusal(path, "--to", tmp_path / "run", "--config", configured(tmp_path, **changes))
    assert problem in message and "import the log without --config, or give a configuration with the same" in message


def test_system_message_must_be_the_same(tmp_path: Path) -> None:
    path = log(tmp_path / "out", [sent(0, ("system", "Be brief."), ("user", "question 0?"))])
    words = (path, "--to", tmp_path / "run", "--config")
    assert "had the system message 'Be brief.', and the configuration has none" in refusal(*words, configured(tmp_path))
    taken(*words, configured(tmp_path, prompt={"system": "Be brief.", "template": "{prompt}"}))
    assert categories(tmp_path / "run") == [1], "what asks as the log says is taken"


LONG = "because of this " * 60


def repeated_log(folder: Path, name: str, answers: Sequence[Sequence[str]]) -> str:
    """Samples of a model, a row for each question."""
    rows = [lm_eval_row(key, texts) for key, texts in enumerate(answers)]
    return f"{name}={lines(folder / name / 'samples_t_2026-01-01T00-00-00.000001.jsonl', rows)}"


def trials_of(run: Path) -> dict[str, list[int]]:
    recording = recording_of_run(run)
    return dict(zip(recording.models, recording.counts.sum(axis=-1).tolist(), strict=True))


STUCK = [["4"] * 8 if key < 6 else ["5"] * 8 for key in range(10)]
SAMPLED = [["4", "5", *["4"] * 6], *[["4"] * 8] * 9]


def test_identical_repeats_count_once_and_the_import_and_the_report_say_so(tmp_path: Path) -> None:
    files = [repeated_log(tmp_path, "stuck", STUCK), repeated_log(tmp_path, "sampled", SAMPLED)]
    run = tmp_path / "run"
    done = taken(*files, "--to", run, "--grader", "exact")
    assert trials_of(run) == {"stuck": [1] * 10, "sampled": [8] * 10}
    assert "repeats   stuck: 70 answers" in done.output and "--repeats-are-samples" in done.output
    warnings = [warning for warning in read_results(run).warnings if warning.kind == "repeats_omitted"]
    assert [(warning.model, warning.text.split()[0]) for warning in warnings] == [("stuck", "70")]
    done = taken(files[0], "--to", tmp_path / "each", "--grader", "exact", "--repeats-are-samples")
    assert trials_of(tmp_path / "each") == {"stuck": [8] * 10} and "repeats   " not in done.output
    long = repeated_log(tmp_path, "m", [[LONG, "4", LONG, "5", LONG, "4"], ["4"] * 6])
    taken(long, "--to", tmp_path / "long", "--grader", "exact")
    assert trials_of(tmp_path / "long") == {"m": [4, 6]}, "a long answer counts once even where others differ"


def test_counted_each_they_are_an_alarm_of_the_run_and_of_its_replay(tmp_path: Path) -> None:
    """Who counts them as samples decides by them. Long answers tell by themselves; of short ones nobody can tell."""
    texts = {"long": [[f"{LONG} {key}"] * 8 for key in range(10)], "short": [["7"] * 8] * 10, "sampled": SAMPLED}
    files, run = [repeated_log(tmp_path, name, answers) for name, answers in texts.items()], tmp_path / "run"
    taken(*files, "--to", run, "--grader", "exact", "--repeats-are-samples")
    results = read_results(run)
    kinds = {(warning.model, warning.kind) for warning in results.warnings}
    assert {("long", "repeats"), ("short", "repeats_unclear")} <= kinds
    assert not {("short", "repeats"), ("sampled", "repeats"), ("sampled", "repeats_unclear")} & kinds
    (alarm,) = [warning for warning in results.warnings if warning.kind == "repeats_count"]
    assert alarm.model is None and "identical answers in the logs were each counted" in alarm.text
    assert {pair.verdict for pair in results.pairs if "sampled" in (pair.first, pair.second)} == {"resolved"}
    replayed = " ".join(typed("replay", run, "--set", "trials.max=8", "--output", tmp_path / "replay").output.split())
    assert "long: the answers of 40 of 40 pairs of trials agree word for word" in replayed
    assert "blocked" not in replayed and "is best" in replayed


def test_trials_of_further_files_wait_for_each_other(tmp_path: Path) -> None:
    first, second = repeated_log(tmp_path, "a", [["4"] * 3]), repeated_log(tmp_path, "b", [["4", "4", "5"]])
    files = ["m=" + argument.partition("=")[2] for argument in (first, second)]
    run = tmp_path / "run"
    taken(*files, "--to", run, "--grader", "exact", "--append")
    assert trials_of(run) == {"m": [6]}


@pytest.mark.slow
@pytest.mark.parametrize("certain", [0.5, 0.9])
def test_no_letter_of_an_honest_server_is_left_out(certain: float) -> None:
    for seed in range(500):
        rng, repeats, passed = np.random.default_rng(seed), RepeatFilter(), 0
        for question in range(20):
            for trial in range(8):
                letter = "A" if rng.random() < certain else string.ascii_uppercase[rng.integers(1, 4)]
                answer = logged_answer(letter, finish_reason="stop")
                record = Record("", "m", str(question), trial, answer=answer, has_text=True)
                passed += len(repeats.take(record))
        assert (passed, repeats.dropped) == (160, {}), seed
