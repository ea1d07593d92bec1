"""Rounds: the trials issued at one look, and which of them have arrived.

A `Batch` is one model's share of a round: `extra[q]` further trials of question q, numbered from `first[q]`. It stores
trials by their place, so that neither the order of arrival nor the batching of `tell` can matter.

A batch is requested in passes over the questions. If a server changes meanwhile, each question has answers from before
and after the change (`answer_alarms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.settings import MAX_CATEGORIES
from adaptive_eval.core.types import NO_COST, Ask, Cost, Outcome
from scorio.moments import FloatArray, IntArray, over_questions

UNGRADED = MAX_CATEGORIES
"""Marks a trial that arrived without a grade; categories are smaller."""
MISSING = UNGRADED + 1
"""Marks a trial that has not arrived."""
PASSES = 4
"""Most passes over the questions in a batch. Trials of a question in one pass follow each other, since servers can
reuse a prompt that they have just read."""
PER_UNIT = 10**12
"""USD and GPU seconds are summed in whole trillionths, so that no order of arrival can change a sum."""
_MAX_WHOLE = 2**62


def enough_answers(timed_out: int, trials: int) -> bool:
    """Whether at least half of the trials of a round are real answers, so that its time-outs count as answers, too.

    With fewer, the score would mostly measure the time limit, and a server that hangs would make any model wrong. Each
    round is checked by itself, so that earlier answers do not hide a server that has stopped answering.
    """
    return 2 * timed_out <= trials


class WholeSums:
    """Exact sums over trials: tokens, and trillionths of USD, GPU seconds and answers' seconds."""

    __slots__ = ("gpu_seconds", "seconds", "tokens", "usd")

    def __init__(self, tokens: int = 0, usd: int = 0, gpu_seconds: int = 0, seconds: int = 0) -> None:
        self.tokens, self.usd, self.gpu_seconds, self.seconds = tokens, usd, gpu_seconds, seconds

    def add(self, cost: Cost, times: int = 1) -> None:
        """Add `times` trials of this cost."""
        tokens, usd, gpu_seconds = cost
        self.tokens += times * tokens
        if usd:
            self.usd += times * round(usd * PER_UNIT)
        if gpu_seconds:
            self.gpu_seconds += times * round(gpu_seconds * PER_UNIT)

    @property
    def cost(self) -> Cost:
        """The total cost."""
        return Cost(self.tokens, self.usd / PER_UNIT, self.gpu_seconds / PER_UNIT)

    def add_sums(self, more: WholeSums) -> None:
        """Add the sums of other trials."""
        self.tokens, self.usd = self.tokens + more.tokens, self.usd + more.usd
        self.gpu_seconds, self.seconds = self.gpu_seconds + more.gpu_seconds, self.seconds + more.seconds


class BatchPart(NamedTuple):
    """Trials of a batch that arrived together, as arrays, with the sum of their costs."""

    questions: IntArray
    trials: IntArray
    categories: NDArray[np.uint8]
    """UNGRADED without a grade."""
    kinds: NDArray[np.uint8]
    """Bits of `AnswerKind`."""
    spent: WholeSums
    costs: FloatArray
    """(n, 4): 1 and the cost of each; empty if the batch keeps no costs."""


def trillionths(values: NDArray[np.float64]) -> int:
    """The exact sum of `round(value * PER_UNIT)` over the values."""
    scaled = values * PER_UNIT
    if not np.all(np.abs(scaled) < _MAX_WHOLE):
        return sum(map(round, scaled.tolist()))
    return exact_sum(np.rint(scaled).astype(np.int64))


def exact_sum(values: NDArray[np.int64]) -> int:
    """The sum of these numbers, however large."""
    largest = int(np.abs(values).max(initial=0))
    return int(values.sum()) if largest * len(values) < _MAX_WHOLE else sum(values.tolist())


