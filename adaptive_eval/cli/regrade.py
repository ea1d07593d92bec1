"""`adaptive-eval regrade`: grade stored answers again, without asking any model."""

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, report_errors, typed_command
from adaptive_eval.config.load import load_config
from adaptive_eval.record.lines import Scale, safe_name, several
from adaptive_eval.record.words import cost_to_go_on
from adaptive_eval.running.regrade import Regraded
from adaptive_eval.running.regrade import regrade as regrade_run

MAX_NAME = 40
"""Most characters of a model's name."""


def regrade(
    run: Run,
    config: Annotated[
        Path | None,
        typer.Option(help="Grade every answer by the grader, rubric and answer keys of this configuration instead."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of --config.")
    ] = None,
    beyond_caps: Annotated[
        bool, typer.Option("--beyond-caps", help="Ask a judge even if its verdicts may exceed the caps of --config.")
    ] = False,
) -> None:
    """Grade answers of RUN again: those on which the grader failed, or with --config all of them."""
    with report_errors(run):
        if overrides and config is None:
            raise ConfigError("--set changes a setting of --config; add --config, or remove --set")
        settings = load_config(config, overrides or ()) if config is not None else None
        command = typed_command("run", config or Path("CONFIG"), overrides, "--run-dir", str(run))
        arguments = None if config is None else tuple(shlex.split(command)[2:])
        done = asyncio.run(regrade_run(run, settings, beyond_caps=beyond_caps, arguments=arguments))
    if not done.answers and settings is None:
        typer.echo("every stored answer has a grade; --config CONFIG grades all of them anew")
        return
    failed = f", the grader failed on {done.failed}" if done.failed else ""
    typer.echo(f"graded {several(done.answers, 'answer')} again: {done.changed:,} have another category{failed}")
    for line in _score_lines(done, command):
        typer.echo(line)


def _score_lines(done: Regraded, command: str) -> Iterator[str]:
    """Each model's score before and now, and what going on by this command would cost."""
    if done.after is None:
        if done.answers:
            yield f"to continue: {command}"
        return
    before = {} if done.before is None else {row.name: row.score for row in done.before.models}
    old, new = (Scale.of(one.weights) for one in (done.before or done.after, done.after))
    width = max(len(safe_name(row.name, MAX_NAME)) for row in done.after.models)
    yield f"{'model':<{width}}  {'before':>7}  {'now':>7}  {'trials':>8}"
    for row in done.after.models:
        was, now = old.score(before.get(row.name)), new.score(row.score)
        yield f"{safe_name(row.name, MAX_NAME):<{width}}  {was:>7}  {now:>7}  {row.trials:>8,}"
    going_on = cost_to_go_on(done.after)
    if going_on is None:
        yield "Nothing is left to ask: results.json has these scores."
    else:
        yield f"results.json has these scores. Not everything is decided: {going_on}, by"
        yield f"  {command}"
