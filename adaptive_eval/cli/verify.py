"""`adaptive-eval verify RUN`: check that a stored run is intact."""

import typer

from adaptive_eval.base.errors import NEW_RUN, ExitCode
from adaptive_eval.cli.shared import Run, report_errors
from adaptive_eval.report.lines import safe_line, several
from adaptive_eval.report.verified import verify_run

MAX_LINES = 50


def verify(run: Run) -> None:
    """Check RUN for damage. It checks the database, results.json, every stored row by its checksum, and sums against
    the trials. Nothing is changed.

    Exit code 0: everything that can be checked is intact; 1: something is damaged; all damage is listed.
    """
    with report_errors():
        report = verify_run(run)
    for note in report.notes:
        typer.echo(f"note: {safe_line(note)}")
    if not report.damages:
        limit = ", as far as it can be checked" if report.notes else ""
        stored = f"{several(report.trials, 'trial')}, {several(report.looks, 'look')}"
        typer.echo(f"{stored}, results, events, questions: intact{limit}")
        return
    for damage in report.damages[:MAX_LINES]:
        typer.echo(f"damaged: {safe_line(damage)}", err=True)
    if (more := len(report.damages) - MAX_LINES) > 0:
        typer.echo(f"and {more:,} more", err=True)
    if report.hint is not None:
        typer.echo(f"to fix: {safe_line(report.hint)}", err=True)
    places = several(len(report.damages), "place")
    typer.echo(
        f"error: {safe_line(str(run))} is damaged in {places}. Restore a copy, or {NEW_RUN}. If only "
        "results.json is damaged, remove it and run the same command again",
        err=True,
    )
    raise typer.Exit(ExitCode.FAILED)
