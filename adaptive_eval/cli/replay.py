"""`adaptive-eval replay FILE|RUN|WORLD`: repeat the decisions of a run on recorded or simulated outcomes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.base.files import write_atomic
from adaptive_eval.cli.progress import Progress
from adaptive_eval.cli.shared import Overrides, report_errors
from adaptive_eval.core import Look
from adaptive_eval.exchange.tables.writer import csv_text
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.finding import count_states
from adaptive_eval.report.results_file import RESULTS_FILE, write_results
from adaptive_eval.show.forecast import replays_table
from adaptive_eval.show.summary import untimed_findings
from adaptive_eval.store.locate import has_database
from adaptive_eval.study.judged import JudgedReplay, judge_replay
from adaptive_eval.study.replay import PreparedReplay, perform_replay, prepare_replay, replay_results

RUNS_FILE = "runs.csv"
NOT_COUPLED = (
    "note: trials.seeds: coupled has no effect here: models are compared trial by trial only if the order of trials "
    "was recorded, and without --seed and --runs"
)

Outcomes = Annotated[
    str,
    typer.Argument(
        help="An .npz file, a run directory, or the name of a set of simulated models.", metavar="FILE|RUN|WORLD"
    ),
]
Config = Annotated[Path | None, typer.Option(help="A configuration, for its settings on decisions.")]
Runs = Annotated[int, typer.Option(min=1, help="Number of replays, each with another seed; several are summarized.")]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the first replay; default: 0, or trials in recorded order.")
]
Top = Annotated[int | None, typer.Option(min=1, help="Only the N best models.")]
Output = Annotated[Path | None, typer.Option("--output", help="Directory for the results; default: runs/replay-NAME.")]


def replay(
    what: Outcomes,
    config: Config = None,
    overrides: Overrides = None,
    runs: Runs = 1,
    seed: Seed = None,
    top: Top = None,
    output: Output = None,
) -> None:
    """Repeat a run on recorded or simulated outcomes. No server is asked.

    FILE has an array `R` with the category of each trial by model, question and trial (-1: no trial), and `kinds` of
    the same shape (16: the answer was cut off, 32: it timed out, 1: it exceeds the context, so that its grade decides
    nothing; 0: plain text); or `correct` and `count` by model and question, from which trials are drawn without
    replacement. RUN is the directory of a run, which
    is repeated by its own settings unless CONFIG is given. Only the sections rubric, objective, stopping, trials and
    budget of CONFIG are used, and the weights and gates of its benchmarks.

    Exit codes: those of `run` for one replay; 0 for several (--runs).
    """
    with report_errors():
        prepared = prepare_replay(what, config, overrides or (), top)
        directory = _directory(output, prepared.source.name)
        if prepared.decisions.trials.seeds == "coupled" and not (
            prepared.plan_in_order(recorded=runs == 1 and seed is None).coupled
        ):
            typer.echo(NOT_COUPLED)
        if prepared.lacks_prior:
            typer.echo("note: R0 (prior) counts in the run, and not in its replay")
        if runs > 1:
            code = _replay_many(prepared, directory, range(seed or 0, (seed or 0) + runs))
        else:
            code = _replay_single(prepared, directory, seed)
    raise typer.Exit(code)


def _directory(output: Path | None, name: str) -> Path:
    """Create the directory for the results; raises `ConfigError` if it holds a run or cannot be created."""
    directory = output or Path("runs") / f"replay-{name}"
    if has_database(directory):
        raise ConfigError(f"{directory} is a run, and a replay would overwrite its results; give another --output")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be created: {error.strerror}; give another --output") from error
    return directory


def _replay_single(prepared: PreparedReplay, directory: Path, seed: int | None) -> ExitCode:
    plan = prepared.plan
    with Progress(plan.bench.models * plan.bench.questions * plan.trials.max) as progress:
        performed = perform_replay(prepared, seed, _show_looks(progress))
    controller, source, _ = performed
    results = replay_results(performed, prepared.decisions, time.time())
    lost = {source.models[at]: why for at, why in controller.set_aside.items()}
    trials = 0 if results is None else results.cost.trials
    gated = prepared.decisions.objective.gate
    ending = Ending(reason=controller.finished, results=results, trials=trials, lost=lost, gated=gated)
    if not ending.gate:  # its outcome is the first finding
        typer.echo(f"{ending.why}\n")
    if results is not None:
        write_results(directory, results)
        for line in untimed_findings(results, None):
            typer.echo(line)
        typer.echo(f"results   {directory / RESULTS_FILE}")
    return ending.exit_code


def _show_looks(progress: Progress) -> Callable[[Look], None]:
    """Make a callback that shows the progress of a replay at its looks."""

    def on_look(look: Look) -> None:
        states = count_states(comparison.verdict for comparison in look.comparisons)
        progress.to(sum(look.trials), f"look {look.index + 1}: {states}")

    return on_look


def _replay_many(prepared: PreparedReplay, directory: Path, seeds: range) -> ExitCode:
    judged: list[JudgedReplay] = []
    with Progress(len(seeds)) as progress:
        for seed in seeds:
            controller = perform_replay(prepared, seed).controller
            if not controller.looks:
                raise ConfigError(Ending(reason=controller.finished, results=None, trials=0).why)
            means = prepared.source.chances @ prepared.source.weights
            judged.append(judge_replay(seed, controller, prepared.source.truth, means))
            progress.to(len(judged), f"{len(judged)} of {len(seeds)} runs")
    path = directory / RUNS_FILE
    write_atomic(path, csv_text(JudgedReplay._fields, judged).encode(), "Fix that, or give another --output")
    typer.echo(f"{prepared.source.name}: {len(seeds)} runs, seeds {seeds[0]} to {seeds[-1]}\n")
    typer.echo(replays_table(judged))
    typer.echo(f"runs      {path}")
    return ExitCode.REACHED
