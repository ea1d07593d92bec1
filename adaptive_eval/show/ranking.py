"""The ranking as a text table that fits the width of a terminal."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from adaptive_eval.record.lines import Scale, safe_line
from adaptive_eval.record.results import ModelRow
from adaptive_eval.record.status import Standing
from adaptive_eval.show.text import cut_middle, fit_columns

RANKING = ("tier", "model", "score", "95% interval", "trials", "verdict")
WIDEST_NAME = 40
MIN_NAME = 6


def ranking_table(rows: Iterable[tuple[ModelRow, str, str]], scale: Scale, *, gated: bool) -> list[list[str]]:
    """Head and lines of a ranking of models, with verdicts; no tiers under a gate, which judges each model alone."""
    lines = [
        ["-" if row.score is None else str(row.tier), name, scale.score(row.score), scale.interval(row.lo, row.hi)]
        + [f"{row.trials:,}", verdict]
        for row, name, verdict in rows
    ]
    return [line[gated:] for line in ([*RANKING], *lines)]


def model_remark(row: ModelRow) -> str:
    """The remark behind a model's name, if any."""
    return " (set aside)" if row.set_aside is not None else " (recorded)" if row.recorded is not None else ""


class RankingText(NamedTuple):
    """A ranking as lines of text."""

    head: str
    lines: tuple[tuple[str, str], ...]
    """For each model the text before its verdict, and the verdict."""
    names: dict[str, str]
    """Names of the models as written there."""


def ranking_text(ranked: Sequence[Standing], scale: Scale, width: int | None, *, gated: bool) -> RankingText:
    """Fit the ranking into `width` columns: shorten verdicts, then omit trials, then cut names in the middle."""
    longest = min(WIDEST_NAME, max((cell_len(safe_line(one.row.name)) for one in ranked), default=0))
    brevity = 0
    while True:
        names = abbreviate([one.row.name for one in ranked], longest)
        rows = (
            (one.row, names[one.row.name], _verdict_in_short(one, names))
            if brevity
            else (one.row, names[one.row.name] + model_remark(one.row), ", ".join(map(str, one.clauses)))
            for one in ranked
        )
        table = ranking_table(rows, scale, gated=gated)
        if brevity > 1:
            table = [[*line[:-2], line[-1]] for line in table]  # the trials
        widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
        over = 0 if width is None else sum(widths) + 2 * len(widths) - 2 - width
        if over <= 0 or longest <= MIN_NAME:
            break
        brevity, longest = brevity + 1, longest if brevity < 2 else max(MIN_NAME, longest - max(1, over // 2))
    (head, _), *lines = (_line_cells(line, widths, table[0].index("model")) for line in table)
    return RankingText(f"{head}{RANKING[-1]}", tuple(lines), names)


def _line_cells(cells: Sequence[str], widths: Sequence[int], model: int) -> tuple[str, str]:
    *before, verdict = (
        fit_columns(text, width) if at == model else text.rjust(width)
        for at, (text, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "".join(f"{text}  " for text in before), verdict.lstrip()


def _verdict_in_short(standing: Standing, names: dict[str, str]) -> str:
    row, clauses = standing
    if row.set_aside is not None:
        return "set aside"
    return clauses[0].in_short(names) if clauses else "" if row.recorded is None else "recorded"


def abbreviate(names: Sequence[str], width: int) -> dict[str, str]:
    """Shorten names to `width` columns. Longer ones lose their middle, at a place that keeps them distinct; if there is
    none, they are numbered."""
    clean = {name: safe_line(name, len(name)) for name in names}
    for tail in sorted(range(width), key=lambda at: abs(at - (width - 1) // 2)):
        short = {name: cut_middle(text, width, tail) for name, text in clean.items()}
        if len(set(short.values())) == len(short):
            return short
    numbered = {name: f"#{at}" for at, name in enumerate(names, 1)}
    return {name: cut_middle(clean[name], max(width - len(at), 1), 0) + at for name, at in numbered.items()}
