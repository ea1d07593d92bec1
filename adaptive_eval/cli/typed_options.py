"""The options of commands that take a file of questions or a task of Inspect in place of a configuration."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_eval.cli.typed_config import ConfigOptions, TypedConfig, read_options
from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig

ConfigOrQuestions = Annotated[
    Path, typer.Argument(help="Configuration (YAML), file of questions, or task.", metavar="CONFIG")
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="A server, or a model of Inspect.",
        metavar="[NAME=]URL[#MODEL]",
    ),
]
Commands = Annotated[
    list[str] | None, typer.Option("--command", help="A command that answers questions.", metavar="NAME=COMMAND")
]
Keys = Annotated[
    list[str] | None, typer.Option("--key", help="Environment variable with a model's key.", metavar="NAME=VAR")
]
Grader = Annotated[str | None, typer.Option(help="Default: by the form of the answers.", metavar="KIND")]
Objective = Annotated[str | None, typer.Option(help="Such as best; default: ranking.", metavar="KIND")]
TaskArgs = Annotated[
    list[str] | None, typer.Option("--task-arg", "-T", help="Argument of an Inspect task.", metavar="KEY=VALUE")
]
Prices = Annotated[
    list[str] | None,
    typer.Option("--price", help="USD per million tokens read/written.", metavar="NAME=IN/OUT"),
]
MaxTrials = Annotated[
    int | None,
    typer.Option("--max-trials", help="Maximum trials per question for each model, on average.", min=1, metavar="N"),
]
Budget = Annotated[str | None, typer.Option(help="20usd, 500000tokens, 3000trials or 2h.", metavar="LIMIT")]


_OPTIONS: Mapping[str, Any] = {
    "models": Models,
    "commands": Commands,
    "keys": Keys,
    "grader": Grader,
    "objective": Objective,
    "args": TaskArgs,
    "prices": Prices,
    "max_trials": MaxTrials,
    "budget": Budget,
}
"""By field of `ConfigOptions`."""


def with_typed_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of `ConfigOptions`, too, and gets them as its parameter `options`."""

    @wraps(command)
    def with_options(**values: Any) -> None:
        typed = {name: values.pop(name) for name in _OPTIONS}
        given = {name: value for name, value in typed.items() if value is not None}
        command(**values, options=ConfigOptions(**given))

    others = [at for at in signature(command, eval_str=True).parameters.values() if at.name != "options"]
    added = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=_OPTIONS[name]) for name in _OPTIONS
    ]
    with_options.__annotations__ = {at.name: at.annotation for at in [*others, *added]}
    with_options.__signature__ = Signature([*others, *added])  # type: ignore[attr-defined]
    return with_options


def read_config(
    config: Path, options: ConfigOptions, overrides: Sequence[str], run_dir: Path | None = None, *, fresh: bool = False
) -> tuple[TypedConfig | None, Callable[[Sequence[str]], RunConfig]]:
    """What the options stand for, None beside a configuration; and what loads the settings with those of `--set`.

    Prints what was chosen. May ask servers for their models.
    """
    typed = read_options(config, options, overrides, run_dir, fresh=fresh)
    for note in () if typed is None else typed.notes:
        typer.echo(note, err=True)
    return typed, partial(load_config, config) if typed is None else typed.load
