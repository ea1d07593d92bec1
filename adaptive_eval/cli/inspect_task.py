"""`adaptive-eval run` with a task of Inspect instead of a configuration."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from adaptive_eval.config.load import CONFIGURATIONS, config_from_mapping, load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.errors import ConfigError

TaskModels = Annotated[list[str] | None, typer.Option(help="A model of Inspect, such as openai/gpt-x.", metavar="NAME")]
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
    models = [{"name": name, "inspect": name, "price": prices.pop(name, None)} for name in options.models]
    settings: dict[str, object] = {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", re.split("[@/]", str(config).removesuffix(".py"))[-1]),
        "benchmark": {"inspect": str(config), "prices": prices},
        "models": models,
        "trials": {} if options.most is None else {"max": options.most},
        "budget": {} if options.budget is None else _parse_cap(options.budget),
    }
    return config_from_mapping(settings, [*(f"benchmark.args.{one}" for one in options.args), *overrides])


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
