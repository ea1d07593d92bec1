"""Writes a first configuration: a commented file that lists the choices of the registry."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from adaptive_eval.core.entries import Entry
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES

COLUMN = 22
"""Column of descriptions."""


def short_starter() -> str:
    """A first configuration with the ten keys that most runs set."""
    return files("adaptive_eval.config").joinpath("starter_short.yaml").read_text(encoding="utf-8")


def starter() -> str:
    """A configuration with every choice."""
    text = files("adaptive_eval.config").joinpath("starter.yaml").read_text(encoding="utf-8")
    lists = {
        "# @objectives": _section_choices("objective", "kind", OBJECTIVES),
        "  # @rules": (f"  #   {line}" for line in _choices(RULES)),
        "  # @policies": (f"  #   {line}" for line in _choices(POLICIES)),
    }
    for mark, lines in lists.items():
        text = text.replace(mark, "\n".join(lines))
    return text


def _choices(entries: Mapping[str, Entry[Any]]) -> Iterator[str]:
    """All entries with their options, except the first, which the file sets."""
    for entry in list(entries.values())[1:]:
        options = ", ".join(f"{option.name}: {_format_example(option.example)}" for option in entry.options)
        given = f" ({options})" if options else ""
        yield f"{entry.name:<{COLUMN}}{entry.summary}{given}"


def _section_choices(section: str, key: str, entries: Mapping[str, Entry[Any]]) -> Iterator[str]:
    """All choices except the first, as alternative sections."""
    lines = {}
    for entry in list(entries.values())[1:]:
        options = "".join(f", {option.name}: {_format_example(option.example)}" for option in entry.options)
        value = f"{{{key}: {entry.name}{options}}}" if options else entry.name
        lines[f"# {section}: {value}"] = entry.summary
    width = max(map(len, lines)) + 2
    yield from (f"{line:<{width}}# {gist}" for line, gist in lines.items())


def _format_example(value: object) -> str:
    return f"[{', '.join(map(_format_example, value))}]" if isinstance(value, tuple) else str(value)
