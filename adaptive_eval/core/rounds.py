"""Rounds: which trials were issued at one look, and which of them have come back.

A `Batch` is one model's share of a round: `extra[q]` further trials of question q, numbered from `first[q]`. Trials are
held by their place in the batch, so that neither the order of arrival nor the batching of `tell` can matter.
"""

from __future__ import annotations

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


class WholeSums:
    """Sums over trials in whole numbers: tokens, and USD, GPU seconds and seconds until answers came in trillionths."""

    def __init__(self, tokens: int = 0, usd: int = 0, gpu_seconds: int = 0, seconds: int = 0) -> None:
        self.tokens, self.usd, self.gpu_seconds, self.seconds = tokens, usd, gpu_seconds, seconds

    def add(self, cost: Cost, times: int = 1) -> None:
        """Count so many trials of this cost."""
        tokens, usd, gpu_seconds = cost
        self.tokens += times * tokens
        self.usd += times * round(usd * PER_UNIT)
        self.gpu_seconds += times * round(gpu_seconds * PER_UNIT)

    def add_sums(self, more: WholeSums) -> None:
        """Count the trials of other sums."""
        self.tokens, self.usd = self.tokens + more.tokens, self.usd + more.usd
        self.gpu_seconds, self.seconds = self.gpu_seconds + more.gpu_seconds, self.seconds + more.seconds


class BatchPart(NamedTuple):
    """Trials of a batch that have come together, an array a field, and what all of them used."""

    questions: IntArray
    trials: IntArray
    categories: NDArray[np.uint8]
    """UNGRADED where there is none."""
    timed_out: NDArray[np.uint8]
    spent: WholeSums
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


