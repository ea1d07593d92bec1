"""`adaptive-eval plan CONFIG`: forecast what a run will cost and decide, before it spends anything."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import orjson
import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.files import write_output
from adaptive_eval.base.lists import first_few
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import MAX_LINE, Overrides, report_errors, typed_command
from adaptive_eval.cli.typed_config import read_run
from adaptive_eval.cli.typed_options import ConfigOptions, ConfigOrQuestions, with_typed_options
from adaptive_eval.config.checks import WORTH_DRAWING, may_draw
from adaptive_eval.config.first_round import is_in_vain
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import Reason
from adaptive_eval.report.alarms import alarm_sentences, alarmed_models
from adaptive_eval.report.lines import safe_line, safe_name
from adaptive_eval.report.needs import LONGEST_NAME, MAX_NAMES, some_models
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import StoredRun
from adaptive_eval.report.warnings import is_alarmed
from adaptive_eval.report.words import optimizing_in_words, run_in_words
from adaptive_eval.show.forecast import answer_line, forecast_lines
from adaptive_eval.show.text import NEXT
from adaptive_eval.study.forecast import make_forecast

MIN_SIMULATIONS = 10
"""Simulated runs needed for an 80% interval."""
QUESTION = "What will the run cost and decide?"
QUESTIONS_PER_BLOCK = 200
"""Questions per look in the proposed `trials.draw`."""

PilotRun = Annotated[Path | None, typer.Option(help="An earlier run of these models; it may be small.")]
Simulations = Annotated[
    int,
    typer.Option(min=MIN_SIMULATIONS, help="Maximum number of simulated runs, each with other true scores."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the simulation.")]
Json = Annotated[Path | None, typer.Option(help="Also write the forecast to this file.")]


@with_typed_options
def plan(
    config: ConfigOrQuestions,
    pilot: PilotRun = None,
    simulations: Simulations = 100,
    seed: Seed = 0,
    overrides: Overrides = None,
    json: Json = None,
    *,
    options: ConfigOptions,
) -> None:
    """Forecast what the run of CONFIG will cost and decide.

    It simulates the run many times, with true scores as a pilot suggests, or else widely spread. A run that has begun
    is its own pilot, and the forecast continues from it. The options from --model to --budget are for a file of
    questions or a task of Inspect, as for `run`.
    """
    with report_errors():
        if json is not None and (json.is_dir() or not json.parent.is_dir()):
            raise ConfigError(f"--json must be a file in an existing folder, but got {json}")
        _, chosen = read_run(config, options, overrides or ())
        prepared, obstacle = chosen.prepared, chosen.obstacle
        with Progress(1.0) as progress:
            forecast = make_forecast(prepared, progress.to, pilot, simulations, seed)
        results, alarmed = _read_results(chosen.directory)
        alarmed_there = {} if pilot is None else _read_results(pilot)[1]
        if json is not None:
            document = orjson.dumps(forecast, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            is_file = write_output(json, document, "Fix that, or give another --json")
    settings, rule = prepared.config, prepared.config.stopping
    typer.echo(f"{QUESTION} {answer_line(forecast)}\n")
    summary = run_in_words(prepared)
    typer.echo(f"{safe_line(settings.name)}: {summary}, {rule.rule} at {rule.confidence:g}")
    typer.echo(f"optimize  {safe_line(optimizing_in_words(settings), 400)}")
    for line in forecast_lines(forecast, tuple(prepared.rubric.weights)):
        typer.echo(line)
    first_round, in_pilot = chosen.first_round_problems, _counted_all_the_same(f"the pilot {pilot}", alarmed_there)
    for problem in filter(None, [*first_round, obstacle, *_not_in_forecast(results, settings, alarmed), *in_pilot]):
        typer.echo(f"warning   {safe_line(problem, MAX_LINE)}")
    for hint in _hints(prepared):
        typer.echo(hint)
    if json is not None and is_file:
        typer.echo(f"forecast  {json}")
    costs, spent = (forecast.capped or forecast.need).costs, forecast.spent
    if (spent is not None and costs.trials.high <= spent.trials) or _is_stopped(results, settings):
        typer.echo(f"\n{NEXT}{shlex.join(['adaptive-eval', 'report', str(chosen.directory)])}")
    elif obstacle is None and not is_in_vain(first_round):
        typer.echo(f"\n{NEXT}{typed_command('run', config, overrides, *options.typed)}")


def _read_results(directory: Path) -> tuple[Results | None, Mapping[str, str]]:
    """The newest results of a run that has begun, with its models that an alarm is about; None before its first
    look."""
    with RunReader.if_begun(directory) as reader:
        run = None if reader is None else StoredRun(reader)
        results = None if run is None else run.results(running=False, rows=False)
        return results, {} if run is None or results is None else alarmed_models(results, run.events)


def _is_stopped(results: Results | None, config: RunConfig) -> bool:
    """Whether an alarm has ended the run, so that its next start requests nothing with these settings."""
    if results is None or config.stopping.on_alarm == "never":
        return False
    return results.run.reason == Reason.ALARM or is_alarmed(results.decisions, results.warnings)


def _not_in_forecast(results: Results | None, config: RunConfig, alarmed: Mapping[str, str]) -> Iterator[str]:
    """What the forecast does not know of a run that has begun."""
    if results is not None and _is_stopped(results, config):
        yield f"the run requests nothing more, whatever the forecast says. {' '.join(alarm_sentences(results))}"
    else:
        yield from _counted_all_the_same("the run", alarmed)
    if aside := [row.name for row in ([] if results is None else results.models) if row.set_aside is not None]:
        why = "`report` says why"
        yield f"set aside in this run, though the forecast counts on further answers: {some_models(aside)}; {why}"
    if results is not None and results.corrected:
        yield "labels correct the verdicts of this run, and the forecast is by the grades alone"


def _counted_all_the_same(whose: str, alarmed: Mapping[str, str]) -> Iterator[str]:
    """Say that the forecast counts answers of models that an alarm is about."""
    if alarmed:
        alarms = first_few([f"{safe_name(name, LONGEST_NAME)}: {text}" for name, text in alarmed.items()], MAX_NAMES)
        yield f"{whose} has an alarm about answers that the forecast counts all the same. {alarms}"


def _hints(prepared: PreparedRun) -> Iterator[str]:
    """A hint on drawing questions."""
    if len(prepared.questions) >= WORTH_DRAWING and may_draw(prepared.config):
        opening, blocks = int(prepared.plan.opening.sum()), QUESTIONS_PER_BLOCK * len(prepared.config.asked)
        drawn = f"trials: {{min: 1, max: 1, draw: {QUESTIONS_PER_BLOCK}}}"
        yield f"hint      the first look needs {opening:,} trials; with `{drawn}` only {blocks:,},"
        yield "          since part of the questions may suffice"
