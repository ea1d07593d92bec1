"""The command line: one module per command, imported when the command is called.

Together the commands need scipy, an HTTP client and a display, which take a second to load; `--help`, `init` and
`schema` need none of them.
"""

import gc
import io
import os
import sys
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.main import get_command

from adaptive_eval import __version__
from adaptive_eval.base.errors import ExitCode

PACKAGE = "adaptive_eval"
COMMANDS = {
    "run": "Rank the models of CONFIG; the same command resumes the run.",
    "monitor": "Watch RUN from another terminal, or with --web in a browser.",
    "report": "Write a report of RUN: HTML, Markdown, JSON, CSV or JUnit XML.",
    "compare": "Show what changed from RUN_A to RUN_B.",
    "regrade": "Grade every answer of RUN again, by --config.",
    "rescore": "Show scores and ranks of RUN under other rubrics.",
    "label": "Label answers of RUN, to measure the grader's error.",
    "verify": "Check RUN for damage.",
    "replay": "Repeat a run on recorded or simulated outcomes.",
    "plan": "Forecast what the run of CONFIG will cost and decide.",
    "validate": "Check a configuration and its questions; no model is asked.",
    "init": "Write a commented configuration to start from.",
    "schema": "Print the JSON schema of the configuration.",
    "import": "Make a run from logs of other tools.",
    "export": "Write the trials of RUN as an array or a table.",
    "demo": "Open a demonstration in a browser.",
    "simulate": "Serve simulated models with known true scores.",
}
"""Help of each command; the docstring of its function of the same name (`import_` for `import`) begins with it."""

EXAMPLES = {
    "run": (
        "run mine.yaml",
        "run mine.yaml --dry-run",
        "run mine.yaml --set trials.max=40",
        "run questions.jsonl --model http://a/v1 --model http://b/v1",
    ),
    "monitor": ("monitor runs/mine", "monitor runs/mine --web"),
    "report": ("report runs/mine", "report runs/mine --format summary -o -"),
    "compare": ("compare runs/mine runs/mine~2",),
    "regrade": ("regrade runs/mine --config mine.yaml",),
    "rescore": ("rescore runs/mine",),
    "label": ("label runs/mine", "label runs/mine --from labels.csv"),
    "verify": ("verify runs/mine",),
    "replay": ("replay runs/mine --runs 100",),
    "plan": ("plan mine.yaml",),
    "validate": ("validate mine.yaml",),
    "init": ("init mine.yaml", "init mine.yaml --full"),
    "schema": ("schema > schema.json",),
    "import": ("import logs/*.eval --to runs/imported",),
    "export": ("export runs/mine --format csv -o trials.csv",),
    "demo": ("demo",),
    "simulate": ("simulate coins --port 8000",),
}
"""Examples at the end of each command's help."""

EXIT_CODES = {
    ExitCode.REACHED: "every comparison is decided: resolved or tied",
    ExitCode.FAILED: "the run directory cannot be used, or the disk is full",
    ExitCode.CONFIGURATION: "wrong configuration, questions or arguments",
    ExitCode.SPENT: "undecided: limits reached, answers without grades, labels, or an alarm",
    ExitCode.STOPPED: "stopped by the user (Ctrl-C)",
    ExitCode.ENDPOINTS: "the models' servers cannot be used",
    ExitCode.WORSE: "a model fails the gate: it is worse by more than delta",
    ExitCode.RUNNING: "the run is still in progress (monitor)",
}
"""Meaning of each exit code."""

app = typer.Typer(
    name="adaptive-eval",
    help="Rank language models using no more answers than the comparison needs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog="\n".join(["\b", "Exit codes:", *(f"  {code.value}  {meaning}" for code, meaning in EXIT_CODES.items())]),
)


def _call_command(context: typer.Context) -> None:
    """Load a command, and call it with the arguments."""
    try:
        command = load_command(str(context.info_name))
        if not gc.isenabled():  # disabled by `__main__`: scanning the loaded modules would take 50 ms
            gc.freeze()
            gc.set_threshold(10_000)
            gc.enable()
        code = command.main(args=context.args, prog_name=context.command_path, standalone_mode=False)
    except typer.BadParameter as error:
        error.message = error.message.removeprefix("Value error, ")  # of the library that parses arguments
        raise
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{PACKAGE}."):
            raise
        typer.echo(f"error: this command needs {error.name}, which is not installed", err=True)
        raise typer.Exit(ExitCode.CONFIGURATION) from None
    raise typer.Exit(code or 0)


def load_command(name: str) -> Any:
    """Load a command from its module: the function of its name, or an `app` with several commands."""
    module_name = f"{name}_" if iskeyword(name) else name
    module = import_module(f"{PACKAGE}.cli.{module_name}")
    command_app: typer.Typer | None = getattr(module, "app", None)
    if command_app is None:
        command_app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        command_app.command(name)(getattr(module, module_name))
    command = get_command(command_app)
    # \b keeps the lines of the next paragraph apart
    command.epilog = "\n".join(["\b", "Examples:", *(f"  adaptive-eval {example}" for example in EXAMPLES[name])])
    return command


RAW_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help, add_help_option=False, context_settings=RAW_ARGUMENTS)(_call_command)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"adaptive-eval {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options before a command."""


def main() -> None:
    """Run the command line."""
    _reopen_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of models may not be encodable
    app()


def _reopen_standard_streams() -> None:
    """Connect closed standard streams to the null device, so that no socket gets their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode))  # noqa: PTH123, SIM115 (the lowest free number)