class TrialSlots:
    """Where each trial of a batch lies in its arrays: `extra[q]` trials of question q, numbered from `first[q]`."""

    def __init__(self, first: IntArray, extra: IntArray) -> None:
        self.first, self.extra = first.astype(np.int32), extra.astype(np.int32)
        self._offset = np.concatenate([[0], np.cumsum(extra)]).astype(np.int32)
        self.size = int(self._offset[-1])

    def slot(self, question: int, trial: int) -> int | None:
        """The slot of a trial; None if it is not of this batch."""
        place = trial - int(self.first[question])
        return int(self._offset[question]) + place if 0 <= place < self.extra[question] else None

    def slots(self, questions: IntArray, trials: IntArray) -> IntArray:
        """The slots of trials of this batch."""
        return self._offset[questions] + trials - self.first[questions]

    def trials_at(self, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Question and trial of each of these slots."""
        questions = np.searchsorted(self._offset, slots, side="right") - 1
        return questions, self.first[questions] + slots - self._offset[questions]

    def questions(self) -> IntArray:
        """The question of each slot."""
        return np.repeat(np.arange(len(self.extra)), self.extra)


class Batch:
    """The trials of one model in one round."""

    def __init__(self, model: int, round_index: int, first: IntArray, extra: IntArray, due: float = 0.0) -> None:
        self.model = model
        self.round_index = round_index
        self.due = due
        """When it counts, on the logical clock: what is in flight is committed in this order, whatever comes first."""
        self.slots = TrialSlots(first, extra)
        self.size = self.slots.size
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
        self._spent = WholeSums()
        self._seconds_so_far = 0
        """In trillionths: how long the answers took that have come, while nothing of them is told."""
        self._next = 0

    def place(self, outcome: Outcome) -> bool | None:
        """Store an outcome: True when it was new, False when it had come before, None when it is not of this batch."""
        slot = self.slots.slot(outcome.question, outcome.trial)
        if slot is None:
            return None
        if self._got[slot] != MISSING:
            return False
        if outcome.cost is not NO_COST:
            self._spent.add(outcome.cost)
        self._spent.seconds += round(outcome.seconds * PER_UNIT)
        if self.used is not None:
            self.used[slot] = (1.0, *outcome.cost)
        self._held.pop(slot, None)
        self._got[slot] = UNGRADED if outcome.category is None else outcome.category
        self._late[slot] = outcome.timed_out
        self.missing -= 1
        return True

    def hold(self, question: int, trial: int, cost: Cost) -> None:
        """Count what a trial has used whose category is told later."""
        slot = self.slots.slot(question, trial)
        if slot is not None and self._got[slot] == MISSING:
            self._held[slot] = cost
            if self.used is not None:
                self.used[slot] = (1.0, *cost)

    def take_part(self, part: BatchPart) -> bool:
        """Store many outcomes of this batch: False where some had come before."""
        slots = self.slots.slots(part.questions, part.trials)
        got = np.frombuffer(self._got, dtype=np.uint8)
        if not np.all(got[slots] == MISSING):
            return False
        got[slots] = part.categories
        for slot in slots.tolist() if self._held else ():
            self._held.pop(slot, None)
        np.frombuffer(self._late, dtype=np.uint8)[slots] = part.timed_out
        self._spent.add_sums(part.spent)
        self.missing -= len(slots)
        if self.used is not None:
            self.used[slots] = part.costs
        return True

    def take(self, counts: IntArray, costs: Sequence[Cost], seconds: float = 0.0) -> None:
        """Take all trials of the batch at once, as counts (M, K); `costs` are those of a trial of each category,
        `seconds` what all of them took."""
        for times, cost in zip(over_questions(counts).tolist(), costs, strict=True):
            self._spent.add(cost, times)
        self._spent.seconds += round(seconds * PER_UNIT)
        if self.used is not None:
            self.used = np.repeat([(1.0, *cost) for cost in costs], over_questions(counts), axis=0)
        self._counts, self.missing = counts, 0

    def take_time(self, seconds: float) -> None:
        """Record the time of its answers that have come, before they are told."""
        self._seconds_so_far = round(seconds * PER_UNIT)

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
        questions, trials = self.slots.trials_at(np.array(slots, dtype=np.int64))
        return [
            Ask(self.model, question, trial, self.round_index)
            for question, trial in zip(questions.tolist(), trials.tolist(), strict=True)
        ]

    def count_missing(self, end: int) -> int:
        """How many of its first `end` trials have not come, with a category or without."""
        return self._got.count(MISSING, 0, end) - sum(slot < end for slot in self._held) if self.missing else 0

    def spent_so_far(self) -> tuple[float, ...]:
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
            return np.array(self.spent_so_far()), times * self.count_missing(end)
        owed = times * (self.count_missing(self.open) + end - self.open)
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
        questions = len(self.slots.extra)
        flat = np.bincount(self.slots.questions()[here] * categories + got[here], minlength=questions * categories)
        return flat.reshape(questions, categories)

    @property
    def some_ungraded(self) -> bool:
        """Whether any trial has come without a grade."""
        return UNGRADED in self._got

    def ungraded(self) -> IntArray:
        """How many trials (M,) of the batch have come without a grade."""
        got = np.frombuffer(self._got, dtype=np.uint8)
        return np.bincount(self.slots.questions()[got == UNGRADED], minlength=len(self.slots.extra))

    def categories_by_place(self) -> NDArray[np.uint8]:
        """The category of each place, UNGRADED where there is none."""
        return np.frombuffer(self._got, dtype=np.uint8)

    def total_cost(self) -> Cost:
        """Cost of the trials that have come."""
        return Cost(self._spent.tokens, self._spent.usd / PER_UNIT, self._spent.gpu_seconds / PER_UNIT)

    @property
    def seconds(self) -> float:
        """How long its answers take on average, were those that are missing there already; 0 where nobody knows."""
        return max(self._spent.seconds, self._seconds_so_far) / PER_UNIT / self.size

    def places(self) -> tuple[IntArray, IntArray]:
        """Question and trial of every trial of the batch, rising."""
        return self.slots.trials_at(np.arange(self.size))


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
