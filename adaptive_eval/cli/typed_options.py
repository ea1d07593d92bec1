"""The options of commands that take a file of questions or a task of Inspect in place of a configuration."""

import re
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from adaptive_eval.base.errors import ConfigError

ConfigOrQuestions = Annotated[
    Path, typer.Argument(help="Configuration (YAML), file of questions, or task.", metavar="CONFIG")
]
_CAP = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>usd|tokens|trials|h)")
Texts = list[str] | None


class ConfigOptions(NamedTuple):
    """Command-line options that stand for a configuration."""

    models: Annotated[
        Texts, typer.Option("--model", help="A server, or a model of Inspect.", metavar="[NAME=]URL[#MODEL]")
    ] = None
    commands: Annotated[
        Texts, typer.Option("--command", help="A command that answers questions.", metavar="NAME=COMMAND")
    ] = None
    keys: Annotated[
        Texts, typer.Option("--key", help="Environment variable with a model's key.", metavar="NAME=VAR")
    ] = None
    grader: Annotated[
        str | None, typer.Option("--grader", help="Default: by the form of the answers.", metavar="KIND")
    ] = None
    objective: Annotated[
        str | None, typer.Option("--objective", help="Such as best; default: ranking.", metavar="KIND")
    ] = None
    args: Annotated[
        Texts, typer.Option("--task-arg", "-T", help="Argument of an Inspect task.", metavar="KEY=VALUE")
    ] = None
    prices: Annotated[
        Texts, typer.Option("--price", help="USD per million tokens read/written.", metavar="NAME=IN/OUT")
    ] = None
    max_trials: Annotated[
        int | None,
        typer.Option(
            "--max-trials", help="Maximum trials per question for each model, on average.", min=1, metavar="N"
        ),
    ] = None
    budget: Annotated[
        str | None, typer.Option("--budget", help="20usd, 500000tokens, 3000trials or 2h.", metavar="LIMIT")
    ] = None

    @property
    def typed(self) -> list[str]:
        """The options as typed."""
        words: list[str] = []
        for name, value in self._asdict().items():
            option = _OPTIONS[name].__metadata__[0].default  # where typer keeps the first name of an option
            texts = value if isinstance(value, list) else [] if value is None else [str(value)]
            words += [word for text in texts for word in (option, text)]
        return words

    @property
    def sections(self) -> dict[str, object]:
        """The sections of a configuration that say what to find out, and at what cost."""
        sections: dict[str, object] = {} if self.objective is None else {"objective": self.objective}
        if self.max_trials is not None:
            sections["trials"] = {"max": self.max_trials}
        return sections if self.budget is None else {**sections, "budget": _parse_cap(self.budget)}


_OPTIONS: dict[str, Any] = get_type_hints(ConfigOptions, include_extras=True)


def with_typed_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of `ConfigOptions`, too, and gets them as its parameter `options`."""

    @wraps(command)
    def with_options(**values: Any) -> None:
        command(options=ConfigOptions(**{name: values.pop(name) for name in _OPTIONS}), **values)

    parameters = [at for at in signature(command, eval_str=True).parameters.values() if at.name != "options"]
    parameters += [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=option)
        for name, option in _OPTIONS.items()
    ]
    with_options.__annotations__ = {at.name: at.annotation for at in parameters}
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def _parse_cap(text: str) -> dict[str, object]:
    if (match := _CAP.fullmatch(text.replace(" ", "").replace("_", "").lower())) is None:
        raise ConfigError(f"--budget must be a number with a unit, as in 20usd, 500000tokens or 2h, but got {text!r}")
    unit, number = match["unit"], match["number"]
    if unit == "h":
        return {"wall_time": f"{number}h"}
    return {unit: float(number) if unit == "usd" else int(float(number))}
