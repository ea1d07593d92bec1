"""Conversion between the names of a run's models and questions and the positions that the core uses.

Everything that is stored, shown or exchanged has names; the core counts by position.
"""

from collections.abc import Iterable
from typing import NamedTuple, Self


class Names(tuple[str, ...]):
    """A tuple of distinct names with constant-time lookup."""

    def __init__(self, names: Iterable[str]) -> None:
        self._positions = {name: position for position, name in enumerate(self)}

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def position(self, name: str) -> int:
        """The position of a name; raises `KeyError` if it is unknown."""
        return self._positions[name]


class Roster(NamedTuple):
    """The models and the questions of a run."""

    models: Names
    questions: Names

    @classmethod
    def of(cls, models: Iterable[str], questions: Iterable[str]) -> Self:
        """A roster of these names, in this order."""
        return cls(Names(models), Names(questions))

    def __contains__(self, cell: object) -> bool:
        """Whether a pair of names is a model and a question of the run."""
        return isinstance(cell, tuple) and cell[0] in self.models and cell[1] in self.questions

    def cell(self, model: str, question: str) -> tuple[int, int]:
        """The positions of a model and a question."""
        return self.models.position(model), self.questions.position(question)
