"""The ranking as CSV, one line a model."""

import csv
import io
from dataclasses import fields

from adaptive_eval.reading import RunView
from adaptive_eval.results.types import ModelRow

NOT_IN_A_CELL = {"signals"}
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for a formula at the beginning of a text."""


def ranking_csv(view: RunView) -> str:
    """Every number of results.json about the models; those of signals become columns of their own."""
    models = () if view.results is None else view.results.models
    columns = [one.name for one in fields(ModelRow) if one.name not in NOT_IN_A_CELL]
    signals = sorted({signal for row in models for signal in row.signals})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *signals])
    for row in models:
        writer.writerow(
            [*(harmless(getattr(row, name)) for name in columns), *(row.signals.get(s, 0) for s in signals)]
        )
    return text.getvalue()


def harmless(value: object) -> object:
    """A value for a spreadsheet: a text that it would take for a formula gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
