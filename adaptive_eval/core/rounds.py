"""Rounds: which trials were issued at one look, and which of them have come back.

A `Batch` is one model's share of a round: `extra[q]` further trials of question q, numbered from `first[q]`. Trials are
held by their place in the batch, so that neither the order of arrival nor the batching of `tell` can matter.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.settings import MOST_CATEGORIES
from adaptive_eval.core.types import NO_COST, Ask, Cost, Outcome
from scorio.moments import FloatArray, IntArray, over_questions

UNGRADED = MOST_CATEGORIES
"""The mark of a trial that has come without a grade; categories lie below it."""
MISSING = UNGRADED + 1
"""The mark of a trial that has not come."""
PER_UNIT = 10**12
"""USD and GPU seconds are summed in whole trillionths: a sum that no order of arrival can change."""
_MOST_WHOLE = 2**62


def enough_answers(timed_out: int, trials: int) -> bool:
    """Whether at least half of the trials of a round are real answers, so that its time-outs count as answers, too.

    With fewer, what is not known would weigh more in the score than what is: it would be the score of the time limit,
    and a server that hangs would make any model wrong. By round, so that answers of yesterday do not vouch for a server
    that has stopped answering since.
    """
    return 2 * timed_out <= trials


class BatchPart(NamedTuple):
    """Trials of a batch that have come together, an array a field, and what all of them used."""

    questions: IntArray
    trials: IntArray
    categories: NDArray[np.uint8]
    """UNGRADED where there is none."""
    timed_out: NDArray[np.uint8]
    tokens: int
    usd: int
    """This and what follows in trillionths."""
    gpu_seconds: int
    took: int
    costs: FloatArray
    """(n, 4): what each used, with 1 for itself; empty where the batch keeps no costs."""


def trillionths(values: NDArray[np.float64]) -> int:
    """Their sum as sums of `round(value * PER_UNIT)` are, exactly."""
    scaled = values * PER_UNIT
    if not np.all(np.abs(scaled) < _MOST_WHOLE):
        return sum(map(round, scaled.tolist()))
    return exact_sum(np.rint(scaled).astype(np.int64))


def exact_sum(values: NDArray[np.int64]) -> int:
    """The sum of these numbers, however large."""
    most = int(np.abs(values).max(initial=0))
    return int(values.sum()) if most * len(values) < _MOST_WHOLE else sum(values.tolist())


class Batch:
    """The trials of one model in one round."""

    def __init__(self, model: int, round_index: int, first: IntArray, extra: IntArray, due: float = 0.0) -> None:
        self.model = model
        self.round_index = round_index
        self.due = due
        """When it counts, on the logical clock: what is in flight is committed in this order, whatever comes first."""
        self.first = first.astype(np.int32)
        self.extra = extra.astype(np.int32)
        self.offset = np.concatenate([[0], np.cumsum(extra)]).astype(np.int32)
        self.size = int(self.offset[-1])
        self.missing = self.size
        self.open = self.size
        """How many of its trials may be asked now, the first ones: less where caps do not bear all at their worst."""
        self.promised = np.zeros(4)
        """What caps reserve for each of its trials by the largest so far, where nothing bounds its cost."""
        self.used: FloatArray | None = None
        """(size, 4): what each of its trials has used, with 1 for itself; None where costs have a bound."""
        self._held: dict[int, Cost] = {}
        """What trials have used that have come, and whose categories are told later."""
        self._got = bytearray([MISSING]) * self.size
        self._late = bytearray(self.size)
        """Marks the trials that timed out."""
        self._counts: IntArray | None = None
        self._tokens, self._usd, self._gpu_seconds = 0, 0, 0
        self._took, self._took_untold = 0, 0
        self._next = 0

    def place(self, outcome: Outcome) -> bool | None:
        """Store an outcome: True when it was new, False when it had come before, None when it is not of this batch."""
        question = outcome.question
        place = outcome.trial - int(self.first[question])
        if not 0 <= place < self.extra[question]:
            return None
        slot = int(self.offset[question]) + place
        if self._got[slot] != MISSING:
            return False
        if outcome.cost is not NO_COST:
            tokens, usd, gpu_seconds = outcome.cost
            self._usd += round(usd * PER_UNIT)
            self._gpu_seconds += round(gpu_seconds * PER_UNIT)
            self._tokens += tokens
        if self.used is not None:
            self.used[slot] = (1.0, *outcome.cost)
        self._took += round(outcome.seconds * PER_UNIT)
        self._held.pop(slot, None)
        self._got[slot] = UNGRADED if outcome.category is None else outcome.category
        self._late[slot] = outcome.timed_out
        self.missing -= 1
        return True

    def hold(self, question: int, trial: int, cost: Cost) -> None:
        """Count what a trial has used whose category is told later."""
        place = trial - int(self.first[question])
        if 0 <= place < self.extra[question] and self._got[slot := int(self.offset[question]) + place] == MISSING:
            self._held[slot] = cost
            if self.used is not None:
                self.used[slot] = (1.0, *cost)

    def take_part(self, part: BatchPart) -> bool:
        """Store many outcomes of this batch: False where some had come before."""
        slots = self.offset[part.questions] + part.trials - self.first[part.questions]
        got = np.frombuffer(self._got, dtype=np.uint8)
        if not np.all(got[slots] == MISSING):
            return False
        got[slots] = part.categories
        for slot in slots.tolist() if self._held else ():
            self._held.pop(slot, None)
        np.frombuffer(self._late, dtype=np.uint8)[slots] = part.timed_out
        self._tokens, self._usd = self._tokens + part.tokens, self._usd + part.usd
        self._gpu_seconds, self._took = self._gpu_seconds + part.gpu_seconds, self._took + part.took
        self.missing -= len(slots)
        if self.used is not None:
            self.used[slots] = part.costs
        return True

    def take(self, counts: IntArray, costs: Sequence[Cost], seconds: float = 0.0) -> None:
        """Take all trials of the batch at once, as counts (M, K); `costs` are those of a trial of each category,
        `seconds` what all of them took."""
        for times, (tokens, usd, gpu_seconds) in zip(over_questions(counts).tolist(), costs, strict=True):
            self._tokens += times * tokens
            self._usd += times * round(usd * PER_UNIT)
            self._gpu_seconds += times * round(gpu_seconds * PER_UNIT)
        if self.used is not None:
            self.used = np.repeat([(1.0, *cost) for cost in costs], over_questions(counts), axis=0)
        self._took += round(seconds * PER_UNIT)
        self._counts, self.missing = counts, 0

    def take_time(self, seconds: float) -> None:
        """Record the time of its answers that have come, before they are told."""
        self._took_untold = round(seconds * PER_UNIT)

    def ask_all(self) -> None:
        """Count every trial of the batch as asked for."""
        self._next = self.size

    def asks(self, most: int) -> list[Ask]:
        """The next trials that were neither asked nor have come, at most `most` of them."""
        slots: list[int] = []
        got, end, slot = self._got, self.open, self._next
        while slot < end and len(slots) < most:
            if got[slot] == MISSING:
                slots.append(slot)
            slot += 1
        self._next = slot
        if not slots:
            return []
        place = np.array(slots, dtype=np.int64)
        questions = np.searchsorted(self.offset, place, side="right") - 1
        trials = self.first[questions] + place - self.offset[questions]
        return [
            Ask(self.model, question, trial, self.round_index)
            for question, trial in zip(questions.tolist(), trials.tolist(), strict=True)
        ]

    def owed(self, end: int) -> int:
        """How many of its first trials, as many as `end`, have not come, with a category or without."""
        return self._got.count(MISSING, 0, end) - sum(slot < end for slot in self._held) if self.missing else 0

    def paid(self) -> tuple[float, ...]:
        """How many of its trials have come, with categories or without, and what they used."""
        return self.size - self.missing + len(self._held), *reduce(Cost.plus, self._held.values(), self.total_cost())

    def reserved(self, opened: int, times: int = 1) -> tuple[FloatArray, int]:
        """What caps count of it with so many trials that may be asked: what those that came used, with what is promised
        for the others, and how many these are; what is missing counts so many times.

        Where nothing bounds a cost, no trial counts for more than was promised for it, and only those that were open
        before count as come: so it is the same whatever has come of the others.
        """
        end = max(self.open, min(opened, self.size))
        if self.used is None:
            return np.array(self.paid()), times * self.owed(end)
        owed = times * (self.owed(self.open) + end - self.open)
        came = self.used[: self.open]
        came = np.where(self.promised > 0.0, np.minimum(came, self.promised), came)
        return came.sum(axis=0) + owed * self.promised, owed

    def asked_and_missing(self) -> int:
        """Trials that were asked for and have not come."""
        return self._got.count(MISSING, 0, self._next) if self.missing else 0

    @property
    def timed_out(self) -> int:
        """Trials that timed out."""
        return self._late.count(1)

    @property
    def answers(self) -> bool:
        """Whether so many of the trials that have come are real answers that the others may be called time-outs."""
        return enough_answers(self.timed_out, self.size - self.missing)

    def categories(self, categories: int, *, late: bool = False) -> IntArray:
        """Counts (M, K) of the batch, complete or not, of what has a grade; `late`: of those that timed out."""
        if self._counts is not None and not late:
            return self._counts
        got = np.frombuffer(self._got, dtype=np.uint8)
        here = got < UNGRADED
        if late:
            here &= np.frombuffer(self._late, dtype=np.bool_)
        flat = np.bincount(self._questions()[here] * categories + got[here], minlength=len(self.extra) * categories)
        return flat.reshape(len(self.extra), categories)

    @property
    def some_ungraded(self) -> bool:
        """Whether any trial has come without a grade."""
        return UNGRADED in self._got

    def ungraded(self) -> IntArray:
        """How many trials (M,) of the batch have come without a grade."""
        got = np.frombuffer(self._got, dtype=np.uint8)
        return np.bincount(self._questions()[got == UNGRADED], minlength=len(self.extra))

    def came(self) -> NDArray[np.uint8]:
        """The category of each place, UNGRADED where there is none."""
        return np.frombuffer(self._got, dtype=np.uint8)

    def _questions(self) -> IntArray:
        """The question of each place."""
        return np.repeat(np.arange(len(self.extra)), self.extra)

    def total_cost(self) -> Cost:
        """Cost of the trials that have come."""
        return Cost(self._tokens, self._usd / PER_UNIT, self._gpu_seconds / PER_UNIT)

    @property
    def seconds(self) -> float:
        """How long its answers take on average, were those that are missing there already; 0 where nobody knows."""
        return max(self._took, self._took_untold) / PER_UNIT / self.size

    def places(self) -> tuple[IntArray, IntArray]:
        """Question and trial of every trial of the batch, rising."""
        questions = self._questions()
        return questions, self.first[questions] + np.arange(self.size) - self.offset[questions]


class Round:
    """Trials issued at one look: a batch for each model that goes on.

    As arrays (L, M) it is `extra` further trials of each question, numbered from `first`.
    """

    def __init__(self, index: int, issued: IntArray, plan: IntArray) -> None:
        self.index = index
        self.first, self.extra = issued, plan
        self.batches = {
            int(model): Batch(int(model), index, issued[model], plan[model])
            for model in np.flatnonzero(plan.sum(axis=1) > 0)
        }
