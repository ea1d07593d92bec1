"""The page of a board: one file without a script, so that nothing that it shows can run."""

from collections.abc import Iterator, Sequence
from html import escape

from adaptive_eval.record.board import Benchmark, Board
from adaptive_eval.record.board_runs import RunScore
from adaptive_eval.record.lines import safe_line
from adaptive_eval.record.scale import Scale
from adaptive_eval.show.board import LONG, BoardTable, headline, notes_of, scores_by_run, sheets_of
from adaptive_eval.show.page.documents import STATIC, still_page

LINES = 10
"""Models that are drawn; the style sheet has as many lines."""
LONG_NAME = 40
WIDTH, HEIGHT, LEFT, EDGE = 640, 240, 64, 16


def board_page(board: Board, made: str) -> str:
    """One file with everything that the board has but the older runs' scores, which are drawn."""
    return still_page("Board · adaptive-eval", "".join(_body(board, made)), (STATIC / "board.css").read_text("utf-8"))


def _body(board: Board, made: str) -> Iterator[str]:
    yield f'<header class="top"><p class="brand">adaptive-eval</p><h1>Board</h1><p>{_text(headline(board))}; '
    yield f"{_text(made)}</p></header>\n<main>\n"
    for sheet in sheets_of(board):
        yield from _section(sheet)
    if notes := notes_of(board):
        yield '<section class="sheet" aria-label="Notes"><h2>Notes</h2><ul>'
        yield "".join(f"<li>{_text(note, LONG)}</li>" for note in notes)
        yield "</ul></section>\n"
    yield "</main>\n"


def _section(sheet: BoardTable) -> Iterator[str]:
    title = _text(sheet.title)
    yield f'<section class="sheet" aria-label="{title}"><h2>{title}</h2>\n'
    if sheet.history is not None:
        yield from _drawn(sheet.history)
    if sheet.rows:
        # scrolled by keyboard too where it is wider than the page
        yield f'<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table class="board">'
        yield f'<caption class="unseen">{title}</caption>\n<thead><tr>'
        yield "".join(f'<th scope="col"{_kind(sheet, at)}>{_text(cell)}</th>' for at, cell in enumerate(sheet.head))
        yield "</tr></thead>\n<tbody>\n"
        named = sheet.head.index("model") if "model" in sheet.head else 0
        for row in sheet.rows:
            cells = (
                _heading(cell) if at == named else f"<td{_kind(sheet, at)}>{_text(cell)}</td>"
                for at, cell in enumerate(row)
            )
            yield f"<tr>{''.join(cells)}</tr>\n"
        yield "</tbody></table></div>\n"
    for text in sheet.after:
        yield f'<p class="note">{_text(text, LONG)}</p>\n'
    yield "</section>\n"


def _heading(name: str) -> str:
    """What names a row; one that is long takes several lines."""
    kind = ' class="long"' if len(name) > LONG_NAME else ""
    return f'<th scope="row"{kind}>{_text(name)}</th>'


def _kind(sheet: BoardTable, at: int) -> str:
    return "" if at < sheet.texts else ' class="digits"'


def _text(text: str, longest: int = 200) -> str:
    return escape(safe_line(text, longest))


# -- the history, drawn ----------------------------------------------------------------------------------------------


def _drawn(one: Benchmark) -> Iterator[str]:
    """A line for each model over the runs, oldest on the left, with the 95% interval at each run."""
    models = [row.model for row in one.models[:LINES]]
    history = scores_by_run(one, models)
    known = [row for scores in history.values() for row in scores if row is not None]
    if not known:
        return
    scale = Scale.of(one.weights)
    low, high = max(min(row.lo for row in known), scale.low), min(max(row.hi for row in known), scale.high)
    place = _Places(low, high if high > low else low + 1.0, len(one.runs))
    yield f'<figure class="chart"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    yield f'aria-label="{_text(one.name)}: scores by run, which the table has as numbers">\n'
    for share in (0.0, 0.5, 1.0):
        value = low + share * (place.high - low)
        y = place.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{scale.score(value)}</text>\n'
    for number, scores in enumerate(history.values()):
        yield f'<g class="line line-{number}">{"".join(_line(scores, place, number))}</g>\n'
    yield '</svg><figcaption><ul class="key">'
    for number, model in enumerate(models):
        sample = '<svg viewBox="0 0 26 8" width="26" height="8" aria-hidden="true"><path d="M0 4H26"/></svg>'
        yield f'<li class="line-{number}">{sample} {_text(model)}</li>'
    yield "</ul>"
    if len(one.models) > LINES:
        yield f"The first {LINES} of {len(one.models)} models. "
    yield "Scores with their 95% intervals, the oldest run on the left.</figcaption></figure>\n"


class _Places:
    """Where a score of a run is drawn."""

    def __init__(self, low: float, high: float, runs: int) -> None:
        self.low, self.high, self.runs = low, high, runs

    def x(self, run: int) -> float:
        return LEFT + EDGE + (WIDTH - LEFT - 2 * EDGE) * run / max(self.runs - 1, 1)

    def y(self, score: float) -> float:
        within = min(max(score, self.low), self.high)
        return EDGE + (HEIGHT - 2 * EDGE) * (self.high - within) / (self.high - self.low)


def _line(scores: Sequence[RunScore | None], place: _Places, number: int) -> Iterator[str]:
    points = [(place.x(run) + 2 * (number - LINES / 2), one) for run, one in enumerate(scores) if one is not None]
    yield f'<path d="M{" L".join(f"{x:.1f} {place.y(one.score):.1f}" for x, one in points)}"/>' if points else ""
    for x, one in points:
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{place.y(one.lo):.1f}" y2="{place.y(one.hi):.1f}"/>'
        yield f'<circle cx="{x:.1f}" cy="{place.y(one.score):.1f}" r="3"/>'
