"""Tables row by row: JSONL, CSV and Parquet, each row with its place; no more than a row is in memory."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from adaptive_eval.extras import load_pyarrow
from adaptive_eval.importing.bounded import MOST_BYTES, opened, parsed
from adaptive_eval.importing.record import LogFile

Row = Mapping[str, Any]
Rows = Iterator[tuple[str, Row]]
PARQUET_MAGIC = b"PAR1"
BOM = b"\xef\xbb\xbf"
MOST_HEADER = 2**16
BATCH = 64
"""Rows of a Parquet file that are in memory: a row may have a thousand answers."""


def json_rows(file: LogFile) -> Rows:
    """The objects of a JSONL file."""
    with opened(file) as handle:
        for number, line in _lines(file, handle):
            place = f"line {number}"
            row = parsed(file, line.removeprefix(BOM) if number == 1 else line, place)
            if not isinstance(row, dict):
                raise file.refuse("is no JSON object; a JSONL file has one a line", place)
            yield place, row


def _lines(file: LogFile, handle: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Lines that hold something, cut at line feeds only."""
    size = max(handle.seek(0, 2), 1)
    handle.seek(0)
    number, read = 0, 0
    while line := handle.readline(MOST_BYTES):
        number += 1
        read += len(line)
        if len(line) == MOST_BYTES:
            raise file.refuse(f"is longer than {MOST_BYTES:,} bytes", f"line {number}")
        file.share = read / size
        if line.strip():
            yield number, line


def csv_columns(file: LogFile) -> frozenset[str]:
    """The header of a CSV file."""
    with opened(file) as handle:
        line = handle.readline(MOST_HEADER)
    try:
        return frozenset(next(csv.reader([line.decode("utf-8-sig")]), []))
    except (csv.Error, UnicodeDecodeError) as error:
        raise file.refuse("is no text in UTF-8 with a header of comma-separated names", "line 1") from error


def csv_rows(file: LogFile) -> Rows:
    """The rows of a CSV file by its header; an empty cell has no key."""
    limit = csv.field_size_limit(MOST_BYTES)
    try:
        with opened(file) as handle:
            yield from _csv_rows(file, handle)
    except csv.Error as error:
        raise file.refuse(f"is not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise file.refuse("is not UTF-8; save it as UTF-8") from error
    finally:
        csv.field_size_limit(limit)


def _csv_rows(file: LogFile, handle: IO[bytes]) -> Rows:
    size = max(handle.seek(0, 2), 1)
    handle.seek(0)
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    header = next(reader, [])
    if len(set(header)) < len(header):
        raise file.refuse(f"must name each column once, but its header is {', '.join(header)}", "line 1")
    end = reader.line_num
    for values in reader:
        place, end = f"line {end + 1}", reader.line_num
        if not values:
            continue
        if len(values) != len(header):
            raise file.refuse(f"has {len(values)} values, but the header has {len(header)}", place)
        file.share = handle.tell() / size
        yield place, {key: value for key, value in zip(header, values, strict=True) if value != ""}
    text.detach()


def parquet_rows(file: LogFile, columns: Sequence[str] | None = None) -> Rows:
    """The rows of a Parquet file; of nested columns (`a.b`) only those that are named, where it has them."""
    pyarrow, parquet = load_pyarrow()
    try:
        with parquet.ParquetFile(file.path) as table:
            number, count = 0, max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(batch_size=BATCH, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    file.share = number / count
                    yield f"row {number}", row
    except OSError as error:
        raise file.refuse(f"cannot be read: {error}") from error
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise file.refuse(f"is a damaged Parquet file, or cut off: {error}") from error


def parquet_columns(file: LogFile) -> frozenset[str]:
    """The names of its columns."""
    pyarrow, parquet = load_pyarrow()
    try:
        return frozenset(parquet.read_schema(file.path).names)
    except (OSError, pyarrow.ArrowException) as error:
        raise file.refuse(f"is a damaged Parquet file, or cut off: {error}") from error
