"""Objectives: which comparisons matter, given today's order.

An objective also says how many one-sided mistakes it could make, which is what a familywise promise divides by: a
fixed set of pairs is corrected by Holm's procedure; where the data choose the pairs, the divisor counts every
comparison that could turn out to be the wrong one (for `best`, the true best model against each of the others).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from adaptive_eval.core.evidence import IndexArray, pair_indices
from adaptive_eval.core.settings import require

FAR_AWAY = -1e6
"""A reference that no score comes near, where only the precision of the score matters."""


class Objective(Protocol):
    """Chooses the comparisons."""

    def comparisons(self, order: IndexArray) -> IndexArray:
        """Pairs (n, 2) of models, either of them first; with a reference value, (model, L).

        `order` has the models from best to worst, but those last that were set aside: they are in nobody's way.
        """
        ...

    def family(self, models: int) -> IndexArray | int:
        """The fixed pairs (n, 2) that Holm's procedure corrects, or a divisor for Bonferroni's."""
        ...

    @property
    def reference(self) -> float | None:
        """The fixed value that models are compared with, if that is what is asked."""
        ...


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every model against its neighbour in the current order."""

    reference: None = None

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([order[:-1], order[1:]], axis=1)

    def family(self, models: int) -> IndexArray:
        return np.stack(pair_indices(models, reference=False), axis=1)


@dataclass(frozen=True, slots=True)
class Best:
    """The leader against every other model."""

    reference: None = None

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([np.full(len(order) - 1, order[0]), order[1:]], axis=1)

    def family(self, models: int) -> int:
        return models - 1


@dataclass(frozen=True, slots=True)
class TopK:
    """Each of the first k against each of the rest."""

    k: int
    reference: None = None

    def __post_init__(self) -> None:
        require(self.k >= 1, "k must be at least 1", self.k)

    def comparisons(self, order: IndexArray) -> IndexArray:
        inside, outside = order[: self.k], order[self.k :]
        return np.stack([np.repeat(inside, len(outside)), np.tile(outside, len(inside))], axis=1)

    def family(self, models: int) -> int:
        return self.k * (models - self.k)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Every model against one that is named."""

    baseline: int
    reference: None = None

    def comparisons(self, order: IndexArray) -> IndexArray:
        return self.family(len(order))

    def family(self, models: int) -> IndexArray:
        others = np.flatnonzero(np.arange(models) != self.baseline)
        return np.stack([np.full(len(others), self.baseline), others], axis=1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A given list of pairs."""

    pairs: tuple[tuple[int, int], ...]
    reference: None = None

    def comparisons(self, order: IndexArray) -> IndexArray:
        return self.family(len(order))

    def family(self, models: int) -> IndexArray:
        return np.array(self.pairs, dtype=np.intp).reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Is each model above a value?"""

    value: float

    @property
    def reference(self) -> float:
        return self.value

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([order, np.full(len(order), len(order))], axis=1)

    def family(self, models: int) -> IndexArray:
        return np.stack(pair_indices(models, reference=True), axis=1)


@dataclass(frozen=True, slots=True)
class PrecisionOf:
    """Each model's score to within a half-width; judged by the rule `Precision`."""

    half_width: float

    def __post_init__(self) -> None:
        require(self.half_width > 0.0, "half_width must be positive", self.half_width)

    @property
    def reference(self) -> float:
        return FAR_AWAY

    def comparisons(self, order: IndexArray) -> IndexArray:
        return np.stack([order, np.full(len(order), len(order))], axis=1)

    def family(self, models: int) -> int:
        return 1
