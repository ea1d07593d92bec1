"""Files that are wrong, cut off, or made to do harm: an error names them, in little memory, and nothing is left."""

import copy
import json
import os
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import logs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import (
    DEFLATED,
    ZSTANDARD,
    archive,
    header,
    imported,
    inspect_log,
    lines,
    lm_eval_row,
    outcomes,
    sample,
    taken,
)
from pyarrow import parquet
from thoroughness import examples

from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.exchange.detect import read_records
from adaptive_eval.exchange.importing import import_logs
from adaptive_eval.exchange.log_files import LogError, LogFile
from adaptive_eval.exchange.tables import reader
from adaptive_eval.questions import readers

START = ("_journal/start.json", json.dumps(header()).encode())


def peak_of(action: Callable[[], str]) -> tuple[int, str]:
    """Most bytes that Python had allocated at once, and what it gives."""
    tracemalloc.start()
    try:
        message = action()
        return tracemalloc.get_traced_memory()[1], message
    finally:
        tracemalloc.stop()


def refusal(path: Path, *options: str) -> str:
    """The message that refuses a file."""
    return logs.refusal(path, "--to", path.parent / "run", *options)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00garbage", "line 1: must be UTF-8 text"),
        (b"hello there\nno table\n", "has the columns hello there, which match no supported log"),
        (b"model,question,model,category\na,q,a,1\n", "line 1: needs a header with different names for all columns"),
        (b"model,question,category\na,q,1\na,q\n", "line 3: has 2 values, but the header has 3"),
        (b'{"results": {}, "config": {}}', "contains only means"),
        (b'{"some": "thing"}\n', "has the columns some, which match no supported log"),
        (b'{"version": 2, "status": "success", "eval": {"model": "m", "task": "t"}}', "has no samples"),
        (b'{"version": 2, "status": "success", "eval": {"model": "m"}, "samples": [{', "is not JSON, or is cut off"),
        (b'{"version": 2, "status": "success", "eval": {}, "samples": [{"id": 1}]}', "has no model"),
        (b'{"version": 2, "status": "success", "eval": {"model": "m"}, "samples": [5]}', "sample 1: is not a sample"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"PK\x03\x04 nothing more", "is a damaged zip file, or cut off"),
        (b"PAR1 nothing more", "is a damaged or truncated Parquet file"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert f"{path}: {problem}" in refusal(path)


def test_what_is_no_file_of_logs_is_refused_and_no_directory_is_replaced(tmp_path: Path) -> None:
    assert "log.eval: cannot be read: No such file" in refusal(tmp_path / "log.eval")
    assert "contains no log" in logs.refusal(tmp_path, "--to", tmp_path / "run")
    path = lines(tmp_path / "t.jsonl", [{"model": "a", "question": "q", "category": 1}])
    assert "is given twice" in logs.refusal(path, tmp_path / "." / "t.jsonl", "--to", tmp_path / "run")
    (config := tmp_path / "base.yaml").write_text("models: []\n")
    assert f"{config}: is a configuration, not a log; give it as --config, and the logs as FILE" in refusal(config)
    (tmp_path / "run").mkdir()
    assert "already exists; import into a new directory" in refusal(path)


@pytest.mark.parametrize("cut", [0.999, 0.7, 0.3, 0.02])
def test_a_cut_off_archive(tmp_path: Path, cut: float) -> None:
    path = inspect_log(tmp_path / "log.eval", [sample(epoch=epoch) for epoch in range(1, 20)])
    data = path.read_bytes()
    path.write_bytes(data[: int(cut * len(data))])
    assert f"{path}: is a damaged zip file, or cut off" in refusal(path)


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = inspect_log(tmp_path / "log.eval", [sample(), sample(epoch=2)], method=DEFLATED)
    data = bytearray(path.read_bytes())
    at = data.index(b"samples/q1_epoch_2.json") + 60
    data[at : at + 8] = b"\0" * 8
    path.write_bytes(data)
    assert f"{path}: samples/q1_epoch_2.json: is damaged" in refusal(path)


@pytest.mark.parametrize(("method", "claimed"), [(DEFLATED, 10), (ZSTANDARD, 10), (DEFLATED, None)])
def test_a_bomb_is_not_unpacked(tmp_path: Path, method: int, claimed: int | None) -> None:
    """Neither one that says how large it is, nor one that lies about it."""
    bomb = b'{"id": "' + b"a" * (48 << 20) + b'"}'
    path = archive(tmp_path / "log.eval", [START, ("samples/1_epoch_1.json", bomb)], method, claimed)
    del bomb
    peak, message = peak_of(lambda: refusal(path))
    assert peak < 40 << 20
    assert ("claims 50,331,6" in message) if claimed is None else ("is damaged" in message)


def test_what_needs_an_extra_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = inspect_log(tmp_path / "log.eval", [sample()])
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert "need an extra; pip install 'adaptive-eval[import]'" in refusal(log)
    taken(inspect_log(log, [sample()], method=DEFLATED), "--to", tmp_path / "run")


def test_members_may_not_overlap(tmp_path: Path) -> None:
    path = inspect_log(tmp_path / "log.eval", [sample()])
    data = path.read_bytes()
    at, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entries, tail = data[at:end] * 50, bytearray(data[end:])
    tail[8:12] = (150).to_bytes(2, "little") * 2
    tail[12:16] = len(entries).to_bytes(4, "little")
    path.write_bytes(data[:at] + entries + tail)
    assert "is a zip whose members overlap" in refusal(path)


@pytest.mark.parametrize("name", ["samples/../../../escaped.json", "/samples/absolute.json", "samples/\x1b[2Jred.json"])
def test_names_in_an_archive_are_no_paths_and_obey_no_terminal(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "log.eval", [START, (name, b"{}"), ("samples/1.json", b"{}")])
    message = refusal(path)
    assert "\x1b" not in message and "is not a sample: it must have an id" in message
    assert not (tmp_path.parent / "escaped.json").exists()


def test_a_sample_that_names_one_attachment_again_and_again_is_refused(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": [{"type": "text", "text": "attachment://a"}] * 3000}
    changes = {"output": {"choices": [{"message": message}]}, "attachments": {"a": "x" * 100_000}}
    path = inspect_log(tmp_path / "log.eval", [sample(), sample("q2", **changes)])
    assert "samples/q2_epoch_1.json: refers to its attachments too often" in refusal(path)


def test_halves_of_surrogate_pairs_are_kept_in_texts_and_tidied_in_names(tmp_path: Path) -> None:
    rows = [{"model": "m\ud800", "question": "q\udfff", "category": 1, "text": "\ud83d alone", "prompt": "\ud800?",
             "answer": "\ud800", "finish_reason": "\ud800", "replica": "\ud800", "extracted": "\ud800"}]  # fmt: skip
    taken(lines(tmp_path / "t.jsonl", rows), "--to", tmp_path / "run")
    assert list(outcomes(tmp_path / "run")) == [("m?", "q?", 0)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


RECORDS: dict[str, dict[str, object]] = {
    "inspect": {**header(), "samples": [sample()]},
    "lm_eval": lm_eval_row(0, ["4"]),
    "long": {"model": "a", "question": "q", "category": 1, "text": "x", "signals": {"a": 1}, "choices": ["x"]},
}  # fmt: skip
"""A record of every format that is JSON."""


AMISS: list[object] = [None, 5, 1e308, True, "", "x", [], [None], {}, {"": None}]


@pytest.mark.parametrize("form", RECORDS)
def test_a_record_with_a_wrong_value_is_read_or_named(tmp_path: Path, form: str) -> None:
    """Each value in each place in turn, and each place left out; what follows upon reading has a test below."""
    for at, record in enumerate(amiss(RECORDS[form])):
        path = lines(tmp_path / f"{at}.jsonl", [record])
        try:
            list(read_records(LogFile(path, "m")))
        except LogError as error:
            assert str(path) in str(error)


def amiss(value: object) -> Iterator[Any]:
    """The value with one part of it changed or left out, for every part."""
    if not isinstance(value, dict | list):
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        for other in (*AMISS, *amiss(part)):
            changed = copy.copy(value)
            changed[key] = other
            yield changed
        if isinstance(value, dict):
            yield {name: item for name, item in value.items() if name != key}


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), value=JSON)
def test_anything_anywhere_in_a_record_is_imported_or_named(tmp_path: Path, data: st.DataObject, value: object) -> None:
    """No value makes an import fail in another way than by a message."""
    form = data.draw(st.sampled_from(sorted(RECORDS)))
    record = copy.deepcopy(RECORDS[form])
    spoil(record, data, value)
    path = lines(tmp_path / "log.jsonl", [record])
    grader = "exact" if form == "lm_eval" else None
    try:
        import_logs(ImportRequest([f"m={path}"], tmp_path / "run", grader=grader))
    except LogError as error:
        assert str(path) in str(error)
    shutil.rmtree(tmp_path / "run", ignore_errors=True)


def spoil(record: object, data: st.DataObject, value: object) -> None:
    """Put a value in some place of a record."""
    while isinstance(record, dict | list) and record:
        keys = list(record) if isinstance(record, dict) else list(range(len(record)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(record[key], dict | list) or not record[key] or data.draw(st.booleans()):
            record[key] = value
            return
        record = record[key]


MIB = 2**20


@pytest.mark.parametrize(
    ("name", "begins", "ends", "message"),
    [
        ("t.csv", b"model,question,category\na,q,1\na,q,1\n", b"\n", "is not CSV: a row has more than 1,048,576 char"),
        ("t.csv", b'model,question,category\na,q,1\na,"', b'",1\n', "is not CSV: a row has more than 1,048,576 char"),
        ("t.json", b'{\n"eval":', b"}", "is not JSON: it has zero bytes"),
    ],
    ids=["between rows", "in a value", "in JSON"],
)
def test_a_hole_in_a_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, begins: bytes, ends: bytes, message: str
) -> None:
    """A file of some kilobytes on disk may be 4 GB long."""
    monkeypatch.setattr(reader, "MOST_BYTES", MIB)
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(begins)
        file.seek(256 * MIB)
        file.write(ends)
    peak, refused = peak_of(lambda: refusal(path))
    assert peak < 32 * MIB and message in refused


@pytest.mark.parametrize("row", [b"," * 500, b'"a\n",' * 500], ids=["one line", "many lines"])
def test_a_row_of_a_csv_file_has_few_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes) -> None:
    monkeypatch.setattr(readers, "MAX_COMMAS", 400)
    path = tmp_path / "t.csv"
    path.write_bytes(b"model,question,category\na,q,1\n" + row + b"\n")
    assert "is not CSV: a row has more than 400 commas" in refusal(path)
    path.write_bytes(b"model,question,category\n" + b"a,q,1\n" * 500)
    taken(path, "--to", tmp_path / "run")  # each row begins anew


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.parquet", "pipe.eval", "pipe.json"])
def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert "is a pipe or a device, and no file" in refusal(tmp_path / name)
    assert "/dev/zero: is a pipe or a device" in logs.refusal("/dev/zero", "--to", tmp_path / "run")


ODD = {
    "a date beyond Python's": pa.array([2**30, 5], pa.date32()),
    "a time beyond Python's": pa.array([2**40, 5], pa.timestamp("s")),
    "two fields of one name": pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"]),
    "no text": pa.array([b"\xff", b"x"], pa.binary()),
    "a list": pa.array([[[["x"]]], []]),
    "a day": pa.array([date(2024, 1, 1)] * 2),
}


@pytest.mark.parametrize("values", ODD.values(), ids=ODD)
@pytest.mark.parametrize("column", ["text", "trial", "signals", "choices"])
def test_odd_values_of_a_parquet_file_end_in_a_message(tmp_path: Path, column: str, values: pa.Array) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(
        pa.table({"model": ["a", "a"], "question": ["p", "q"], "category": [1, 0], column: values}), path
    )
    ended = imported(path, "--to", tmp_path / "run")
    assert ended.exit_code in (0, 2), ended.exception
    assert ended.exit_code == 0 or f"{path}: row" in ended.stderr


def repeated(text: str, times: int) -> pa.Array:
    """One text many times, which takes the bytes of one."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, dtype=np.int32)), pa.array([text]))


BOMBS = {
    "a list in one row": {"question": ["q"], "choices": pa.array([np.zeros(2**23, np.int8)], pa.list_(pa.int8()))},
    "one text in each row": {"question": [f"q{n}" for n in range(500)], "text": repeated("x" * (8 * MIB), 500)},
}


@pytest.mark.parametrize("columns", BOMBS.values(), ids=BOMBS)
def test_a_parquet_file_that_unpacks_to_far_more_is_refused(tmp_path: Path, columns: dict[str, object]) -> None:
    path = tmp_path / "t.parquet"
    rows = len(columns["question"])  # type: ignore[arg-type]
    parquet.write_table(pa.table({"model": ["a"] * rows, "category": [1] * rows, **columns}), path, compression="zstd")
    assert path.stat().st_size < 16_000
    allocated = pa.total_allocated_bytes()
    assert "far more than its size allows" in refusal(path)
    assert pa.total_allocated_bytes() - allocated < 8 * MIB
