"""`adaptive-eval verify RUN`: check that a stored run is intact."""

import typer

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli.shared import Run, report_errors
from adaptive_eval.record.lines import safe_line, several
from adaptive_eval.record.verified import verify_run

MAX_SHOWN = 50


def verify(run: Run) -> None:
    """Check RUN for damage: every stored row by its checksum, the database, and results.json. Nothing is changed.

    Exit code 0: all that can be checked is intact; 1: something is damaged, and every damage is listed.
    """
    with report_errors():
        found = verify_run(run)
    for note in found.notes:
        typer.echo(f"note: {safe_line(note)}")
    if not found.damages:
        unless = ", as far as it can be checked" if found.notes else ""
        stored = f"{several(found.trials, 'trial')}, {several(found.looks, 'look')}"
        typer.echo(f"{stored}, results, events, questions: intact{unless}")
        return
    for damage in found.damages[:MAX_SHOWN]:
        typer.echo(f"damaged: {safe_line(damage)}", err=True)
    if (more := len(found.damages) - MAX_SHOWN) > 0:
        typer.echo(f"and {more:,} more", err=True)
    if found.mend is not None:
        typer.echo(f"to mend: {safe_line(found.mend)}", err=True)
    places = several(len(found.damages), "place")
    typer.echo(
        f"error: {safe_line(str(run))} is damaged in {places}. Restore a copy of it, or start over with --fresh; where "
        "only results.json is damaged, remove it and run the same command again",
        err=True,
    )
    raise typer.Exit(ExitCode.FAILED)
