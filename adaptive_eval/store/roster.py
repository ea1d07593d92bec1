"""The names of a run's models and questions, and the positions by which the core knows them.

Everything that is stored, shown or exchanged has names; the core counts by position. This is where one becomes the
other.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self


class Names:
    """Different names in their order."""

    __slots__ = ("_names", "_positions")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._positions = {name: position for position, name in enumerate(self._names)}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and self._names == other._names

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"Names({list(self._names)})"

    def position_of(self, name: str) -> int:
        """The position of a name; raises `KeyError` if it is unknown."""
        return self._positions[name]

    def name_of(self, position: int) -> str:
        """The name at a position."""
        return self._names[position]


class Roster(NamedTuple):
    """The models and the questions of a run."""

    models: Names
    questions: Names

    @classmethod
    def of(cls, models: Iterable[str], questions: Iterable[str]) -> Self:
        """The roster of these names, in their order."""
        return cls(Names(models), Names(questions))

    def __contains__(self, cell: object) -> bool:
        """Whether a pair of names is a model and a question of the run."""
        return isinstance(cell, tuple) and cell[0] in self.models and cell[1] in self.questions

    def cell(self, model: str, question: str) -> tuple[int, int]:
        """The positions of a model and a question."""
        return self.models.position_of(model), self.questions.position_of(question)
