"""CSV, JSON lines and Parquet: the same rows, and nothing that a model wrote does anything."""

import csv
import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from pyarrow import parquet
from small_run import HOSTILE, MODELS, make_run, make_trial, ragged

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.exchange.detect import log_files, read_records
from adaptive_eval.exchange.export import export
from adaptive_eval.exchange.log_files import LogError
from adaptive_eval.exchange.tables import reader, writer

FORMULA = "=+-@＝＋－＠"


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def json_rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_row_has_everything_that_is_stored_of_a_trial(tmp_path: Path) -> None:
    trial = make_trial(
        "bob", "q2", 3, 1, signals={"is_correct": True}, ttft=0.1, attempts=2, round=4, prompt_bpt=1.25, text="It is 3"
    )
    row = json_rows(export(make_run(tmp_path, [trial]), "jsonl").path)[0]
    assert row == {
        "model": "bob",
        "question": "q2",
        "trial": 3,
        "category": 1,
        "label": "correct",
        "value": 1.0,
        "round": 4,
        "seed": 103,
        "finish_reason": "stop",
        "flags": "",
        "extracted": "3",
        "signals": {"is_correct": True},
        "grader_error": None,
        "prompt_tokens": 10,
        "completion_tokens": 23,
        "tokens": 33,
        "usd": 0.25,
        "gpu_seconds": 2.0,
        "latency": 1.5,
        "ttft": 0.1,
        "attempts": 2,
        "replica": "http://127.0.0.1:9/v1",
        "completion_bpt": 0.5,
        "prompt_bpt": 1.25,
        "removed": False,
        "text": "It is 3",
        "reasoning": "because",
        "token_logprobs": None,
    }


@pytest.mark.parametrize("texts", [True, False])
def test_all_hold_the_same_rows_in_the_order_of_commitment(tmp_path: Path, texts: bool) -> None:
    logprobs = AnswerLogprobs(("B", " \ud800"), (-0.25, None))
    trials = [*ragged(), make_trial("bob", "q2", 9, 1, token_logprobs=logprobs, signals={"score": 0.5, "note": "é"})]
    directory = make_run(tmp_path, trials)
    lines = json_rows(export(directory, "jsonl", texts=None if texts else False).path)
    rows = parquet.read_table(export(directory, "parquet", texts=texts).path).to_pylist()
    assert [{**row, "signals": json.loads(row["signals"] or "{}")} for row in rows] == lines
    assert not texts or rows[-1]["token_logprobs"] == {"tokens": ["B", " ?"], "logprobs": [-0.25, None]}
    assert ({"text", "reasoning", "token_logprobs"} <= lines[0].keys()) is texts
    assert [(row["model"], row["question"], row["trial"]) for row in lines] == [
        (trial.model, trial.question, trial.trial) for trial in trials
    ]
    cells = csv_rows(export(directory, "csv", texts=texts or None).path)  # which has none by default
    for row, line in zip(cells, lines, strict=True):
        assert list(row) == list(line)
        for name, value in line.items():
            if isinstance(value, str | bool):
                assert row[name] == str(value), name
            else:
                assert json.loads(row[name] or "null") == (None if value == {} else value), name


def test_parquet_is_written_and_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PARQUET_BYTES", 3_000)
    trials = [make_trial("bob", "q1", number, 1, text="x" * 1_000) for number in range(9)]
    path = export(make_run(tmp_path, trials), "parquet").path
    assert parquet.read_metadata(path).num_row_groups == 3
    monkeypatch.setattr(reader, "MOST_BYTES", 4_000)
    (file,) = log_files([str(path)])
    assert [record.trial for record in read_records(file)] == list(range(9))
    monkeypatch.setattr(reader, "MOST_BYTES", 900)
    with pytest.raises(LogError, match="row 1.* is longer than 900 bytes"):
        list(read_records(file))


def test_parquet_without_its_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_run(tmp_path, ragged())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"Parquet files need an extra; pip install 'adaptive-eval\[parquet\]'"):
        export(directory, "parquet")
    assert not list(directory.glob("*parquet*"))


def test_trials_of_a_model_that_has_left_the_run_are_marked(tmp_path: Path) -> None:
    make_run(tmp_path, ragged())
    alone = {"objective": {"kind": "precision", "half_width": 0.1}, "trials": {"min": 1, "max": 5}}
    directory = make_run(tmp_path, [], models=[{"name": "bob", "base_url": "http://127.0.0.1:9/v1"}], **alone)
    rows = csv_rows(export(directory, "csv").path)
    assert {(row["model"], row["removed"]) for row in rows} == {("org/ada: 7b", "True"), ("bob", "False")}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_spreadsheet_runs_nothing(tmp_path: Path, hostile: str) -> None:
    encoded = hostile.encode("utf-8", "replace").decode()
    trials = [make_trial("bob", "q1", 0, 1, text=hostile, reasoning=hostile, extracted=encoded, finish_reason=encoded)]
    rows = csv_rows(export(make_run(tmp_path, trials), "csv", texts=True).path)
    assert len(rows) == 1
    for name in ("text", "reasoning", "extracted", "finish_reason"):
        cell = rows[0][name]
        assert cell.lstrip()[:1] not in FORMULA and cell[:1] not in "\t\r\n"
        plain = encoded.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        assert cell.removeprefix("'") == plain


@pytest.mark.parametrize("text", ["-5", "'-5", "''-5", "'", "'tis", "\t5", " =1"])
def test_a_table_of_an_export_is_read_as_it_was_before_it_was_made_safe(tmp_path: Path, text: str) -> None:
    """A grader would take an apostrophe for a part of the answer."""
    (file,) = log_files(
        [str(export(make_run(tmp_path, [make_trial("bob", "q1", 0, 1, text=text)]), "csv", texts=True).path)]
    )
    (record,) = read_records(file)
    assert record.answer is not None and record.answer.text == text


def test_a_negative_number_stays_a_number(tmp_path: Path) -> None:
    rubric = {
        "categories": [{"name": "-wrong", "weight": -1.0}, {"name": "right", "weight": 2, "when": {"has_box": False}}]
    }
    rows = csv_rows(export(make_run(tmp_path, [make_trial("bob", "q1", 0, 0)], rubric=rubric), "csv").path)
    assert (rows[0]["value"], rows[0]["label"]) == ("-1.0", "'-wrong")


@pytest.mark.parametrize("form", ["jsonl", pytest.param("csv", marks=pytest.mark.slow)])
def test_texts_are_in_memory_one_at_a_time(tmp_path: Path, form: str) -> None:
    """10 MB of text, in at most 2 MB."""
    text = "0123456789abcdef" * 6_250
    trials = (make_trial(model, "q1", number, 1, text=text) for model in MODELS for number in range(50))
    directory = make_run(tmp_path, trials, trials={"min": 2, "max": 50})
    export(directory, form, output=tmp_path / "warm-up", texts=True)
    tracemalloc.start()
    export(directory, form, texts=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2e6
