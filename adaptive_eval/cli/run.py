"""`adaptive-eval run`: begin or resume a run of a configuration, a file of questions, or a task of Inspect."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError, ExitCode, RunChanged
from adaptive_eval.cli.shared import Overrides, report_errors, typed_command
from adaptive_eval.cli.typed_config import read_run
from adaptive_eval.cli.typed_options import ConfigOptions, ConfigOrQuestions, with_typed_options
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.notes import events_of_kind, events_since_start
from adaptive_eval.notes.grading import TrialsRegraded
from adaptive_eval.report.dry_run import dry_run_note
from adaptive_eval.report.needs import cost_to_go_on
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import read_results
from adaptive_eval.running.event_loop import run_to_end
from adaptive_eval.running.start import execute
from adaptive_eval.show.displays import DisplayKind, open_display
from adaptive_eval.supplies.opening import OpenRemote

PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the configuration of these options.")]
RunDir = Annotated[Path | None, typer.Option(help="Directory of the run; default: runs/NAME.", metavar="DIR")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check everything, with two answers per model (one if it is a command).",
    ),
]
StartServers = Annotated[bool, typer.Option("--start-servers", help="With --dry-run: also start servers.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start a new run; keep the existing one.")]
AskAgain = Annotated[
    bool,
    typer.Option(
        "--ask-again",
        help="Discard and repeat a model's failed requests and, after an alarm, its answers since its server changed, "
        "or all that repeat.",
    ),
]
Shown = Annotated[DisplayKind | None, typer.Option(help="Default: rich on a terminal, else plain.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT",
        help="Start servers on this Ray cluster.",
    ),
]

NO_CONFIG = "As CONFIG, save what this command prints with --print-config."


@with_typed_options
def run(
    config: ConfigOrQuestions,
    run_dir: RunDir = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    start_servers: StartServers = False,
    fresh: Fresh = False,
    ask_again: AskAgain = False,
    display: Shown = None,
    ray: Ray = None,
    print_config: PrintConfig = False,
    *,
    options: ConfigOptions,
) -> None:
    """Rank the models of CONFIG; the same command resumes the run.

    The options from --model to --budget are for a file of questions or a task of Inspect (inspect_evals/NAME,
    my_task.py@NAME), which need --model (or --command) for each model. Exit codes: adaptive-eval --help.
    """
    with report_errors():
        if start_servers and (not dry_run or ray is not None):
            raise ConfigError("--start-servers needs --dry-run, and cannot be used with --ray")
        typed, chosen = read_run(config, options, overrides or (), run_dir, fresh=fresh)
        prepared, directory = chosen.prepared, chosen.directory
        if print_config:
            if typed is None:
                raise ConfigError(f"{config} is the configuration; --print-config is for those of --model and others")
            typer.echo(typed.text([*chosen.remembered, *(overrides or ())]), nl=False)
            return
        elsewhere = {"--run-dir": run_dir, "--ray": ray}
        more = [word for key, value in elsewhere.items() if value is not None for word in (key, str(value))]
        command = typed_command("run", config, overrides, *options.typed, *more)
        holding = typed_command("run", config, [*chosen.remembered, *(overrides or ())])
        config_words = None if typed is not None else holding.removeprefix("adaptive-eval run ")
        if dry_run:
            # imported here: only a dry run needs it
            from adaptive_eval.cli.dry_run import rehearse

            if ray is not None:
                from adaptive_eval.sites.opening import require_sites

                require_sites(prepared.config)
            forecast = typed_command("plan", config, overrides, *options.typed)
            command += " --fresh" * fresh
            on_cluster = ray is not None
            with _naming_config(config_words):
                code = rehearse(chosen, command, forecast, on_cluster=on_cluster, start_servers=start_servers)
            raise typer.Exit(code)
        _announce_regraded(directory)
        _announce_dry_run(prepared, directory)
        for problem in chosen.first_round_problems:
            typer.echo(f"warning: {problem}", err=True)
        live_display = open_display(display, prepared.rubric.weights)
        place = ["--run-dir", str(directory)] if run_dir is None and "~" in directory.name else []
        prepared = replace(prepared, arguments=(*shlex.split(command)[2:], *place))
        with _open_sites(ray, prepared.config) as sites:
            running = execute(prepared, directory, live_display, sites=sites, ask_again=ask_again)
            with _naming_config(config_words):
                code = run_to_end(running)
    raise typer.Exit(code)


@contextmanager
def _naming_config(words: str | None) -> Iterator[None]:
    """Put these words for the CONFIG of a command in an error; for None add how to print a configuration."""
    try:
        yield
    except RunChanged as error:
        text = f"{error}\n{NO_CONFIG}" if words is None else str(error).replace("--config CONFIG", f"--config {words}")
        raise RunChanged(text) from error


def _announce_dry_run(prepared: PreparedRun, directory: Path) -> None:
    """Print whether a new run uses the answers of its dry run."""
    with RunReader.if_begun(directory) as reader:
        note = dry_run_note(directory, prepared.header) if reader is None else None
    if note is not None:
        typer.echo(f"note: {note}", err=True)


def _announce_regraded(directory: Path) -> None:
    """Print what the run will request because its answers were regraded; on a terminal, ask whether to continue."""
    with RunReader.if_begun(directory) as reader:
        events = () if reader is None else events_since_start(reader.events())
    if not any(event.opening is not None for event in events_of_kind(events, TrialsRegraded)):
        return
    results = read_results(directory)
    cost_to_finish = None if results is None else cost_to_go_on(results)
    if cost_to_finish is None:
        return
    typer.echo(f"Grades have changed since this run was last started: {cost_to_finish}.")
    if sys.stdin.isatty() and sys.stdout.isatty() and not typer.confirm("Continue?"):
        raise typer.Exit(ExitCode.STOPPED)


@contextmanager
def _open_sites(address: str | None, config: RunConfig) -> Iterator[OpenRemote | None]:
    """Open the sites of a cluster if there is an address."""
    if address is None:
        yield None
        return
    # imported here: it needs an extra
    from adaptive_eval.sites import messages
    from adaptive_eval.sites.cluster import RayCluster
    from adaptive_eval.sites.nodes import join_cluster
    from adaptive_eval.sites.opening import open_sites, require_sites

    require_sites(config)
    with join_cluster(address) as ray:
        yield partial(open_sites, RayCluster(ray), messages.TIMEOUTS)
