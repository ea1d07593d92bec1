"""The trials as CSV, one line a trial."""

import csv
import json
from pathlib import Path

from adaptive_eval.export.rows import columns, rows
from adaptive_eval.export.source import Source, Told
from adaptive_eval.spreadsheet import harmless


def write_csv(source: Source, path: Path, texts: bool, told: Told) -> None:
    """One row a trial."""
    names = list(columns(texts))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for number, row in enumerate(rows(source, texts), 1):
            writer.writerow([harmless(_plain(row[name])) for name in names])
            told(number)


def _plain(value: object) -> object:
    """A mapping as JSON, for which a cell has no other form."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True) if value else None
    return value
