"""A configuration in a text, with all that is wrong with it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from adaptive_eval.config.load import _complete_document, _names, _validate
from adaptive_eval.config.problems import Problem
from adaptive_eval.config.run import RunConfig


class CheckedConfig(NamedTuple):
    """A configuration, or what is wrong with it."""

    config: RunConfig | None
    problems: tuple[Problem, ...]


def check_text(
    text: str, path: Path, overrides: Iterable[str] = (), environment: Mapping[str, str] = MappingProxyType({})
) -> CheckedConfig:
    """The configuration in a text that stands for the file at `path`."""
    document = _complete_document(text, path, overrides, environment)
    return CheckedConfig(*_validate(document, RunConfig, _names(document)))


FILE = Path("folder/bench.yaml")


def config_in(text: str, *overrides: str, **environment: str) -> RunConfig:
    """The configuration in a text, which has no problems."""
    checked = check_text(text, FILE, overrides, environment)
    assert checked.config is not None and checked.problems == (), checked.problems
    return checked.config


def problems_in(text: str, *overrides: str, **environment: str) -> list[str]:
    """What is wrong with the configuration in a text."""
    checked = check_text(text, FILE, overrides, environment)
    assert (checked.config is None) == bool(checked.problems)
    return [str(problem) for problem in checked.problems]
