"""`adaptive-eval regrade`: grade stored answers again, without a request."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.config.load import load_config
from adaptive_eval.errors import ConfigError
from adaptive_eval.record.lines import several
from adaptive_eval.running.regrade import regrade as regrade_run


def regrade(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="RUN")],
    config: Annotated[
        Path | None,
        typer.Option(help="Grade every answer by the grader, rubric and answer keys of this configuration instead."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of --config.")
    ] = None,
    beyond_caps: Annotated[
        bool, typer.Option("--beyond-caps", help="Ask a judge even where its verdicts may exceed the caps of --config.")
    ] = False,
) -> None:
    """Grade answers of RUN again: those on which the grader failed, or with --config all of them."""
    with reported(run):
        if overrides and config is None:
            raise ConfigError("--set changes a setting of --config, which is not given; add it")
        settings = load_config(config, overrides or ()) if config is not None else None
        done = asyncio.run(regrade_run(run, settings, beyond_caps=beyond_caps))
    if not done.answers and settings is None:
        typer.echo("every stored answer has a grade; --config CONFIG grades all of them anew")
        return
    failed = f", the grader failed on {done.failed}" if done.failed else ""
    typer.echo(f"graded {several(done.answers, 'answer')} again: {done.changed} have another category{failed}")
    if done.answers:
        typer.echo(
            "`adaptive-eval run` with the run's configuration goes on from there, and brings its results up to date"
        )
