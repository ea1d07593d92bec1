"""Rounds in flight: which trials were issued for which look, and which of them have come back.

A `Batch` is one model's share of a round: `extra[q]` further trials of question q, numbered from `first[q]`. Trials are
held by their place in the batch, so that neither the order of arrival nor the batching of `tell` can matter.

Hard caps: what is spent, what is reserved for trials in flight, and whether a further round still fits.

Only committed rounds count with what they used; everything later is reserved at its worst, so that a cap is never
exceeded and the answer depends on what was issued, not on what has arrived.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.settings import MOST_CATEGORIES, Budget
from adaptive_eval.core.types import NO_COST, Ask, Cost, Outcome
from scorio.moments import FloatArray, IntArray

CURRENCIES = ("trials", "tokens", "usd", "gpu_seconds")
FREE = 1e-9
"""The price of a trial that costs nothing: small, so that it goes first, and positive, so that prices divide."""


class Purse:
    """The run's account: a row for each model, a column for each currency."""

    def __init__(self, budget: Budget, worst: tuple[Cost, ...]) -> None:
        self._currency = CURRENCIES.index(budget.currency)
        caps = (getattr(budget, currency) for currency in CURRENCIES)
        self._caps = np.array([math.inf if cap is None else cap for cap in caps])
        self._worst = np.array([(1.0, *cost) for cost in worst])
        self._reserved = np.zeros(len(worst), dtype=np.int64)
        self._spent = np.zeros_like(self._worst)
        self._lost = np.zeros_like(self._worst)
        """Spent on answers that never came: no trials."""

    def reserve(self, trials: NDArray[np.int64]) -> None:
        """Set trials of each model aside as in flight."""
        self._reserved = self._reserved + trials

    def settle(self, model: int, reserved: int, came: int, cost: Cost, lost: int = 0) -> None:
        """Replace a reservation by the trials that came, with their cost, and those that are lost, at their worst."""
        self._reserved[model] -= reserved
        self._spent[model] += np.array((came, *cost)) + lost * self._worst[model]

    def lose(self, model: int, cost: Cost) -> None:
        """Count what was spent on answers that never came."""
        self._lost[model] += (0.0, *cost)

    def holds(self, came: FloatArray, missing: NDArray[np.int64]) -> bool:
        """Whether what is in flight stays within every cap: `came` is used by its trials so far, others are missing."""
        return bool(np.all(self._used() + came + missing @ self._worst <= self._caps))

    def fits(self, trials: NDArray[np.int64]) -> bool:
        """Whether further trials of each model stay within every cap even if each of them costs the most it may."""
        need = (self._reserved + trials) @ self._worst
        return bool(np.all(self._used() + need <= self._caps))

    def affordable(self) -> float:
        """How many further trials the caps would pay for at the mean price seen so far; infinite without caps."""
        used = self._used()
        price = used / used[0] if used[0] > 0.0 else self._worst.mean(axis=0)
        capped = np.isfinite(self._caps) & (price > 0.0)
        left = np.min((self._caps - used)[capped] / price[capped], initial=math.inf)
        return max(float(left) - float(self._reserved.sum()), 0.0)

    def prices(self) -> FloatArray:
        """Each model's price of a trial in the budget's currency: the mean of its trials so far, else the worst."""
        trials, spent = self._spent[:, 0], self._spent[:, self._currency]
        price = np.where(trials > 0.0, spent / np.maximum(trials, 1.0), self._worst[:, self._currency])
        return np.where(price > 0.0, price, FREE)

    def spent(self) -> Cost:
        """What was used so far, trials in flight left out."""
        _, tokens, usd, gpu_seconds = self._used().tolist()
        return Cost(int(tokens), usd, gpu_seconds)

    def _used(self) -> FloatArray:
        return np.asarray((self._spent + self._lost).sum(axis=0))


UNGRADED = MOST_CATEGORIES
"""The mark of a trial that has come without a grade; categories lie below it."""
MISSING = UNGRADED + 1
"""The mark of a trial that has not come."""
PER_UNIT = 10**12
"""USD and GPU seconds are summed in whole trillionths: a sum that no order of arrival can change."""


def enough_answers(timed_out: int, trials: int) -> bool:
    """Whether at least half of the trials of a round are real answers, so that its time-outs count as answers, too.

    With fewer, what is not known would weigh more in the score than what is: it would be the score of the time limit,
    and a server that hangs would make any model wrong. By round, so that answers of yesterday do not vouch for a server
    that has stopped answering since.
    """
    return 2 * timed_out <= trials


class Batch:
    """The trials of one model in one round."""

    def __init__(self, model: int, round_index: int, first: IntArray, extra: IntArray) -> None:
        self.model = model
        self.round_index = round_index
        self.first = first.astype(np.int32)
        self.extra = extra.astype(np.int32)
        self.offset = np.concatenate([[0], np.cumsum(extra)]).astype(np.int32)
        self.size = int(self.offset[-1])
        self.missing = self.size
        self._got = bytearray([MISSING]) * self.size
        self._late = bytearray(self.size)
        """Marks the trials that timed out."""
        self._counts: IntArray | None = None
        self._tokens, self._usd, self._gpu_seconds = 0, 0, 0
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
        self._got[slot] = UNGRADED if outcome.category is None else outcome.category
        self._late[slot] = outcome.timed_out
        self.missing -= 1
        return True

    def take(self, counts: IntArray, costs: Sequence[Cost]) -> None:
        """All of its trials at once, as counts (M, K); `costs` are those of a trial of each category."""
        for times, (tokens, usd, gpu_seconds) in zip(counts.sum(axis=0).tolist(), costs, strict=True):
            self._tokens += times * tokens
            self._usd += times * round(usd * PER_UNIT)
            self._gpu_seconds += times * round(gpu_seconds * PER_UNIT)
        self._counts, self.missing = counts, 0

    def ask_all(self) -> None:
        """Every trial is asked for."""
        self._next = self.size

    def asks(self, most: int) -> list[Ask]:
        """The next trials that were neither asked nor have come, at most `most` of them."""
        slots: list[int] = []
        got, size, slot = self._got, self.size, self._next
        while slot < size and len(slots) < most:
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

    def _questions(self) -> IntArray:
        """The question of each place."""
        return np.repeat(np.arange(len(self.extra)), self.extra)

    def total_cost(self) -> Cost:
        """What the trials that have come used."""
        return Cost(self._tokens, self._usd / PER_UNIT, self._gpu_seconds / PER_UNIT)

    def expected(self) -> Iterator[tuple[int, int, int]]:
        """(model, question, trial) of every trial of the batch."""
        for question in np.flatnonzero(self.extra).tolist():
            first = int(self.first[question])
            for trial in range(first, first + int(self.extra[question])):
                yield self.model, question, trial


class Round:
    """The batches of all models in play; complete when nothing is missing.

    As arrays (L, M) it is `extra` further trials of each question, numbered from `first`.
    """

    def __init__(self, index: int, issued: IntArray, plan: IntArray) -> None:
        self.index = index
        self.first, self.extra = issued, plan
        self.batches = {
            int(model): Batch(int(model), index, issued[model], plan[model])
            for model in np.flatnonzero(plan.sum(axis=1) > 0)
        }

    @property
    def complete(self) -> bool:
        return all(batch.missing == 0 for batch in self.batches.values())
