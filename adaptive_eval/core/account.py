"""Hard caps: what is spent, what is reserved for trials in flight, and whether a further round still fits.

Only committed rounds count with what they used; everything later is reserved at its worst, so that a cap is never
exceeded and the answer depends on what was issued, not on what has arrived.

Where nothing bounds the tokens of a trial, `SEEN_MARGIN` times the largest cost of a trial of its model so far is
reserved instead, when the trial is issued. A cap is exceeded then by at most what trials in flight use beyond that.
"""

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Cost
from scorio.moments import FloatArray

CURRENCIES = ("trials", "tokens", "usd", "gpu_seconds")
FREE = 1e-9
"""The price of a trial that costs nothing: small, so that it goes first, and positive, so that prices divide."""
SEEN_MARGIN = 1.5
_BY_TOKENS = np.array([False, True, True, False])
"""The currencies that the tokens of a trial cost."""


def reserved_for(worst: Cost, largest: Cost) -> Cost:
    """The reserve for a trial that may cost `worst`, where `largest` is the most that one has cost so far."""
    if not worst.is_unbounded:
        return worst
    return Cost(math.ceil(SEEN_MARGIN * largest.tokens), SEEN_MARGIN * largest.usd, worst.gpu_seconds)


class BudgetAccount:
    """The run's account: a row for each model, a column for each currency."""

    def __init__(self, budget: Budget, worst: tuple[Cost, ...]) -> None:
        self._currency = CURRENCIES.index(budget.currency)
        caps = (getattr(budget, currency) for currency in CURRENCIES)
        self._caps = np.array([math.inf if cap is None else cap for cap in caps])
        self._open = np.array([cost.is_unbounded for cost in worst])[:, None] & _BY_TOKENS
        """(L, 4): currencies in which nothing bounds a trial."""
        self._worst = np.where(self._open, 0.0, [(1.0, *cost) for cost in worst])
        self._largest = np.zeros_like(self._worst)
        """The largest costs of a trial so far, where nothing bounds them."""
        self._promised = np.zeros(len(CURRENCIES))
        """Reserved beside the worst, by what was seen when it was issued."""
        self._reserved = np.zeros(len(worst), dtype=np.int64)
        self._spent = np.zeros_like(self._worst)
        self._lost = np.zeros_like(self._worst)
        """Spent on answers that never came: no trials."""
        self._elsewhere = np.zeros(len(CURRENCIES))
        """Spent on models that are here no more."""

    @property
    def caps_usage(self) -> bool:
        """Whether there is a cap on what trials use, of which more is reserved than most of them come to."""
        return bool(np.isfinite(self._caps[1:]).any())

    def reserve(self, trials: NDArray[np.int64]) -> None:
        """Set trials of each model aside as in flight."""
        self._reserved = self._reserved + trials

    def promise(self, batch: Batch) -> None:
        """Reserve for each trial of a batch in flight by the largest cost so far, where nothing bounds it."""
        if self._open[batch.model].any():
            batch.used = np.zeros((batch.size, len(CURRENCIES))) if batch.used is None else batch.used
            self._see(batch, batch.open)
            self._promised -= batch.size * batch.promised
            batch.promised = SEEN_MARGIN * self._largest[batch.model]
            self._promised += batch.size * batch.promised

    def settle(self, batch: Batch, came: int, cost: Cost, lost: int = 0) -> None:
        """Replace a batch's reservation by the trials that came, with their cost, and those that are lost, at their
        worst."""
        self._reserved[batch.model] -= batch.size
        self._spent[batch.model] += np.array((came, *cost)) + lost * (self._worst[batch.model] + batch.promised)
        self._promised -= batch.size * batch.promised
        self._see(batch, batch.size)

    def _see(self, batch: Batch, end: int) -> None:
        if batch.used is not None:
            most = np.where(self._open[batch.model], batch.used[:end].max(axis=0, initial=0.0), 0.0)
            self._largest[batch.model] = np.maximum(self._largest[batch.model], most)

    @property
    def is_open(self) -> bool:
        """Whether nothing bounds the trials of some model."""
        return bool(self._open.any())

    @property
    def unmeasured(self) -> NDArray[np.bool_]:
        """(L,): models whose trials nothing bounds, and of which none has come that cost anything."""
        return np.asarray(self._open.any(axis=1) & (self._largest[:, 1] == 0.0))

    def lose(self, model: int, cost: Cost) -> None:
        """Count what was spent on answers that never came."""
        self._lost[model] += (0.0, *cost)

    def spend_outside_plan(self, trials: int, cost: Cost) -> None:
        """Count what was spent on models that are here no more."""
        self._elsewhere += (trials, *cost)

    def can_afford(self, total: Cost) -> bool:
        """Whether no cap is exceeded if this is all that was spent."""
        return bool(np.all((0.0, *total) <= self._caps))

    def may_fit(self, trials: NDArray[np.int64]) -> bool:
        """Whether caps may bear all these trials, if most of them cost less than they may: one of each model is
        borne at its worst, and the number of all."""
        least = np.minimum(trials, 1) @ self._worst
        return bool(np.all(self._used() + np.maximum(least, (trials.sum(), 0.0, 0.0, 0.0)) <= self._caps))

    def holds(self, came: FloatArray, missing: NDArray[np.int64]) -> bool:
        """Whether what is in flight stays within every cap: `came` is used by its trials so far, others are missing."""
        return bool(np.all(self._used() + came + missing @ self._worst <= self._caps))

    def fits(self, trials: NDArray[np.int64]) -> bool:
        """Whether further trials of each model stay within every cap even if each of them costs the most it may, or as
        much as is reserved for it; nobody knows before one has come."""
        need = (self._reserved + trials) @ self._worst + self._promised + trials @ (SEEN_MARGIN * self._largest)
        return not trials[self.unmeasured].any() and bool(np.all(self._used() + need <= self._caps))

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
        """Cost used so far, without trials in flight."""
        _, tokens, usd, gpu_seconds = self._used().tolist()
        return Cost(int(tokens), usd, gpu_seconds)

    def _used(self) -> FloatArray:
        return np.asarray((self._spent + self._lost).sum(axis=0) + self._elsewhere)
