"""The ranking as CSV, one line a model."""

import csv
import io
from dataclasses import fields

from adaptive_eval.reading import RunView
from adaptive_eval.results.types import ModelRow
from adaptive_eval.spreadsheet import harmless

SPREAD = ("signals", "sampling")
"""Mappings, which become columns of their own."""


def ranking_csv(view: RunView) -> str:
    """Everything in results.json about the models."""
    models = () if view.results is None else view.results.models
    columns = [one.name for one in fields(ModelRow) if one.name not in SPREAD]
    signals = sorted({signal for row in models for signal in row.signals})
    settings = list(dict.fromkeys(setting for row in models for setting in row.sampling))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(harmless, [*columns, *signals, *settings]))
    for row in models:
        values = [getattr(row, name) for name in columns]
        values += [row.signals.get(signal, 0) for signal in signals]
        values += [row.sampling.get(setting) for setting in settings]
        writer.writerow(map(harmless, values))
    return text.getvalue()
