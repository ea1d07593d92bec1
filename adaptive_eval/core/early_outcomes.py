"""Outcomes of an earlier run that no round has asked for yet, and what they have cost.

Most are asked for as soon as the looks are taken anew. What is left then was bought under other settings: before a
model joined or came back, the others may have had many rounds. It is paid for, so caps count it.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from adaptive_eval.core.rounds import PER_UNIT
from adaptive_eval.core.types import Cost, Outcome
from scorio.moments import IntArray

Place = tuple[int, int, int]
"""(model, question, trial)"""


class EarlyOutcomes:
    """Kept by their places; costs are summed in whole trillionths, so that nothing is left of what was taken."""

    def __init__(self) -> None:
        self._kept: dict[Place, Outcome] = {}
        self._tokens, self._usd, self._gpu_seconds = 0, 0, 0
        self.of_model: Counter[int] = Counter()
        """How many there are of each."""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, outcome: Outcome) -> None:
        """Until a round asks for it."""
        self._kept[outcome[:3]] = outcome
        self._count(outcome, 1)

    def take(self, places: Iterable[Place]) -> list[Outcome]:
        """Those of these places that are kept; they are kept no more."""
        found = [outcome for place in places if (outcome := self._kept.pop(place, None)) is not None]
        for outcome in found:
            self._count(outcome, -1)
        return found

    def added_to(self, counts: IntArray) -> IntArray:
        """Counts (L, M, K) with those of the kept ones that have a grade."""
        if not self._kept:
            return counts
        graded = [(one.model, one.question, one.category) for one in self._kept.values() if one.category is not None]
        counts = counts.copy()
        np.add.at(counts, tuple(np.array(graded, dtype=np.intp).reshape(-1, 3).T), 1)
        return counts

    @property
    def cost(self) -> Cost:
        """What the kept ones have used."""
        return Cost(self._tokens, self._usd / PER_UNIT, self._gpu_seconds / PER_UNIT)

    def _count(self, outcome: Outcome, times: int) -> None:
        tokens, usd, gpu_seconds = outcome.cost
        self.of_model[outcome.model] += times
        self._tokens += times * tokens
        self._usd += times * round(usd * PER_UNIT)
        self._gpu_seconds += times * round(gpu_seconds * PER_UNIT)
