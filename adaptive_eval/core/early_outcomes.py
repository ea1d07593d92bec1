"""Outcomes of an earlier run that no round has asked for yet, and their cost.

A round asks for most of them as soon as the looks are repeated. The others were bought under other settings: before a
model joined or came back, the others may have had many rounds. They are paid for, so caps count them.

Resuming a run of millions of trials keeps each as a record of 42 bytes; a batch takes all of its outcomes at once.
"""

from collections import defaultdict
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rounds import PER_UNIT, UNGRADED, Batch, BatchPart, WholeSums, exact_sum, trillionths
from adaptive_eval.core.types import Cost, ModelNumbers, Outcome

_TRIALS = 2**32
"""A trial's place is its question's number times this, plus its own number."""
_RECORD = Struct("<qqdddBB")
_FIELDS = ("place", "tokens", "usd", "gpu_seconds", "seconds", "category", "kinds")
_KINDS = np.dtype(list(zip(_FIELDS, ("<i8", "<i8", "<f8", "<f8", "<f8", "u1", "u1"), strict=True)))
Records = NDArray[np.void]


class _ModelOutcomes:
    """The outcomes of one model, sorted by place, and those added since they were sorted."""

    def __init__(self, records: Records | None = None) -> None:
        self._sorted: Records = np.empty(0, _KINDS) if records is None else records
        self._new = bytearray()
        self._cost: tuple[int, int, int] | None = None

    def __len__(self) -> int:
        return len(self._sorted) + len(self._new) // _RECORD.size

    def keep(self, outcome: Outcome) -> None:
        _, question, trial, category, cost, kinds, seconds = outcome
        grade = UNGRADED if category is None else category
        self._new += _RECORD.pack(question * _TRIALS + trial, *cost, seconds, grade, kinds)

    def ordered(self) -> Records:
        """All kept outcomes by place; the latest one if a place has several."""
        if self._new:
            records = np.concatenate([self._sorted, np.frombuffer(self._new, _KINDS)])
            self._new, self._cost = bytearray(), None
            order = np.argsort(records["place"], kind="stable")
            places = records["place"][order]
            self._sorted = np.asarray(records[order[np.append(places[1:] != places[:-1], True)]])
        return self._sorted

    def take(self, places: NDArray[np.int64]) -> Records:
        """Remove and return the kept outcomes among these places."""
        records = self.ordered()
        if not len(records):
            return records
        at = np.minimum(np.searchsorted(records["place"], places), len(records) - 1)
        at = at[records["place"][at] == places]
        if len(at):
            is_kept = np.ones(len(records), bool)
            is_kept[at] = False
            self._sorted, self._cost = records[is_kept], None
        return np.asarray(records[at])

    def cost(self) -> tuple[int, int, int]:
        """Tokens, and USD and GPU seconds in trillionths."""
        records = self.ordered()
        if self._cost is None:
            self._cost = _sum_costs(records)
        return self._cost

    def graded(self) -> int:
        """How many outcomes are graded."""
        return int(np.count_nonzero(self.ordered()["category"] < UNGRADED))


def _sum_costs(records: Records) -> tuple[int, int, int]:
    return exact_sum(records["tokens"]), trillionths(records["usd"]), trillionths(records["gpu_seconds"])


class EarlyOutcomes:
    """Outcomes by model and place; costs are summed in whole trillionths, so that taking all leaves exactly 0."""

    def __init__(self) -> None:
        self._by_model: defaultdict[int, _ModelOutcomes] = defaultdict(_ModelOutcomes)

    def __len__(self) -> int:
        return sum(map(len, self._by_model.values()))

    def for_models(self, models: ModelNumbers) -> "EarlyOutcomes":
        """The kept outcomes of models that stay, under their new numbers."""
        renumbered = EarlyOutcomes()
        for model, old_number in enumerate(models):
            if old_number is not None and old_number in self._by_model:
                renumbered._by_model[model] = _ModelOutcomes(self._by_model[old_number].ordered())
        return renumbered

    def kept_outcomes(self, model: int) -> int:
        """How many outcomes of a model are kept."""
        return len(self._by_model[model])

    def keep(self, outcome: Outcome) -> None:
        """Keep an outcome until a round asks for it."""
        self._by_model[outcome.model].keep(outcome)

    def take(self, batch: Batch) -> BatchPart | None:
        """Remove and return the kept outcomes of a batch; None if there are none."""
        questions, trials = batch.places()
        records = self._by_model[batch.model].take(questions * _TRIALS + trials)
        if not len(records):
            return None
        questions, trials = np.divmod(records["place"], _TRIALS)
        spent = WholeSums(*_sum_costs(records), trillionths(records["seconds"]))
        costs = np.zeros((0, 4))
        if batch.used is not None:
            costs = np.stack(
                [np.ones(len(records)), *(records[name] for name in ("tokens", "usd", "gpu_seconds"))], axis=1
            )
        return BatchPart(questions, trials, records["category"], records["kinds"], spent, costs)

    @property
    def graded(self) -> int:
        """How many of the kept outcomes are graded."""
        return sum(outcomes.graded() for outcomes in self._by_model.values())

    @property
    def cost(self) -> Cost:
        """Cost of the kept outcomes."""
        tokens, usd, gpu_seconds = map(
            sum, zip((0, 0, 0), *(outcomes.cost() for outcomes in self._by_model.values()), strict=True)
        )
        return Cost(tokens, usd / PER_UNIT, gpu_seconds / PER_UNIT)
