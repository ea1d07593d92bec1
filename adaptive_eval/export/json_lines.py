"""JSON lines, one trial a line."""

from pathlib import Path

import orjson

from adaptive_eval.export.rows import rows
from adaptive_eval.export.source import Source, Told


def write_jsonl(source: Source, path: Path, texts: bool, told: Told) -> None:
    """One object a trial, with a key for every column."""
    with path.open("wb") as file:
        for number, row in enumerate(rows(source, texts), 1):
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            told(number)
