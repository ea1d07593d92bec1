"""Results of a study on the terminal and as files: CSV, JSON, and figures if matplotlib is installed."""

from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adaptive_eval.base.files import write_whole
from adaptive_eval.exchange.tables.writer import csv_text
from adaptive_eval.record.lines import safe_line
from adaptive_eval.study.experiment import Cell, Criterion, DataTable, Experiment

FORMAT = "adaptive-eval.study/1"
MEND = "Mend that, or give another --output"
HOLDS = {True: "yes", False: "no", None: ""}
MAX_ROWS = 60


def show_experiment(experiment: Experiment, console: Console) -> None:
    """Show an experiment: its settings, tables, criteria and notes."""
    settings = ", ".join(f"{name} {cell_text(value)}" for name, value in experiment.settings.items())
    console.print(Text(safe_line(experiment.title, 200), style="bold"))
    console.print(Text(safe_line(settings, 300)))
    for table in experiment.tables:
        if table.shown:
            console.print(_table(table))
    if experiment.criteria:
        console.print(_criteria(experiment.criteria))
    for note in experiment.notes:
        console.print(Text(safe_line(note, 600)))


def _table(data: DataTable) -> Table:
    table = Table(title=Text(safe_line(data.title, 200)), title_justify="left")
    for place, column in enumerate(data.columns):
        table.add_column(Text(safe_line(column)), justify="left" if place == 0 else "right")
    for row in data.rows[:MAX_ROWS]:
        table.add_row(*(Text(cell_text(cell)) for cell in row))
    if len(data.rows) > MAX_ROWS:
        table.caption = f"and {len(data.rows) - MAX_ROWS} more rows, in the CSV file"
    return table


def _criteria(criteria: tuple[Criterion, ...]) -> Table:
    table = Table(title="measured, and required", title_justify="left")
    for name, justify in (("what", "left"), ("measured", "right"), ("required", "right"), ("holds", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for one in criteria:
        table.add_row(Text(safe_line(one.what, 200)), Text(cell_text(one.found)), Text(one.required), HOLDS[one.holds])
    return table


def cell_text(cell: Cell) -> str:
    """Format a value: floats with three or four digits, missing ones as a dash."""
    if cell is None or cell != cell:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4f}" if abs(cell) < 2.0 else f"{cell:,.2f}" if abs(cell) < 1000.0 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else safe_line(cell, 200)


def has_figures() -> bool:
    """Whether figures can be drawn: they need an extra."""
    return find_spec("matplotlib") is not None


def write_experiment(experiment: Experiment, folder: Path) -> Iterator[Path]:
    """Write tables as CSV, everything as JSON, and figures, if they can be drawn, as SVG and PNG."""
    for table in experiment.tables:
        yield _write(folder / f"{table.name}.csv", csv_text(table.columns, table.rows).encode("utf-8", "replace"))
    found = {field.name: getattr(experiment, field.name) for field in fields(experiment) if field.name != "figures"}
    data = {"format": FORMAT, "study": found}
    yield _write(folder / f"{experiment.name}.json", orjson.dumps(data, option=orjson.OPT_INDENT_2))
    if has_figures():
        from adaptive_eval.show.study_figures import draw_study_figures

        yield from draw_study_figures(experiment.figures, folder, MEND)


def _write(path: Path, data: bytes) -> Path:
    write_whole(path, data, MEND)
    return path
