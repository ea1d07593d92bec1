"""Counts of a run with the names of its models and questions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.roster import Roster
from scorio.moments import CountArray


@dataclass(frozen=True, slots=True, eq=False)
class RunCounts:
    """Counts (L, M, K) with the names of models and questions."""

    roster: Roster
    cells: CountArray
    """R0 and all complete rounds."""
    before: CountArray
    """Counts of R0 alone."""
    recorded: frozenset[str] = frozenset()
    """Models whose counts are those of an earlier run."""

    @property
    def own(self) -> NDArray[np.int64]:
        """Counts without R0."""
        return np.asarray(self.cells - self.before)

    def of(self, models: Sequence[str], questions: Sequence[str]) -> "RunCounts":
        """Select models and questions, in this order."""
        rows = list(map(self.roster.models.position, models))
        chosen = np.ix_(rows, list(map(self.roster.questions.position, questions)))
        recorded = self.recorded.intersection(models)
        return RunCounts(Roster.of(models, questions), self.cells[chosen], self.before[chosen], recorded)
