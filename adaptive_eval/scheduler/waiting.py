"""Trials that were asked for and wait for a free slot of their model."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from adaptive_eval.core.types import Ask


class TrialGroup(NamedTuple):
    """Consecutive trials of one question and round, which may travel in one request."""

    question: int
    first: int
    """The number of the first trial."""
    size: int
    round: int

    @property
    def trials(self) -> range:
        """The numbers of all of them."""
        return range(self.first, self.first + self.size)


class WaitingLine:
    """One model's trials in the order they were asked for, grouped by question."""

    def __init__(self) -> None:
        self._groups: deque[TrialGroup] = deque()
        self.trials = 0
        """How many trials wait."""

    def add(self, asks: Iterable[Ask]) -> None:
        """Append trials; one that continues the last group joins it."""
        for _, question, trial, round_ in asks:
            self.trials += 1
            last = self._groups[-1] if self._groups else None
            if last and (last.question, last.round, last.first + last.size) == (question, round_, trial):
                self._groups[-1] = last._replace(size=last.size + 1)
            else:
                self._groups.append(TrialGroup(question, trial, 1, round_))

    def peek(self) -> TrialGroup | None:
        """The group whose turn it is."""
        return self._groups[0] if self._groups else None

    def take(self, at_most: int) -> TrialGroup:
        """The first trials of the group whose turn it is; the others keep their place."""
        group = self._groups.popleft()
        if group.size > at_most:
            self._groups.appendleft(group._replace(first=group.first + at_most, size=group.size - at_most))
            group = group._replace(size=at_most)
        self.trials -= group.size
        return group

    def clear(self) -> None:
        """Forget all of them."""
        self._groups.clear()
        self.trials = 0
