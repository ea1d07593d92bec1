"""`adaptive-eval preferences TABLE`: rank models by votes between two of their answers."""

from collections.abc import Iterator
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Literal

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.exchange.preferences import RankedPreferences, rank_preferences
from adaptive_eval.record.lines import several
from adaptive_eval.record.scale import Scale
from adaptive_eval.show.text import markdown_cell, markdown_table, without_markup, wrap_lines

ONE_SIDED_95 = 1.645
SHARE = Scale(0.0, 1.0)
COVERS = (
    "Score: the share of votes that a model wins, if it meets every other one equally often; a tie is half a win. The "
    "interval is for {other} of this kind. It does not cover what all voters have in common: if people like these are "
    "wrong about a model, so is the table. Neighbours are compared once, at z = 1.645: do not collect votes until one "
    "is called better."
)


def preferences(
    table: Annotated[Path, typer.Argument(help="CSV, JSONL or Parquet, one row a vote.", metavar="TABLE")],
    kind: Annotated[Literal["text", "md"], typer.Option("--format", help="What to print.")] = "text",
) -> None:
    """Rank models by people's preferences between two answers: a table with one row a vote.

    Its columns are question, model_a, model_b and winner: model_a, model_b, tie, or the name of a model. The ranking is
    that of Bradley and Terry, corrected for the side that was shown first.
    """
    with reported():
        document = "\n\n".join(_parts(rank_preferences(table)))
        width = get_terminal_size().columns
        typer.echo(document if kind == "md" else wrap_lines(without_markup(document), width))


def _parts(ranked: RankedPreferences) -> Iterator[str]:
    found = ranked.found
    votes, models = several(ranked.total, "vote"), several(len(ranked.models), "model")
    asked = "" if ranked.questions is None else f" on {several(ranked.questions, 'question')}"
    yield f"{votes} between {models}{asked}; {several(ranked.ties, 'tie')}."
    yield markdown_table(("tier", "model", "score", "95% interval", "votes", "verdict"), _rows(ranked), 2, last=True)
    if found.first == found.first:
        half = TWO_SIDED_95 * found.first_sigma
        interval = SHARE.interval(found.first - half, found.first + half)
        yield (
            f"Between equal models the first side wins {SHARE.score(found.first)} ({interval}). The scores are "
            "corrected for that."
        )
    else:
        yield "Which side stood first cannot be told from who won, so the scores are not corrected for that."
    yield COVERS.format(other="other votes" if ranked.questions is None else "other votes on other questions")


def _rows(ranked: RankedPreferences) -> Iterator[list[str]]:
    found, tier = ranked.found, 0
    order = found.order.tolist()
    for place, model in enumerate(order):
        better = place + 1 < len(order) and found.z[model, order[place + 1]] >= ONE_SIDED_95
        starts = place == 0 or found.z[order[place - 1], model] >= ONE_SIDED_95
        tier += starts
        below = "" if place + 1 == len(order) else markdown_cell(ranked.models[order[place + 1]], 40)
        yield [
            str(tier),
            markdown_cell(ranked.models[model], 40),
            SHARE.score(found.score[model]),
            SHARE.interval(found.lo[model], found.hi[model]),
            f"{ranked.votes[model]:,}",
            f"better than {below}" if better else f"not told apart from {below}" if below else "",
        ]
