"""What many probes say, so that one process can be asked for all of it."""

from collections.abc import Callable, Mapping
from typing import Any


def told_by_each(asked: Mapping[str, tuple[Callable[..., str], tuple[Any, ...]]]) -> str:
    """A line for each name."""
    return "\n".join(f"{name}: {probe(*arguments)}" for name, (probe, arguments) in asked.items())
