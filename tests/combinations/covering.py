"""Rows that bring together every pair, or every triple, of levels that can be together: a covering array.

Greedy and deterministic. A row begins with a combination that no earlier row has; then each factor gets the level that
brings most new combinations, or the plain one if none brings any, as long as the row can still be completed. Sets of
levels are the bits of an integer.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Protocol

CANDIDATES = {2: 20, 3: 4}
"""Ways in which each row is tried, by strength; the best one is taken."""

Row = dict[str, str]


class Conflicting(Protocol):
    """Levels that do not go together, by factor."""

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]: ...


class Space:
    """All rows without a conflict."""

    def __init__(self, factors: Mapping[str, Sequence[str]], conflicts: Sequence[Conflicting]) -> None:
        self.factors = factors
        self.names = list(factors)
        pairs = [(name, level) for name in factors for level in factors[name]]
        self.numbers = {pair: number for number, pair in enumerate(pairs)}
        self.pairs = pairs
        self._factor_of = [self.names.index(name) for name, _ in pairs]
        self.of_factor = [[self.numbers[name, level] for level in factors[name]] for name in factors]
        self._plain = [1 << numbers[0] for numbers in self.of_factor]
        self._conflicts = [
            tuple(self._bits(name, levels) for name, levels in conflict.levels.items()) for conflict in conflicts
        ]

    def _bits(self, name: str, levels: Sequence[str]) -> int:
        """These levels of a factor, as far as it has them here."""
        return sum(1 << self.numbers[name, level] for level in levels if (name, level) in self.numbers)

    def _conflict(self, row: int) -> tuple[int, ...] | None:
        """A conflict that holds in a row, which may be incomplete."""
        return next((conflict for conflict in self._conflicts if all(row & bits for bits in conflict)), None)

    def can_complete(self, row: int, open_factors: Sequence[int]) -> bool:
        """Whether these factors can be given levels, too."""
        if self._conflict(row) is not None:
            return False
        conflict = self._conflict(row + sum(self._plain[at] for at in open_factors))
        if conflict is None:
            return True
        for at in open_factors:  # one of the conflict's factors cannot be plain
            if not any(bits & self._plain[at] for bits in conflict):
                continue
            others = [other for other in open_factors if other != at]
            if any(self.can_complete(row | 1 << number, others) for number in self.of_factor[at][1:]):
                return True
        return False

    def is_possible(self, numbers: Sequence[int]) -> bool:
        """Whether some row has all of these levels."""
        given = {self.factor_of(number) for number in numbers}
        row = sum(1 << number for number in numbers)
        return self.can_complete(row, [at for at in range(len(self.names)) if at not in given])

    def completed(self, levels: Mapping[str, str]) -> Row | None:
        """A row with these levels, as plain as possible; None if there is none."""
        numbers = [self.numbers[pair] for pair in levels.items()]
        if not self.is_possible(numbers):
            return None
        row, open_factors = (
            sum(1 << number for number in numbers),
            [at for at, name in enumerate(self.names) if name not in levels],
        )
        while open_factors:
            at = open_factors.pop(0)
            number = next(number for number in self.of_factor[at] if self.can_complete(row | 1 << number, open_factors))
            numbers.append(number)
            row |= 1 << number
        return self.row(numbers)

    def factor_of(self, number: int) -> int:
        return self._factor_of[number]

    def combinations(self, strength: int) -> Iterator[tuple[int, ...]]:
        """Every combination of so many levels that is in some row, in the order of the factors."""
        for factors in combinations(range(len(self.names)), strength):
            for numbers in product(*(self.of_factor[at] for at in factors)):
                if self.is_possible(numbers):
                    yield numbers

    def row(self, numbers: Sequence[int]) -> Row:
        levels = dict(self.pairs[number] for number in numbers)
        return {name: levels[name] for name in self.names}


class Missing:
    """The combinations that no row has yet."""

    def __init__(self, level_sets: Iterator[tuple[int, ...]]) -> None:
        self._all = dict.fromkeys(level_sets)
        self._last: dict[tuple[int, ...], int] = {}
        """By all levels of a combination but one, in any order, the others that complete it."""
        for numbers in self._all:
            for number in numbers:
                others = tuple(other for other in numbers if other != number)
                self._last[others] = self._last.get(others, 0) | 1 << number

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def first(self) -> tuple[int, ...]:
        return next(iter(self._all))

    def with_level(self, numbers: Sequence[int], number: int, strength: int) -> int:
        """How many combinations of a level with those of a row are missing."""
        row = sum(1 << other for other in numbers)
        total = 0
        for chosen in combinations(numbers, strength - 2):
            total += (self._last.get(tuple(sorted((*chosen, number))), 0) & row).bit_count()
        return total // (strength - 1)

    def remove_within(self, row: Sequence[int], strength: int) -> None:
        for numbers in combinations(sorted(row), strength):
            if numbers not in self._all:
                continue
            del self._all[numbers]
            for number in numbers:
                others = tuple(other for other in numbers if other != number)
                self._last[others] &= ~(1 << number)


def covering_array(space: Space, strength: int = 2, seed: int = 0, within: tuple[str, str] | None = None) -> list[Row]:
    """Rows in which every possible combination of so many levels is found; or those that have the level `within`."""
    number = None if within is None else space.numbers[within]
    missing = Missing(levels for levels in space.combinations(strength) if number is None or number in levels)
    chance, rows = random.Random(seed), list[Row]()
    while missing:
        candidates = [_candidate(space, missing, strength, chance) for _ in range(CANDIDATES[strength])]
        _, numbers = max(candidates, key=lambda candidate: candidate[0])
        rows.append(space.row(numbers))
        missing.remove_within(numbers, strength)
    return rows


def _candidate(space: Space, missing: Missing, strength: int, chance: random.Random) -> tuple[int, list[int]]:
    """A row that begins with the first missing combination, and the number of missing ones that it has."""
    numbers = list(missing.first)
    row, gained = sum(1 << number for number in numbers), 1
    open_factors = [at for at in range(len(space.names)) if at not in map(space.factor_of, numbers)]
    chance.shuffle(open_factors)
    while open_factors:
        at = open_factors.pop()
        gains = [(missing.with_level(numbers, number, strength), number) for number in space.of_factor[at]]
        chance.shuffle(gains)
        plain = space.of_factor[at][0]
        for gain, number in sorted(gains, key=lambda pair: (-pair[0], pair[0] == 0 and pair[1] != plain)):
            if space.can_complete(row | 1 << number, open_factors):
                numbers.append(number)
                row, gained = row | 1 << number, gained + gain
                break
    return gained, numbers
