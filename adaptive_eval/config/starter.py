"""The configuration to start from: a file with comments, and in it what can be chosen, as the registry has it."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from adaptive_eval.core.entries import Entry
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES

COLUMN = 22
"""Where what is said of a rule begins."""


def starter() -> str:
    """The text of a first configuration."""
    text = files("adaptive_eval.config").joinpath("starter.yaml").read_text(encoding="utf-8")
    lists = {
        "# @objectives": _whole("objective", "kind", OBJECTIVES),
        "  # @rules": (f"  #   {line}" for line in _choices(RULES)),
        "  # @policies": (f"  #   {line}" for line in _choices(POLICIES)),
    }
    for mark, lines in lists.items():
        text = text.replace(mark, "\n".join(lines))
    return text


def _choices(entries: Mapping[str, Entry[Any]]) -> Iterator[str]:
    """Each entry but the first, which the file shows, with its options."""
    for entry in list(entries.values())[1:]:
        options = ", ".join(f"{option.name}: {_written(option.example)}" for option in entry.options)
        given = f" ({options})" if options else ""
        yield f"{entry.name:<{COLUMN}}{entry.gist}{given}"


def _whole(section: str, key: str, entries: Mapping[str, Entry[Any]]) -> Iterator[str]:
    """Each but the first as a section that could stand in its place."""
    lines = {}
    for entry in list(entries.values())[1:]:
        options = "".join(f", {option.name}: {_written(option.example)}" for option in entry.options)
        value = f"{{{key}: {entry.name}{options}}}" if options else entry.name
        lines[f"# {section}: {value}"] = entry.gist
    width = max(map(len, lines)) + 2
    yield from (f"{line:<{width}}# {gist}" for line, gist in lines.items())


def _written(value: object) -> str:
    return f"[{', '.join(map(_written, value))}]" if isinstance(value, tuple) else str(value)
