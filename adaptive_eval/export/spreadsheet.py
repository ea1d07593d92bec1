"""CSV for spreadsheets: what a model wrote stays text there, whatever it looks like.

A cell that begins like a formula (=, +, -, @ and their full-width twins, also after white space) is run by the
programs that open it, so such a text gets an apostrophe in front. Numbers are numbers. Line breaks stay within quotes,
as one character each.
"""

import csv
import json
from pathlib import Path

from adaptive_eval.export.rows import columns, rows
from adaptive_eval.export.source import Source, Told

FORMULA = frozenset("=+-@＝＋－＠")
APOSTROPHE = "'"


def write_csv(source: Source, path: Path, texts: bool, told: Told) -> None:
    """One row a trial."""
    names = list(columns(texts))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for number, row in enumerate(rows(source, texts), 1):
            writer.writerow([cell(row[name]) for name in names])
            told(number)


def cell(value: object) -> object:
    """A value as a spreadsheet may have it."""
    if isinstance(value, dict):
        value = json.dumps(value, sort_keys=True) if value else None
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return APOSTROPHE + text if text.lstrip()[:1] in FORMULA or text[:1] in ("\t", "\n") else text
