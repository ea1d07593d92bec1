"""Files of strangers cannot use up memory or time, nor end an import otherwise than by a message."""

import os
import tracemalloc
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from logs import imported
from pyarrow import parquet
from test_hostile import refusal

from adaptive_eval.exchange.tables import reader
from adaptive_eval.questions import readers

MIB = 2**20


def peak_of(action: Callable[[], object]) -> int:
    """Most bytes that Python had allocated at once."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("begins", "ends"), [(b"a,q,1\n", b"\n"), (b'a,"', b'",1\n')], ids=["hole between rows", "hole in a value"]
)
def test_a_hole_in_a_csv_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: bytes, ends: bytes
) -> None:
    """A file of some kilobytes on disk may be 4 GB long."""
    monkeypatch.setattr(reader, "MOST_BYTES", MIB)
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b"model,question,category\na,q,1\n" + begins)
        file.seek(64 * MIB)
        file.write(ends)
    message = ""

    def read() -> None:
        nonlocal message
        message = refusal(path)

    assert peak_of(read) < 16 * MIB
    assert "is not CSV: a row has more than 1,048,576 characters" in message


@pytest.mark.parametrize("row", [b"," * 500, b'"a\n",' * 500], ids=["one line", "many lines"])
def test_a_row_of_a_csv_file_has_few_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes) -> None:
    monkeypatch.setattr(readers, "MAX_COMMAS", 400)
    path = tmp_path / "t.csv"
    path.write_bytes(b"model,question,category\na,q,1\n" + row + b"\n")
    assert "is not CSV: a row has more than 400 commas" in refusal(path)
    path.write_bytes(b"model,question,category\n" + b"a,q,1\n" * 500)
    assert imported(path, "--to", tmp_path / "run").exit_code == 0, "each row begins anew"


def test_a_hole_in_a_json_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with path.open("wb") as file:
        file.write(b'{\n"eval":')
        file.seek(256 * MIB)
        file.write(b"}")
    assert peak_of(lambda: refusal(path)) < 64 * MIB
    assert "is not JSON: it has zero bytes" in refusal(path)


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.parquet", "pipe.eval", "pipe.json"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert "is a pipe or a device, and no file" in refusal(tmp_path / name)


def test_a_device_is_refused(tmp_path: Path) -> None:
    refused = imported("/dev/zero", "--to", tmp_path / "run")
    assert refused.exit_code == 2 and "/dev/zero: is a pipe or a device" in refused.stderr


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
