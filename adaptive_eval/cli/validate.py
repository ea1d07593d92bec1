"""`adaptive-eval validate CONFIG`: check the configuration and its questions."""

import asyncio
from collections.abc import Iterator
from itertools import chain

import typer

from adaptive_eval.cli.shared import MAX_LINE, Overrides, report_errors, typed_command
from adaptive_eval.cli.typed_config import read_run
from adaptive_eval.cli.typed_options import ConfigOptions, ConfigOrQuestions, with_typed_options
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.first_round import is_in_vain
from adaptive_eval.config.prepare import missing_programs
from adaptive_eval.config.run import RunConfig
from adaptive_eval.questions import repeated_questions
from adaptive_eval.report.lines import safe_line
from adaptive_eval.report.words import optimizing_in_words, promise_of, run_in_words
from adaptive_eval.running.answer_keys import check_keys

QUESTION = "Is the configuration correct?"


@with_typed_options
def validate(
    config: ConfigOrQuestions,
    overrides: Overrides = None,
    *,
    options: ConfigOptions,
) -> None:
    """Check a configuration and its questions; no model is asked. Exit code 2: something is wrong.

    The grader must also grade the answer key of every question as right. Instead of CONFIG a file of questions or a
    task of Inspect, as for `run`: then a --model without #MODEL is looked up on its server.
    """
    with report_errors():
        _, chosen = read_run(config, options, overrides or ())
        prepared, obstacle = chosen.prepared, chosen.obstacle
        answer_keys = asyncio.run(check_keys(prepared))
    max_trials = len(prepared.config.asked) * len(prepared.questions) * prepared.config.trials.max
    max_trials = min(max_trials, prepared.config.budget.trials or max_trials)
    first_round = chosen.first_round_problems
    in_vain = is_in_vain(first_round)
    verdict = f"{config} is valid, but a run of it would request no answers" if in_vain else f"Yes, {config} is valid"
    typer.echo(f"{QUESTION} {verdict}: {run_in_words(prepared)}, {max_trials:,} trials at most")
    typer.echo(f"optimize: {safe_line(optimizing_in_words(prepared.config), MAX_LINE)}")
    if (promised := promise_of(prepared.config)) is not None:
        typer.echo(f"promise: {promised}")
    if answer_keys.tried and answer_keys.unknown is not None:
        typer.echo(f"warning: {answer_keys.summary}")
    repeated = filter(None, [repeated_questions(prepared.questions)])
    stops = filter(None, [obstacle])
    for warning in chain(repeated, first_round, stops, _missing_requirements(prepared.config)):
        typer.echo(f"warning: {safe_line(warning, MAX_LINE)}")
    if obstacle is None and not in_vain:
        typer.echo(f"Next: {typed_command('run', config, overrides, *options.typed, '--dry-run')}")


def _missing_requirements(config: RunConfig) -> Iterator[str]:
    """Missing keys and programs: warnings, since the run may be on another machine."""
    environment = read_environment(config.folder)
    for model in config.asked:
        if (problem := model.missing_key(environment)) is not None:
            yield problem
    for name, problem in missing_programs(config, environment):
        yield f"{name}: {problem}"
