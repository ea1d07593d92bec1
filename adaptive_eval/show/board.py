"""A board as sheets, which are tables with a title and remarks; and these on a terminal and as Markdown."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from adaptive_eval.record.board import APART, AverageRow, Benchmark, Board
from adaptive_eval.record.board_runs import RunOnBoard, RunScore
from adaptive_eval.record.lines import safe_line, several
from adaptive_eval.record.scale import Scale
from adaptive_eval.show.text import count, informative_columns, markdown_cell, markdown_table

RUNS_SHOWN = 6
"""In a table; the page draws all, and JSON has all."""
MOST_NOTES = 20
LONG = 600
APART_TOLD = f"a new tier begins where neighbours are {APART:g} standard errors apart, by a single look"


class BoardTable(NamedTuple):
    """A table for people; its texts are as they came from outside, and whoever renders them makes them harmless."""

    title: str
    head: list[str]
    rows: list[list[str]]
    texts: int
    """So many columns are texts, the others numbers."""
    after: list[str]
    history: Benchmark | None = None
    """Whose history it is."""


def sheets_of(board: Board) -> Iterator[BoardTable]:
    """The average, then benchmark by benchmark its ranking and its history."""
    if len(board.benchmarks) > 1 and board.average:
        yield _overall(board)
    for one in board.benchmarks:
        yield _ranking(one)
        if len(one.runs) > 1:
            yield _models_by_run(one)
            yield _runs(one)


def notes_of(board: Board) -> list[str]:
    """What else is to be known, and what could not be read."""
    told = [*board.notes, *(f"{one.name} is left out: {one.why}" for one in board.unread)]
    more = len(told) - MOST_NOTES
    return told if more <= 0 else [*told[:MOST_NOTES], f"and {more} more, which --format json has"]


def headline(board: Board) -> str:
    """What the board is made of, in a line."""
    runs = [run for one in board.benchmarks for run in one.runs]
    going = sum(run.status == "running" for run in runs)
    parts = [
        several(len(board.average), "model"),
        several(len(board.benchmarks), "benchmark"),
        several(len(runs), "run"),
    ]
    return ", ".join([*parts, *([f"{going} of them going on"] if going else [])])


def _overall(board: Board) -> BoardTable:
    scored = [one for one in board.benchmarks if one.models]
    scale = _scale(scored[0]) if scored else Scale(0.0, 1.0)
    head = ["rank", "tier", "model", "average", "95% interval", "like these", *(one.name for one in scored)]
    places = [{one.model: one for one in benchmark.models} for benchmark in scored]
    scales = [_scale(one) for one in scored]
    rows = []
    for row in board.average:
        cells = [_placed(own.get(row.model), scale_of) for own, scale_of in zip(places, scales, strict=True)]
        rows.append([*_averaged(row, scale), *cells])
    head, rows = informative_columns(head, rows)
    if board.no_average is not None:
        said = f"There is no average: {board.no_average}."
    else:
        said = (
            f"Average: the mean of the scores on {len(scored)} benchmarks, with its 95% interval on these questions; "
            f"like these: its standard error on questions like these. In this order {APART_TOLD}. In brackets the rank "
            "on each benchmark. A model without a score on one of them has no average."
        )
    return BoardTable("All benchmarks", head, rows, head.index("model") + 1, [said])


def _averaged(row: AverageRow, scale: Scale) -> list[str]:
    known = row.score is not None
    return [
        str(row.rank or "-"),
        str(row.tier or "-"),
        row.model,
        scale.score(row.score),
        scale.interval(row.lo, row.hi) if known else "-",
        scale.width(row.sampled_sigma),
    ]


def _placed(one: RunScore | None, scale: Scale) -> str:
    return "-" if one is None else f"{scale.score(one.score)} ({one.rank})"


def _scale(one: Benchmark) -> Scale:
    return Scale.of(one.weights)


def _ranking(one: Benchmark) -> BoardTable:
    scale = _scale(one)
    rows = [
        [
            str(row.rank),
            str(row.tier),
            row.model + (" (set aside)" if row.set_aside else " (recorded)" if row.recorded else ""),
            row.run if one.decided_by is None else "",
            scale.score(row.score),
            scale.interval(row.lo, row.hi),
            scale.width(row.sampled_sigma),
            f"{row.trials:,}",
        ]
        for row in one.models
    ]
    head = ["rank", "tier", "model", "run", "score", "95% interval", "like these", "trials"]
    head, rows = informative_columns(head, rows)
    return BoardTable(f"{one.name}: {several(one.questions, 'question')}", head, rows, 3 + ("run" in head), _says(one))


def _says(one: Benchmark) -> list[str]:
    if not one.models:
        said = "No look was taken yet."
    elif one.decided_by is not None:
        said = f"Ranks and tiers are those that the run {one.decided_by} has decided."
    else:
        said = (
            "Scores of several runs: of each model that of the newest run that has finished or was imported, or else "
            f"of the newest. No run has compared all of them: {APART_TOLD}, which is no run's promise."
        )
    return [said, *(f"Note: {note}." for note in one.notes[:MOST_NOTES])]


def _models_by_run(one: Benchmark) -> BoardTable:
    scale = _scale(one)
    shown = one.runs[-RUNS_SHOWN:]
    scores = [{row.model: row for row in run.models} for run in shown]
    changed = {row.model: row for row in one.changes}
    rows = []
    for row in one.models:
        change = changed.get(row.model)
        told = "-"
        if change is not None:
            told = f"{_signed(scale, change.difference)} ({_signed(scale, change.lo)} .. {_signed(scale, change.hi)})"
        rows.append([row.model, *(_placed(own.get(row.model), scale) for own in scores), told])
    head = ["model", *(run.name for run in shown), "last change"]
    hidden = len(one.runs) - len(shown)
    after = [
        "Score and rank by run, oldest first; the last change is that between the two newest scores, with its 95% "
        "interval. `adaptive-eval compare RUN_A RUN_B` says what else differs between two runs."
    ]
    if hidden:
        after.append(f"{several(hidden, 'earlier run')} not shown; the list below and --format json have all.")
    return BoardTable(f"{one.name}: by run", head, rows, 1, after, history=one)


def _signed(scale: Scale, value: float) -> str:
    return f"{'+' if value > 0 else ''}{scale.width(value)}"


def _runs(one: Benchmark) -> BoardTable:
    rows = [_run(run) for run in reversed(one.runs)]
    return BoardTable(f"{one.name}: runs", ["run", "begun", "status", "first", "models", "trials"], rows, 4, [])


def _run(run: RunOnBoard) -> list[str]:
    why = "" if run.reason is None else f": {run.reason.replace('_', ' ')}"
    best = run.models[0].model if run.models else "-"
    return [
        run.name,
        run.created[:16].replace("T", " "),
        f"{run.status}{why}",
        best,
        str(len(run.models)),
        count(run.trials),
    ]


def board_markdown(board: Board) -> str:
    """The whole, fit for a pull request."""
    parts = ["# Board", f"{headline(board)}."]
    for sheet in sheets_of(board):
        parts.append(f"## {markdown_cell(sheet.title)}")
        if sheet.rows:
            rows = [[markdown_cell(cell) for cell in row] for row in sheet.rows]
            parts.append(markdown_table([markdown_cell(cell) for cell in sheet.head], rows, left=sheet.texts))
        parts += [_remark(text) for text in sheet.after]
    if notes := notes_of(board):
        parts.append("\n".join(f"- {markdown_cell(note, LONG)}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _remark(text: str) -> str:
    """Code keeps its marks, everything else is plain text."""
    before, mark, rest = text.partition("`")
    code, closed, after = rest.partition("`")
    if not mark or not closed:
        return markdown_cell(text, LONG)
    return f"{markdown_cell(before, LONG)}`{code}`{markdown_cell(after, LONG)}"


def show_board(board: Board, console: Console) -> None:
    """Show a board on a terminal."""
    console.print(Text(headline(board), style="bold"))
    for sheet in sheets_of(board):
        console.print()
        console.print(_table(sheet))
        for text in sheet.after:
            console.print(Text(safe_line(text, LONG)))
    for note in notes_of(board):
        console.print(Text(f"! {safe_line(note, LONG)}"))


def _table(sheet: BoardTable) -> Table:
    table = Table(title=Text(safe_line(sheet.title)), title_justify="left")
    for place, name in enumerate(sheet.head):
        table.add_column(Text(safe_line(name)), justify="left" if place < sheet.texts else "right", overflow="fold")
    for row in sheet.rows:
        table.add_row(*(Text(safe_line(cell)) for cell in row))
    return table


def scores_by_run(one: Benchmark, models: Sequence[str]) -> dict[str, list[RunScore | None]]:
    """The history of each model, run by run, None where a run lacks it."""
    by_run = [{row.model: row for row in run.models} for run in one.runs]
    return {model: [own.get(model) for own in by_run] for model in models}
