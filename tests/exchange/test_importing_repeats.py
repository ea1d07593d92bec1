"""Answers of a log that repeat another one are no independent trials."""

import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from logs import imported, lines, lm_eval_row
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.exchange.gather import PlacedRecord, RepeatFilter
from adaptive_eval.exchange.recording import recording_of_run
from adaptive_eval.exchange.samples import Record, logged_answer
from adaptive_eval.report.view import read_view as view_of

LONG = "because of this " * 20


def log(folder: Path, name: str, answers: Sequence[Sequence[str]]) -> str:
    """Samples of lm-eval, a row for each question."""
    rows = [lm_eval_row(key, texts) for key, texts in enumerate(answers)]
    return f"{name}={lines(folder / name / 'samples_t_2026-01-01T00-00-00.000001.jsonl', rows)}"


def trials_of(run: Path) -> dict[str, list[int]]:
    recording = recording_of_run(run)
    return dict(zip(recording.models, recording.counts.sum(axis=-1).tolist(), strict=True))


STUCK = [["4"] * 8 if key < 6 else ["5"] * 8 for key in range(10)]
SAMPLED = [["4", "5", *["4"] * 6], *[["4"] * 8] * 9]


def test_identical_repeats_count_once_and_the_import_and_the_report_say_so(tmp_path: Path) -> None:
    files = [log(tmp_path, "stuck", STUCK), log(tmp_path, "sampled", SAMPLED)]
    run = tmp_path / "run"
    done = imported(*files, "--to", run, "--grader", "exact")
    assert done.exit_code == 0, done.output
    assert trials_of(run) == {"stuck": [1] * 10, "sampled": [8] * 10}
    assert "repeats   stuck: 70 answers" in done.output and "--repeats-are-samples" in done.output
    warnings = [warning for warning in view_of(run).results.warnings if warning.kind == "repeats_omitted"]
    assert [(warning.model, warning.text.split()[0]) for warning in warnings] == [("stuck", "70")]


def test_repeats_that_are_samples_count_each(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = imported(log(tmp_path, "stuck", STUCK), "--to", run, "--grader", "exact", "--repeats-are-samples")
    assert trials_of(run) == {"stuck": [8] * 10}
    assert "repeats   " not in done.output
    # certain repeats, too: whoever counts them as samples decides by them
    files = [log(tmp_path, "long", [[f"{LONG} {key}"] * 8 for key in range(10)]), log(tmp_path, "sampled", SAMPLED)]
    imported(*files, "--to", tmp_path / "both", "--grader", "exact", "--repeats-are-samples")
    results = view_of(tmp_path / "both").results
    assert ("repeats", "long") in {(warning.kind, warning.model) for warning in results.warnings}
    assert {pair.verdict for pair in results.pairs} == {"resolved"}


@pytest.mark.slow
def test_counted_each_they_are_an_alarm_of_the_run_and_of_its_replay(tmp_path: Path) -> None:
    """Long answers tell by themselves; of short ones nobody can tell without knowing how they were sampled."""
    long = [[f"{LONG} {key}"] * 8 for key in range(10)]
    sampled = [[str(trial % 3 + 5) for trial in range(8)] for _ in range(10)]
    texts = {"long": long, "short": [["7"] * 8] * 10, "sampled": sampled}
    files = [log(tmp_path, name, answers) for name, answers in texts.items()]
    run = tmp_path / "run"
    assert imported(*files, "--to", run, "--grader", "exact", "--repeats-are-samples").exit_code == 0
    kinds = {(warning.model, warning.kind) for warning in view_of(run).results.warnings}
    assert {("long", "repeats"), ("short", "repeats_unclear")} <= kinds
    assert not {("short", "repeats"), ("sampled", "repeats"), ("sampled", "repeats_unclear")} & kinds
    (alarm,) = [warning for warning in view_of(run).results.warnings if warning.kind == "repeats_count"]
    assert alarm.model is None and "identical answers in the logs were each counted" in alarm.text
    replayed = CliRunner().invoke(
        app, ["replay", str(run), "--set", "trials.max=8", "--output", str(tmp_path / "replay")]
    )
    assert "long: the answers of 40 of 40 pairs of trials agree word for word" in replayed.output.replace("\n", " ")


def test_a_long_answer_counts_once_even_where_others_differ(tmp_path: Path) -> None:
    run = tmp_path / "run"
    answers = [[LONG, "4", LONG, "5", LONG, "4"], ["4"] * 6]
    assert imported(log(tmp_path, "m", answers), "--to", run, "--grader", "exact").exit_code == 0
    assert trials_of(run) == {"m": [4, 6]}


def test_trials_of_further_files_wait_for_each_other(tmp_path: Path) -> None:
    first, second = log(tmp_path, "a", [["4"] * 3]), log(tmp_path, "b", [["4", "4", "5"]])
    files = ["m=" + argument.partition("=")[2] for argument in (first, second)]
    run = tmp_path / "run"
    done = imported(*files, "--to", run, "--grader", "exact", "--append")
    assert done.exit_code == 0, done.output
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
                passed += len(repeats.take(PlacedRecord(record, "", str(question), trial)))
        assert (passed, repeats.dropped) == (160, {}), seed
