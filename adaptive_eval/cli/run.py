"""`adaptive-eval run`: begin or resume a run of a configuration, or of a task of Inspect."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.cli.shared import Config, Overrides, print_damage_notes, report_errors, typed_command
from adaptive_eval.config.first_round import first_round_problems
from adaptive_eval.config.load import CONFIGURATIONS, config_from_mapping, load_config
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.record.dry_run import dry_run_note
from adaptive_eval.record.results_file import read_results
from adaptive_eval.record.words import cost_to_go_on
from adaptive_eval.running.event_loop import run_to_end
from adaptive_eval.running.execute import execute
from adaptive_eval.running.launched import RemoteServers
from adaptive_eval.running.remembered import choose_run, remembered_note
from adaptive_eval.running.watching import Display, Watcher, Watchers
from adaptive_eval.show.displays import DisplayKind, open_display
from adaptive_eval.store import RunReader, TrialsRegraded, events_of_kind, events_since_start

TaskModels = Annotated[
    list[str] | None,
    typer.Option(
        help="A model of Inspect, such as openai/gpt-x, or NAME=MODEL to show it by a name of your own.",
        metavar="[NAME=]MODEL",
    ),
]
TaskArgs = Annotated[
    list[str] | None, typer.Option("-T", help="An argument of the task, as in Inspect.", metavar="KEY=VALUE")
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price", help="USD for a million tokens read and written, as in openai/gpt-x=1.25/10.", metavar="NAME=IN/OUT"
    ),
]
Most = Annotated[int | None, typer.Option("--max", help="Trials of a question at most.", min=1)]
Budget = Annotated[str | None, typer.Option(help="A cap: 20usd, 500000tokens, 3000trials or 2h.")]
ALIAS = re.compile(r"(?P<name>[^=/]+)=(?P<model>.+)")
"""A model of Inspect with a name of its own before it."""
_CAP = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>usd|tokens|trials|h)")


class TaskOptions(NamedTuple):
    """Options of the command line for a run of an Inspect task."""

    models: Sequence[str] = ()
    args: Sequence[str] = ()
    prices: Sequence[str] = ()
    most: int | None = None
    budget: str | None = None

    @property
    def typed(self) -> list[str]:
        """The options as they were typed."""
        given: dict[str, Sequence[str]] = {"--model": self.models, "-T": self.args, "--price": self.prices}
        given["--max"] = [] if self.most is None else [str(self.most)]
        given["--budget"] = [] if self.budget is None else [self.budget]
        return [word for option, values in given.items() for value in values for word in (option, value)]


def load_settings(config: Path, overrides: Sequence[str], options: TaskOptions) -> RunConfig:
    """Load the configuration in a file, or build one for a task of Inspect with the named models."""
    is_task = config.suffix == ".py" or "@" in config.name or (len(config.parts) == 2 and not config.exists())
    if config.suffix in CONFIGURATIONS or not (options.models or is_task):
        if options.typed:
            raise ConfigError(
                f"{options.typed[0]} is for tasks of Inspect; {config} is a configuration: write it there"
            )
        return load_config(config, overrides)
    if not options.models:
        raise ConfigError(f"{config} is a task of Inspect; name the models to rank: --model openai/gpt-x --model ...")
    prices = dict(map(_parse_price, options.prices))
    models = [_parse_model(said, prices) for said in options.models]
    settings: dict[str, object] = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", re.split("[@/]", str(config).removesuffix(".py"))[-1]),
        "benchmark": {"inspect": str(config), "prices": prices},
        "models": models,
        "trials": {} if options.most is None else {"max": options.most},
        "budget": {} if options.budget is None else _parse_cap(options.budget),
    }
    return config_from_mapping(settings, [*(f"benchmark.args.{one}" for one in options.args), *overrides])


def _parse_model(said: str, prices: dict[str, dict[str, float]]) -> dict[str, object]:
    """Parse a model, which may have a name of its own before it; its price is taken out of `prices`."""
    match = ALIAS.fullmatch(said)
    name, inspect = (said, said) if match is None else (match["name"], match["model"])
    given = [prices.pop(key) for key in dict.fromkeys((name, inspect)) if key in prices]
    return {"name": name, "inspect": inspect, "price": given[0] if given else None}


def _parse_price(said: str) -> tuple[str, dict[str, float]]:
    """Parse a model and the price of its tokens; models that are not ranked may be called by the task."""
    name, _, price = said.rpartition("=")
    try:
        read, written = map(float, price.split("/"))
    except ValueError:
        raise ConfigError(
            f"--price must be a model with USD for a million tokens read and written, as in openai/gpt-x=1.25/10, "
            f"but got {said!r}"
        ) from None
    return name, {"input": read, "output": written}


def _parse_cap(said: str) -> dict[str, object]:
    if (match := _CAP.fullmatch(said.replace(" ", "").replace("_", "").lower())) is None:
        raise ConfigError(f"--budget must be a number with a unit, as in 20usd, 500000tokens or 2h, but got {said!r}")
    unit, number = match["unit"], match["number"]
    if unit == "h":
        return {"wall_time": f"{number}h"}
    return {unit: float(number) if unit == "usd" else int(float(number))}


RunDir = Annotated[
    Path | None, typer.Option(help="The run's directory; default: a folder with the run's name in store.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check everything, show two graded answers of each model, and say what would run.",
    ),
]
StartServers = Annotated[
    bool,
    typer.Option(
        "--start-servers",
        help="With --dry-run: start each server that the run would start, ask it for one tiny answer, and stop it.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start a new run beside the existing one, which is kept.")]
AskAgain = Annotated[
    bool,
    typer.Option(
        "--ask-again",
        help="After an alarm about a server: discard its model's answers since then, and ask for them again.",
    ),
]
Shown = Annotated[DisplayKind | None, typer.Option(help="Default: rich on a terminal, else plain.")]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Serve metrics for Prometheus, on 127.0.0.1 unless another address is given.",
    ),
]


Ray = Annotated[
    str | None,
    typer.Option(
        metavar="auto|HOST:PORT",
        help="Start servers on the nodes of this Ray cluster; auto: the one that this machine belongs to.",
    ),
]


def run(
    config: Config,
    run_dir: RunDir = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    start_servers: StartServers = False,
    fresh: Fresh = False,
    ask_again: AskAgain = False,
    display: Shown = None,
    metrics: Metrics = None,
    ray: Ray = None,
    model: TaskModels = None,
    task_args: TaskArgs = None,
    prices: Prices = None,
    most: Most = None,
    budget: Budget = None,
) -> None:
    """Rank the models of CONFIG. The same command again resumes the run.

    Instead of a configuration, CONFIG may be a task of Inspect, such as inspect_evals/NAME or my_task.py@NAME, with the
    models to rank as --model NAME.

    Exit codes: 0 every comparison is decided; 1 the run directory could not be used, or the disk is full; 2 wrong
    configuration; 3 the budget or the horizon came first, the grader fails on an answer, labels leave it undecided, or
    an alarm; 4 stopped by the user (Ctrl-C once waits for what is in flight, twice stops at once); 5 the models'
    servers could not be used; 6 a model fails the gate (objective.gate): it is worse than the baseline by more than
    delta.
    """
    with report_errors():
        if start_servers and (not dry_run or ray is not None):
            raise ConfigError("--start-servers is for a dry run on this machine: give it with --dry-run, without --ray")
        options = TaskOptions(model or (), task_args or (), prices or (), most, budget)
        chosen = choose_run(lambda given: load_settings(config, given, options), overrides or (), run_dir, fresh)
        prepared, directory, settings = chosen.prepared, chosen.directory, chosen.prepared.config
        if chosen.remembered:
            typer.echo(remembered_note(chosen.remembered), err=True)
        if ray is None and "sites" in settings.servers.model_fields_set:
            typer.echo("note: servers.sites has no effect without --ray", err=True)
        elsewhere = {"--run-dir": run_dir, "--ray": ray}
        more = [word for key, value in elsewhere.items() if value is not None for word in (key, str(value))]
        command = typed_command("run", config, overrides, *options.typed, *more)
        if dry_run:
            # imported here: only a dry run needs it
            from adaptive_eval.cli.dry_run import rehearse

            if ray is not None:
                from adaptive_eval.sites.opening import require_sites

                require_sites(prepared.config)
            forecast = None if options.typed else typed_command("plan", config, overrides)
            command += " --fresh" * fresh
            on_cluster = ray is not None
            raise typer.Exit(
                rehearse(prepared, directory, command, forecast, on_cluster=on_cluster, start_servers=start_servers)
            )
        print_damage_notes(directory)
        _announce_regraded(directory)
        _announce_dry_run(prepared, directory)
        _warn_of_caps(prepared, directory)
        shown = open_display(display, prepared.rubric.weights)
        place = ["--run-dir", str(directory)] if run_dir is None and "~" in directory.name else []
        prepared = replace(prepared, arguments=(*shlex.split(command)[2:], *place))
        with _open_sites(ray, prepared.config, directory) as sites, _open_watcher(shown, metrics) as watcher:
            running = execute(prepared, directory, watcher, shown.ended, sites=sites, ask_again=ask_again)
            code = run_to_end(running)
    raise typer.Exit(code)


def _warn_of_caps(prepared: PreparedRun, directory: Path) -> None:
    """Warn of caps below the cost of the first round, if the run has no trials yet."""
    with RunReader.if_begun(directory) as reader:
        begun = reader is not None and reader.trial_count() > 0
    for problem in () if begun else first_round_problems(prepared):
        typer.echo(f"warning: {problem}", err=True)


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
    results = read_results(directory, rows=False)
    going_on = None if results is None else cost_to_go_on(results)
    if going_on is None:
        return
    typer.echo(f"Grades have changed since this run was last started: {going_on}.")
    if sys.stdin.isatty() and sys.stdout.isatty() and not typer.confirm("Continue?"):
        raise typer.Exit(ExitCode.STOPPED)


@contextmanager
def _open_sites(address: str | None, config: RunConfig, directory: Path) -> Iterator[RemoteServers | None]:
    """Open sites on a cluster, if there is an address."""
    if address is None:
        yield None
        return
    # imported here: it needs an extra
    from adaptive_eval.sites.cluster import sites_of_run
    from adaptive_eval.sites.nodes import join_cluster
    from adaptive_eval.sites.opening import RunSites, keeper_name, require_sites

    require_sites(config)
    run = keeper_name(config, directory)
    with join_cluster(address) as ray, sites_of_run(ray, run, config.servers.sites.keep) as cluster:
        yield RunSites(cluster)


@contextmanager
def _open_watcher(shown: Display, metrics: str | None) -> Iterator[Watcher]:
    """The display, combined with a server of metrics if there is an address for it."""
    if metrics is None:
        yield shown
        return
    # imported here: it needs an extra
    from adaptive_eval.show.serve.metrics import Address, serve_metrics

    with serve_metrics(Address.of(metrics)) as served:
        yield Watchers(shown, served)
