"""The ranking as a text table that fits the width of a terminal, with price, tokens and seconds per answer."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from adaptive_eval.report.lines import Scale, amount, safe_line
from adaptive_eval.report.results import ModelRow
from adaptive_eval.report.status import Standing
from adaptive_eval.show.text import cut_middle, informative_columns, padded

RANKING = ("tier", "model", "score", "95% interval", "trials", "verdict")
PER_ANSWER = ("$/answer", "tokens/answer", "s/answer")
"""Columns after the interval; those without any value are omitted."""
MAX_NAME_WIDTH = 40
MIN_NAME_WIDTH = 6


def ranking_table(
    rows: Iterable[tuple[ModelRow, str, str]], scale: Scale, *, without_tiers: bool, per_answer: bool = True
) -> list[list[str]]:
    """Head and lines of a ranking of models, with verdicts; without tiers, if `finding.has_tiers` says so."""
    shown = list(rows)
    columns, cells = per_answer_columns([row for row, _, _ in shown] if per_answer else [])
    head = [*RANKING[:4], *columns, *RANKING[4:]]
    lines = [
        ["-" if row.tier is None else str(row.tier), name, scale.score(row.score), scale.interval(row.lo, row.hi)]
        + [*(cells[at] if columns else ()), f"{row.trials:,}", verdict]
        for at, (row, name, verdict) in enumerate(shown)
    ]
    return [line[without_tiers:] for line in (head, *lines)]


def per_answer_columns(rows: Sequence[ModelRow]) -> tuple[list[str], list[list[str]]]:
    """Head and cells of price, tokens and seconds per answer; a dash if a model has no such number."""
    prices, times = [row.usd_per_answer or 0.0 for row in rows], [row.seconds_per_answer or 0.0 for row in rows]
    cells = (
        [
            "-" if row.usd_per_answer is None else amount(row.usd_per_answer, prices),
            "-" if row.tokens_per_answer is None else f"{row.tokens_per_answer:,.0f}",
            "-" if row.seconds_per_answer is None else amount(row.seconds_per_answer, times, 0),
        ]
        for row in rows
    )
    return informative_columns(PER_ANSWER, cells)


def model_remark(row: ModelRow) -> str:
    """The remark after a model's name, or an empty string."""
    return " (set aside)" if row.set_aside is not None else " (recorded)" if row.recorded is not None else ""


class RankingText(NamedTuple):
    """A ranking as lines of text."""

    head: str
    lines: tuple[tuple[str, str], ...]
    """For each model the text before its verdict, and the verdict."""
    names: dict[str, str]
    """Names of the models as written in the lines."""
    per_answer: tuple[str, ...] = ()
    """A table of price, tokens and seconds per answer, if there is no room for them in the lines."""


def ranking_text(ranked: Sequence[Standing], scale: Scale, width: int | None, *, without_tiers: bool) -> RankingText:
    """Fit the ranking into `width` columns: shorten verdicts, omit trials, put the columns per answer into a table of
    their own, then cut names in the middle."""
    max_name = min(MAX_NAME_WIDTH, max((cell_len(safe_line(standing.row.name)) for standing in ranked), default=0))
    tried = [(brevity, max_name, per_answer) for per_answer in (True, False) for brevity in range(MAX_BREVITY + 1)]
    tried += [(MAX_BREVITY, name_width, False) for name_width in range(max_name - 1, MIN_NAME_WIDTH - 1, -1)]
    for brevity, name_width, per_answer in tried:
        ranking, over = _fit_ranking(ranked, scale, width, name_width, brevity, without_tiers, per_answer)
        if over <= 0:
            break
    return ranking if per_answer else ranking._replace(per_answer=_per_answer_lines(ranked, ranking.names))


MAX_BREVITY = 2
"""0: all columns; 1: verdicts are shortened; 2: the column of trials is omitted, too."""


def _fit_ranking(
    ranked: Sequence[Standing],
    scale: Scale,
    width: int | None,
    max_name: int,
    brevity: int,
    without_tiers: bool,
    per_answer: bool,
) -> tuple[RankingText, int]:
    """The ranking with names of up to `max_name` columns, and the number of columns by which it is too wide."""
    names = abbreviate([standing.row.name for standing in ranked], max_name)
    rows = (
        (standing.row, names[standing.row.name], _verdict_in_short(standing, names))
        if brevity
        else (
            standing.row,
            names[standing.row.name] + model_remark(standing.row),
            standing.verdict,
        )
        for standing in ranked
    )
    table = ranking_table(rows, scale, without_tiers=without_tiers, per_answer=per_answer)
    if brevity >= MAX_BREVITY:
        table = [[*line[:-2], line[-1]] for line in table]  # the trials
    cells = [*padded(table, [table[0].index("model")])]
    over = 0 if width is None else cell_len("  ".join(cells[0])) - width
    head, *lines = ("".join(f"{cell}  " for cell in line[:-1]) for line in cells)
    verdicts = (line[-1] for line in table[1:])
    return RankingText(f"{head}{RANKING[-1]}", tuple(zip(lines, verdicts, strict=True)), names), over


def _per_answer_lines(ranked: Sequence[Standing], names: dict[str, str]) -> tuple[str, ...]:
    """Price, tokens and seconds per answer as a table with names; empty if none is known."""
    columns, cells = per_answer_columns([standing.row for standing in ranked])
    if not columns:
        return ()
    table = [
        ["model", *columns],
        *([names[standing.row.name], *row] for standing, row in zip(ranked, cells, strict=True)),
    ]
    return tuple(map("  ".join, padded(table, [0])))


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
