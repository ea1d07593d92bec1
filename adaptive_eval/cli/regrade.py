"""`adaptive-eval regrade`: grade stored answers again, without asking any model."""

import asyncio
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import Run, report_errors, typed_command
from adaptive_eval.config.fingerprint import GRADING
from adaptive_eval.config.load import holds_questions, load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.report.lines import Scale, safe_name, several
from adaptive_eval.report.needs import UNDECIDED, cost_to_go_on, ends_by_alarm
from adaptive_eval.running.chosen import remembered_note, remembered_settings, without_undone
from adaptive_eval.running.regrade import Regraded
from adaptive_eval.running.regrade import regrade as regrade_run

MAX_NAME_WIDTH = 40
"""Characters of a model's name."""


def regrade(
    run: Run,
    config: Annotated[Path, typer.Option(help="Grade by the grader, rubric and answer keys of this configuration.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of --config.")
    ] = None,
    beyond_limits: Annotated[
        bool, typer.Option("--beyond-limits", help="Ask a judge even if that may exceed the limits of --config.")
    ] = False,
) -> None:
    """Grade every answer of RUN again, by --config.

    You need not regrade answers on which the grader failed: the next start of the run grades them.
    """
    with report_errors():
        if holds_questions(config):
            raise ConfigError(
                f"{config} is a file of questions, and --config needs a configuration: save what the run's command "
                "prints with --print-config (and the new --grader), and give that file"
            )
        given = without_undone(overrides or [], run)
        remembered, kept = remembered_settings(partial(load_config, config), overrides or [], run)
        shadowing = [setting for setting in remembered if setting.split("=")[0].split(".")[0] in GRADING]
        settings = load_config(config, [*remembered, *given])
        if shadowing and not _grades_alike(settings, config, given):
            undo = " ".join(f"--set {setting.split('=')[0]}=" for setting in shadowing)
            raise ConfigError(
                f"{run} remembers {', '.join(shadowing)} of an earlier start, which would hold instead of {config}; "
                f"add {undo} to grade by the file, or repeat it with its value"
            )
        if remembered:
            typer.echo(remembered_note(remembered), err=True)
        command = typed_command("run", config, overrides, "--run-dir", str(run))
        arguments = tuple(shlex.split(command)[2:])
        done = asyncio.run(regrade_run(run, settings, beyond_limits=beyond_limits, arguments=arguments, overrides=kept))
    failed = f", the grader failed on {done.failed}" if done.failed else ""
    typer.echo(f"graded {several(done.answers, 'answer')} again: {done.changed:,} have another category{failed}")
    for line in _score_lines(done, run, command):
        typer.echo(line)


def _grades_alike(settings: RunConfig, path: Path, overrides: Sequence[str]) -> bool:
    """Whether the file alone grades as these settings do, or is no configuration alone."""
    try:
        alone = load_config(path, overrides)
    except ConfigError:
        return True
    return (alone.grader, alone.rubric) == (settings.grader, settings.rubric)


def _score_lines(done: Regraded, run: Path, command: str) -> Iterator[str]:
    """Each model's score before and now, and the cost of continuing the run with this command."""
    if done.after is None:
        if done.answers:
            yield f"to continue: {command}"
        return
    before = {} if done.before is None else {row.name: row.score for row in done.before.models}
    old, new = (Scale.of(results.weights) for results in (done.before or done.after, done.after))
    width = max(len(safe_name(row.name, MAX_NAME_WIDTH)) for row in done.after.models)
    yield f"{'model':<{width}}  {'before':>7}  {'now':>7}  {'trials':>8}"
    for row in done.after.models:
        old_score, new_score = old.score(before.get(row.name)), new.score(row.score)
        yield f"{safe_name(row.name, MAX_NAME_WIDTH):<{width}}  {old_score:>7}  {new_score:>7}  {row.trials:>8,}"
    cost_to_finish = cost_to_go_on(done.after)
    undecided = sum(pair.verdict in UNDECIDED for pair in done.after.pairs)
    yield "results.json has these scores."
    if cost_to_finish is not None:
        yield f"Not everything is decided: {cost_to_finish}, with:"
        yield f"  {command}"
    elif ends_by_alarm(done.after):
        yield "An alarm about answers ends the run, and it asks for no more. What to do:"
        yield f"  {shlex.join(['adaptive-eval', 'monitor', str(run), '--once'])}"
    elif undecided:
        yield f"Within its limits the run asks for no more. What could decide {several(undecided, 'comparison')}:"
        yield f"  {shlex.join(['adaptive-eval', 'monitor', str(run), '--once'])}"
