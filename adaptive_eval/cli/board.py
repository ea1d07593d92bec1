"""`adaptive-eval board RUN...`: the rankings of several runs side by side, their average and their history."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import orjson
import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.files import write_whole

if TYPE_CHECKING:
    from adaptive_eval.record.board import Board

FORMAT = "adaptive-eval.board/1"
Form = Literal["text", "html", "md", "json"]


def board(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories, or folders of runs.", metavar="RUN...", show_default=False),
    ],
    kind: Annotated[Form, typer.Option("--format", help="What to write.")] = "text",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file, or - for the terminal; default: the terminal, html: board.html."
        ),
    ] = None,
) -> None:
    """Rank the models of RUNs for each benchmark, with the average over benchmarks and the history.

    Runs with the same questions under the same rubric are of one benchmark; models are known by their names. Of each
    model the newest run that is over counts, and the earlier ones are its history. RUNs may be going on. A folder
    is kept as a board by the same command after each run; its page, board.html, is written into it.
    """
    with reported(*runs):
        # imported here: `--help` needs none of it
        from adaptive_eval.record.board import board_of
        from adaptive_eval.record.board_runs import gather

        found = board_of(*gather(runs))
        target = output or (_page_of(runs) if kind == "html" else Path("-"))
        if kind == "text" and target == Path("-"):
            _show(found)
            return
        text = _rendered(found, kind)
        if target == Path("-"):
            typer.echo(text, nl=False)
        else:
            write_whole(target, text.encode("utf-8", "replace"), "Mend that, or give another --output")
            typer.echo(str(target))


def _page_of(runs: list[Path]) -> Path:
    """In the folder of the runs, where there is one."""
    from adaptive_eval.store.postgres.address import beside
    from adaptive_eval.store.whereabouts import holds_ledger

    return beside(runs[0], "board.html") if len(runs) == 1 and not holds_ledger(runs[0]) else Path("board.html")


def _show(found: "Board") -> None:
    from rich.console import Console

    from adaptive_eval.show.board import show_board

    show_board(found, Console(highlight=False, markup=False))


def _rendered(found: "Board", kind: Form) -> str:
    match kind:
        case "html":
            from adaptive_eval.record.build import iso_time
            from adaptive_eval.show.page.board import board_page

            return board_page(found, iso_time(time.time()))
        case "json":
            return orjson.dumps({"format": FORMAT, "board": found}, option=orjson.OPT_APPEND_NEWLINE).decode()
        case "md" | "text":
            from adaptive_eval.show.board import board_markdown

            return board_markdown(found)
