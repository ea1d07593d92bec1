"""A rule, a policy and an objective of somebody's own, as CONTRIBUTING.md has them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from adaptive_eval.core import Objective


@dataclass(frozen=True)
class Stern:
    """height - 0.5 t, where t is the share of information."""

    height: float = 4.0

    def boundary(self, evidence: Any) -> Any:
        return np.maximum(self.height - 0.5 * evidence.information, 1.0)


@dataclass(frozen=True)
class Alike:
    """A trial of each question for all models in an open comparison."""

    only_open: ClassVar[bool] = True

    def allocate(self, view: Any) -> Any:
        plan = np.zeros_like(view.issued)
        for pair in view.open_pairs:
            for model in pair[pair < len(plan)]:
                plan[model, : view.sizes[model]] = 1
        return plan


@dataclass(frozen=True)
class Ends(Objective):
    """The best model against the worst."""

    def comparisons(self, order: Any) -> Any:
        return np.array([[order[0], order[-1]]])

    def family(self, models: int) -> int:
        return models * (models - 1) // 2