class TrialSlots:
    """Positions of a batch's trials in its arrays, in the order in which they are asked: pass by pass over the
    questions. There are `extra[q]` trials of question q, numbered from `first[q]`."""

    def __init__(self, first: IntArray, extra: IntArray, together: int = 1) -> None:
        """`together`: trials of a question that one request asks, and that are never in different passes."""
        # copied, since committed batches are kept, and would keep the arrays of all models
        self.first, self.extra = first.astype(np.int32), extra.astype(np.int32)
        most = int(extra.max(initial=0))
        self.width = max(ceil(most / (PASSES * together)), 1) * together
        """Trials of a question in a pass: a part of the most that a question has, but whole requests."""
        starts = np.arange(0, max(most, 1), self.width)[:, None]
        in_passes = np.clip(self.extra - starts, 0, self.width)
        self._offset = np.concatenate([[0], np.cumsum(in_passes)]).astype(np.int32)
        self.size = int(self._offset[-1])

    def slot(self, question: int, trial: int) -> int | None:
        """The slot of a trial; None if it is not in this batch."""
        place = trial - int(self.first[question])
        if not 0 <= place < self.extra[question]:
            return None
        number, within = divmod(place, self.width)
        return int(self._offset[number * len(self.extra) + question]) + within

    def slots(self, questions: IntArray, trials: IntArray) -> IntArray:
        """The slots of trials of this batch."""
        number, within = np.divmod(trials - self.first[questions], self.width)
        return np.asarray(self._offset[number * len(self.extra) + questions] + within)

    def trials_at(self, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Question and trial number of each of these slots."""
        cells = np.searchsorted(self._offset, slots, side="right") - 1
        number, questions = np.divmod(cells, len(self.extra))
        return questions, self.first[questions] + number * self.width + slots - self._offset[cells]

    def questions(self) -> IntArray:
        """The question of each slot."""
        return self._cells() % len(self.extra)

    def passes(self) -> IntArray:
        """The number of the pass in which each slot is asked."""
        return self._cells() // len(self.extra)

    def _cells(self) -> IntArray:
        sizes = np.diff(self._offset)
        return np.repeat(np.arange(len(sizes)), sizes)


class Batch:
    """The trials of one model in one round."""

    def __init__(self, model: int, round_index: int, first: IntArray, extra: IntArray, together: int = 1) -> None:
        """`together`: trials of a question that one request asks."""
        self.model = model
        self.round_index = round_index
        self.due = 0.0
        """When the batch is due on the logical clock; batches are committed in this order, whichever arrives first."""
        self.parked = False
        """Whether no open comparison wants its model now."""
        self.slots = TrialSlots(first, extra, together)
        self.size = self.slots.size
        self.open = self.size
        """How many of its first trials may be asked now: fewer than all if the caps do not cover all at their worst."""
        self.promised = np.zeros(4)
        """Reserve for each trial by the largest cost so far, if its cost is unbounded."""
        self.used: FloatArray | None = None
        """(size, 4): 1 and the cost of each arrived trial; None unless these are kept."""
        self.is_unbounded = False
        """Whether nothing bounds the cost of its trials."""
        self.forget()

    def keep_costs(self) -> None:
        """Keep the cost of each trial from now on."""
        if self.used is None:
            self.used = np.zeros((self.size, 4))

    def for_model(self, model: int) -> Batch:
        """The batch under another number of its model, with nothing asked."""
        renumbered = copy(self)
        renumbered.model, renumbered._next = model, 0
        renumbered._got, renumbered._kinds, renumbered._spent = copy(self._got), copy(self._kinds), copy(self._spent)
        renumbered.used = None if self.used is None else self.used.copy()
        return renumbered

    def forget(self) -> None:
        """Forget what has arrived, as if nothing had been asked."""
        self.missing, self._next, self._spent = self.size, 0, WholeSums()
        self._got, self._kinds = bytearray([MISSING]) * self.size, bytearray(self.size)
        if self.used is not None:
            self.used = np.zeros_like(self.used)

    def has(self, question: int, trial: int) -> bool:
        """Whether a trial of this batch has arrived."""
        slot = self.slots.slot(question, trial)
        return slot is not None and self._got[slot] != MISSING

    def place(self, outcome: Outcome) -> bool | None:
        """Store an outcome: True if it was new, False if it had arrived before, None if it is not in this batch."""
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
        self._got[slot] = UNGRADED if outcome.category is None else outcome.category
        self._kinds[slot] = outcome.kinds
        self.missing -= 1
        return True

    def store_part(self, part: BatchPart) -> bool:
        """Store many outcomes of this batch; False if some had arrived before."""
        slots = self.slots.slots(part.questions, part.trials)
        codes = np.frombuffer(self._got, dtype=np.uint8)
        if not np.all(codes[slots] == MISSING):
            return False
        codes[slots] = part.categories
        np.frombuffer(self._kinds, dtype=np.uint8)[slots] = part.kinds
        self._spent.add_sums(part.spent)
        self.missing -= len(slots)
        if self.used is not None:
            self.used[slots] = part.costs
        return True

    def take(self, counts: IntArray, costs: Sequence[Cost], seconds: float = 0.0) -> None:
        """Take in all trials of the batch at once, as counts (M, K), whichever trial of a question had which category;
        `costs` has the cost of a trial of each category, `seconds` the total of all trials."""
        for times, cost in zip(over_questions(counts).tolist(), costs, strict=True):
            self._spent.add(cost, times)
        self._spent.seconds += round(seconds * PER_UNIT)
        codes, categories = np.empty(self.size, np.uint8), np.arange(counts.shape[1], dtype=np.uint8)
        by_question = np.argsort(self.slots.questions(), kind="stable")
        codes[by_question] = np.repeat(np.tile(categories, len(counts)), counts.ravel())
        self._got, self.missing = bytearray(codes), 0
        if self.used is not None:
            self.used = np.array([(1.0, *cost) for cost in costs])[codes]

    def ask_all(self) -> bool:
        """Count every trial of the batch as asked for; returns whether none was before."""
        was_asked, self._next = self._next > 0, self.size
        return not was_asked

    def next_asks(self, limit: int) -> list[Ask]:
        """The next `limit` trials that were neither asked nor have arrived."""
        slots: list[int] = []
        categories, end, slot = self._got, self.open, self._next
        while slot < end and len(slots) < limit:
            if categories[slot] == MISSING:
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
        """How many of its first `end` trials have not arrived."""
        return self._got.count(MISSING, 0, end) if self.missing else 0

    def spent_so_far(self) -> tuple[float, ...]:
        """How many of its trials have arrived, and their total cost."""
        return self.size - self.missing, *self.total_cost()

    def reserved(self, opened: int, times: int = 1) -> tuple[FloatArray, int]:
        """The amount that caps count for the batch if its first `opened` trials may be asked.

        It is the cost of arrived trials plus the reserve of the others. Also returns how many others there are. A
        missing trial counts `times` times.

        If costs are unbounded, a trial counts for at most its promised reserve, and only trials released before count
        as arrived: so the result does not depend on which of the others have arrived.
        """
        end = max(self.open, min(opened, self.size))
        if self.used is None or not self.is_unbounded:
            return np.array(self.spent_so_far()), times * self.count_missing(end)
        missing = times * (self.count_missing(self.open) + end - self.open)
        arrived = self.used[: self.open]
        arrived = np.where(self.promised > 0.0, np.minimum(arrived, self.promised), arrived)
        return arrived.sum(axis=0) + missing * self.promised, missing

    def asked_and_missing(self) -> int:
        """Trials asked for that have not arrived."""
        return self._got.count(MISSING, 0, self._next) if self.missing else 0

    @property
    def timed_out(self) -> int:
        """Trials that timed out."""
        return int(np.count_nonzero(self.kinds & AnswerKind.TIMED_OUT)) if any(self._kinds) else 0

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """For each slot, bits of `AnswerKind`."""
        return np.frombuffer(self._kinds, dtype=np.uint8)

    @property
    def has_enough_answers(self) -> bool:
        """Whether enough of the arrived trials are real answers for the others to count as time-outs."""
        return enough_answers(self.timed_out, self.size - self.missing)

    def categories(self, categories: int, mask: NDArray[np.bool_] | None = None) -> IntArray:
        """Counts (M, K) of graded trials of the batch, complete or not; with `mask`, only of those in these slots."""
        codes = np.frombuffer(self._got, dtype=np.uint8)
        is_counted = codes < UNGRADED if mask is None else (codes < UNGRADED) & mask
        questions = len(self.slots.extra)
        flat = np.bincount(
            self.slots.questions()[is_counted] * categories + codes[is_counted], minlength=questions * categories
        )
        return flat.reshape(questions, categories)

    def ungraded(self) -> IntArray:
        """How many trials (M,) of the batch have arrived without a grade."""
        ungraded = self.categories_by_place() == UNGRADED
        return np.bincount(self.slots.questions()[ungraded], minlength=len(self.slots.extra))

    def categories_by_place(self) -> NDArray[np.uint8]:
        """The category of each place, UNGRADED without one."""
        return np.frombuffer(self._got, dtype=np.uint8)

    def total_cost(self) -> Cost:
        """Cost of the trials that have arrived."""
        return self._spent.cost

    @property
    def seconds(self) -> float:
        """Mean seconds of its answers, counting missing ones as answered now; 0 if unknown."""
        return self._spent.seconds / PER_UNIT / self.size

    def places(self) -> tuple[IntArray, IntArray]:
        """Question and trial number of each trial of the batch, in the order in which they are asked."""
        return self.slots.trials_at(np.arange(self.size))
