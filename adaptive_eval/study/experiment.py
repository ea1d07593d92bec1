"""Findings of a study as plain values: tables, curves, and measurements compared with requirements."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

Cell = str | int | float | None
OnStudyProgress = Callable[[float, str], None]
"""Callback with the completed share of a study, and what it is doing."""


class StudyRequest(NamedTuple):
    """Number of replicates, and the seed."""

    replicates: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class DataTable:
    """Rows to show, and to write to a CSV file of the table's name."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: bool = True
    """Whether it is short enough for a terminal."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a figure."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]

    @classmethod
    def of(cls, label: str, x: Iterable[float], y: Iterable[float]) -> Self:
        """A curve through these points."""
        return cls(label, tuple(map(float, x)), tuple(map(float, y)))


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of a figure: curves over one axis."""

    title: str
    across: str
    up: str
    curves: tuple[Curve, ...]
    kind: Literal["lines", "steps", "bars", "cells"] = "lines"
    """In `cells`, a heat map, each curve is a row, with column numbers as `x` and values as `y`."""
    columns: tuple[str, ...] = ()
    """Names of the columns of `cells`."""


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """A figure with its panels, and the name of its files."""

    name: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Criterion:
    """A measurement beside the required one; `holds` is None if nothing is required."""

    what: str
    found: Cell
    required: str
    holds: bool | None


@dataclass(frozen=True, slots=True)
class Experiment:
    """Findings of a study."""

    name: str
    title: str
    settings: dict[str, Cell]
    tables: tuple[DataTable, ...]
    figures: tuple[StudyFigure, ...]
    criteria: tuple[Criterion, ...] = ()
    notes: tuple[str, ...] = field(default=())


def within(what: str, found: float, goal: float, slack: float) -> Criterion:
    """A measurement that must equal a goal, within a slack."""
    return Criterion(what, found, f"{goal:g} +- {slack:g}", bool(abs(found - goal) <= slack))


def at_least(what: str, found: float, least: float) -> Criterion:
    """A measurement that may not be smaller."""
    return Criterion(what, found, f">= {least:g}", bool(found >= least))


def at_most(what: str, found: float, most: float) -> Criterion:
    """A measurement that may not be larger."""
    return Criterion(what, found, f"<= {most:g}", bool(found <= most))


def part_of_progress(on_progress: OnStudyProgress, first: float, last: float) -> OnStudyProgress:
    """Report the progress of a part of a study as that of the whole: its 0 to 1 is `first` to `last`."""
    return lambda share, state: on_progress(first + (last - first) * share, state)
