"""Parquet, one row a trial; grader signals are JSON texts, since their names differ from grader to grader."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from adaptive_eval.export.rows import TEXTS, Row, columns, rows
from adaptive_eval.export.source import Source, Told
from adaptive_eval.extras import load_pyarrow

MOST_ROWS = 10_000
MOST_CHARACTERS = 16 * 2**20
"""A row group has at most so many rows, and about so much text: that much is in memory."""


def write_parquet(source: Source, path: Path, texts: bool, told: Told) -> None:
    """One row a trial, in row groups."""
    pyarrow, parquet = load_pyarrow()
    types = {"text": pyarrow.string(), "integer": pyarrow.int64(), "number": pyarrow.float64()}
    types["mapping"] = types["text"]
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns(texts).items()])
    written = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(map(_flat, rows(source, texts))):
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            written += len(group)
            told(written)


def _flat(row: Row) -> Row:
    return row | {"signals": json.dumps(row["signals"], sort_keys=True)}


def _groups(many: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    characters = 0
    for row in many:
        group.append(row)
        characters += sum(len(str(row.get(name) or "")) for name in TEXTS)
        if len(group) == MOST_ROWS or characters >= MOST_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
