"""Hard caps: amounts spent, amounts reserved for trials in flight, and whether a further round still fits.

Committed rounds count at their actual cost. Everything later is reserved at its worst case. So a cap is never exceeded,
and decisions depend on what was issued, not on what has arrived. A round that does not fit at its worst is asked in
parts if it probably fits, each part at its worst.

If nothing bounds the tokens of a trial, `RESERVE_FACTOR` times the largest cost of any trial of its model so far is
reserved when the trial is issued. A cap can then be exceeded by at most what trials in flight use beyond that.
"""

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.settings import CURRENCIES, Budget
from adaptive_eval.core.types import Cost
from scorio.moments import FloatArray

MIN_PRICE = 1e-9
"""The price of a free trial: small, so that it is preferred, and positive, so that prices can be divisors."""
RESERVE_FACTOR = 1.5
PRICE_MARGIN = 2.5
"""By how many standard errors the mean cost of a round's trials may exceed the mean so far, if single costs vary by as
much as their mean."""
_BY_TOKENS = np.array([False, True, True, False])
"""The currencies in which a trial's tokens are paid for."""


def trial_reserve(worst: Cost, largest: Cost) -> Cost:
    """The reserve for a trial that may cost `worst`, where `largest` is the highest cost of a trial so far.

    If that had more tokens, something is added to prompts, at most `largest` to each."""
    if worst.is_unbounded:
        return Cost(math.ceil(RESERVE_FACTOR * largest.tokens), RESERVE_FACTOR * largest.usd, worst.gpu_seconds)
    if 0 < worst.tokens < largest.tokens:
        return Cost(worst.tokens + largest.tokens, worst.usd + largest.usd, worst.gpu_seconds)
    return worst


class BudgetAccount:
    """The run's account: a row for each model, a column for each currency."""

    def __init__(self, budget: Budget, worst: tuple[Cost, ...], gpu_hour: float | None = None) -> None:
        """With `gpu_hour`, the price of a GPU hour, the costs of answers in first rounds are kept."""
        self._gpu_hour = gpu_hour
        self._first_costs = np.full((len(worst), 2), np.nan)
        self._budget, self._currency = budget, CURRENCIES.index(budget.currency)
        caps = (getattr(budget, currency) for currency in CURRENCIES)
        self._caps = np.array([math.inf if cap is None else cap for cap in caps])
        self._open = np.array([cost.is_unbounded for cost in worst])[:, None] & _BY_TOKENS
        """(L, 4): currencies in which a trial's cost is unbounded."""
        self._worst = np.where(self._open, 0.0, [(1.0, *cost) for cost in worst])
        self._largest = np.zeros_like(self._worst)
        """The largest costs of a trial so far, in unbounded currencies."""
        self._promised = np.zeros(len(CURRENCIES))
        """Reserved beyond the worst case, by the largest cost known at the time of issue."""
        self._reserved = np.zeros(len(worst), dtype=np.int64)
        self._spent = np.zeros_like(self._worst)
        self._elsewhere = np.zeros(len(CURRENCIES))
        """Spent on answers that never arrived, and on models that are no longer in the run."""

    def take_over(self, before: "BudgetAccount", model: int, old_number: int, spent: FloatArray) -> None:
        """Go on from the stage before, in which so much was spent on a model, without its lost answers."""
        self._spent[model] = spent
        if self._gpu_hour is not None:
            self._first_costs[model] = before._first_costs[old_number]
        trials, _, usd, gpu_seconds = self._spent[model]
        if self._gpu_hour not in {None, before._gpu_hour} and trials:  # costs of single trials were not kept
            self._first_costs[model] = (usd + gpu_seconds * self._gpu_hour / 3600.0) / trials, np.nan
        self._largest[model] = np.where(self._open[model], before._largest[old_number], 0.0)
        self._raise_worst(model, self._spent[model])

    def spent_on(self, model: int) -> FloatArray:
        """Amounts spent on committed trials of a model, by currency."""
        return np.array(self._spent[model])

    def reserve(self, batch: Batch) -> None:
        """Reserve the trials of a batch as in flight."""
        self._reserved[batch.model] += batch.size
        self._promised += batch.size * batch.promised

    def promise(self, batch: Batch) -> None:
        """Reserve the largest cost so far for each trial of a batch in flight, in unbounded currencies."""
        if self._gpu_hour is not None and self.first_costs_missing[batch.model]:
            batch.keep_costs()
        if self._open[batch.model].any():
            batch.is_unbounded = True
            batch.keep_costs()
            self._note_largest_costs(batch, batch.open)
            self._promised -= batch.size * batch.promised
            batch.promised = RESERVE_FACTOR * self._largest[batch.model]
            self._promised += batch.size * batch.promised

    def settle(self, batch: Batch, arrived: int, cost: Cost, lost: int = 0) -> None:
        """Replace a batch's reservation by the cost of what arrived, and the worst-case cost of what is lost."""
        self._reserved[batch.model] -= batch.size
        self._raise_worst(batch.model, np.array((arrived, *cost)))
        self._spent[batch.model] += np.array((arrived, *cost)) + lost * (self._worst[batch.model] + batch.promised)
        self._promised -= batch.size * batch.promised
        self._note_largest_costs(batch, batch.size)

    def _raise_worst(self, model: int, spent: FloatArray) -> None:
        """Take the mean cost of trials as the worst one if their mean tokens exceed it: something is added to prompts.

        Whoever sends requests keeps to the caps by single costs (`trial_reserve`)."""
        trials, tokens = spent[:2]
        if 0.0 < trials * self._worst[model, 1] < tokens:
            self._worst[model] = np.maximum(self._worst[model], spent / trials)

    def _note_largest_costs(self, batch: Batch, end: int) -> None:
        if batch.used is not None:
            largest = np.where(self._open[batch.model], batch.used[:end].max(axis=0, initial=0.0), 0.0)
            self._largest[batch.model] = np.maximum(self._largest[batch.model], largest)

    @property
    def is_open(self) -> bool:
        """Whether the trials of some model have no cost bound."""
        return bool(self._open.any())

    @property
    def unmeasured(self) -> NDArray[np.bool_]:
        """(L,): models with unbounded trials, none of which has arrived with a cost yet."""
        return np.asarray(self._open.any(axis=1) & (self._largest[:, 1:3] == 0.0).all(axis=1))

    @property
    def first_costs_missing(self) -> NDArray[np.bool_]:
        """(L,): models whose first round is not committed."""
        return np.asarray(np.isnan(self._first_costs[:, 0]))

    @property
    def first_costs(self) -> FloatArray | None:
        """(L, 2): the mean cost of an answer in each model's first round, in USD, with its standard error; None unless
        costs are kept."""
        return None if self._gpu_hour is None else self._first_costs

    def take_first_costs(self, batch: Batch) -> None:
        """Keep the costs of a complete batch if it is the first one of its model."""
        if self._gpu_hour is None or batch.used is None or not self.first_costs_missing[batch.model]:
            return
        usd = batch.used[:, CURRENCIES.index("usd")] + batch.used[:, CURRENCIES.index("gpu_seconds")] * (
            self._gpu_hour / 3600.0
        )
        questions = batch.slots.questions()
        trials = np.bincount(questions)
        asked = int(np.count_nonzero(trials))
        within = len(usd) > asked
        centre = (np.bincount(questions, usd) / np.maximum(trials, 1))[questions] if within else usd.mean()
        free = max(len(usd) - (asked if within else 1), 1)
        error = math.sqrt(float(((usd - centre) ** 2).sum()) / free / len(usd))
        self._first_costs[batch.model] = float(usd.mean()), error

    def spend_elsewhere(self, trials: int, cost: Cost) -> None:
        """Count the cost of answers that never arrived, or of models that are no longer in the run."""
        self._elsewhere += (trials, *cost)

    def may_fit(self, trials: NDArray[np.int64], besides: int = 0) -> bool:
        """Whether the caps may suffice for all these trials if most cost less than their worst case: one trial of each
        model must fit at its worst, and so must the number of all with those in flight and `besides`, whose cost is not
        known yet."""
        lowest_cost = np.minimum(trials, 1) @ self._worst
        lowest_cost[0] = trials.sum() + self._reserved.sum() + besides
        return bool(np.all(self._total_used() + lowest_cost <= self._caps))

    def caps_hold(self, arrived_cost: FloatArray, missing: NDArray[np.int64]) -> bool:
        """Whether every cap holds with the cost of arrived trials in flight, and `missing` ones at their worst."""
        return bool(np.all(self._total_used() + arrived_cost + missing @ self._worst <= self._caps))

    def fits(self, trials: NDArray[np.int64], times: int = 1) -> bool:
        """Whether further trials of each model stay within every cap at their worst, or at what is reserved for them,
        with the cost of what is in flight counted this many `times`; unbounded trials do not fit before one of their
        model has arrived."""
        need = (self._reserved + trials) @ self._worst + self._promised + trials @ (RESERVE_FACTOR * self._largest)
        need[1:] *= times  # a trial that is lost is asked again, and remains one
        return not trials[self.unmeasured].any() and bool(np.all(self._total_used() + need <= self._caps))

    @property
    def _reserve(self) -> FloatArray:
        """(L, 4): the reserve for a trial of each model, if it is issued now."""
        return np.asarray(self._worst + RESERVE_FACTOR * self._largest)

    def probable_totals(self, trials: NDArray[np.int64]) -> FloatArray:
        """The totals by currency that so many further trials of each model probably lead to, at what those before have
        cost. They are asked in parts, so that one trial of each model must fit at its worst besides."""
        known = self._spent[:, :1] > 0.0
        price = np.where(known, self._spent / np.maximum(self._spent[:, :1], 1.0), self._worst)
        price[:, 1:] *= 1.0 + PRICE_MARGIN / math.sqrt(max(trials.sum(), 1))
        at_once = np.minimum(trials, 1) @ self._reserve
        at_once[0] = 0.0  # their number is known
        reserved = self._reserved @ self._worst + self._promised
        return np.asarray(self._total_used() + reserved + trials @ price + at_once)

    def probably_fits(self, trials: NDArray[np.int64]) -> bool:
        """Whether so many further trials of each model probably stay within every cap."""
        return not trials[self.unmeasured].any() and bool(np.all(self.probable_totals(trials) <= self._caps))

    def caps_short_of(
        self, arrived_cost: FloatArray, trials: NDArray[np.int64], largest: FloatArray
    ) -> dict[str, float]:
        """The caps that do not cover the cost of arrived trials in flight and of `trials` of each model at their worst,
        by currency, with the totals that would. `largest` (L, 4): the largest costs of trials in flight."""
        worst = np.maximum(self._reserve, np.where(self._open, RESERVE_FACTOR, 1.0) * largest)
        return self._budget.short_of((self._total_used() + arrived_cost + trials @ worst).tolist())

    def worst_totals(self, trials: NDArray[np.int64], largest: FloatArray) -> dict[str, float]:
        """The worst cost of so many trials of each model, by currency; of unbounded ones what would be reserved if none
        cost more than any in flight, whose `largest` (L, 4) these are, or any so far."""
        unbounded = RESERVE_FACTOR * np.maximum(self._largest, largest).max(axis=0)
        totals = trials @ np.where(self._open, unbounded, np.maximum(self._worst, largest))
        return dict(zip(CURRENCIES, totals.tolist(), strict=True))

    def share_of_rest(self, trials: NDArray[np.int64]) -> float:
        """The largest share of what a cap on usage has left that so many trials of each model may take."""
        need, left = (trials @ self._reserve)[1:], (self._caps - self._total_used())[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(need > 0.0, need / np.maximum(left, 0.0), 0.0)
        return float(shares.max())

    def affordable(self) -> float:
        """Number of further trials that the caps would pay for at the mean price so far; infinite without caps."""
        used = self._total_used()
        price = used / used[0] if used[0] > 0.0 else self._worst.mean(axis=0)
        capped = np.isfinite(self._caps) & (price > 0.0)
        trials_left = np.min((self._caps - used)[capped] / price[capped], initial=math.inf)
        return max(float(trials_left) - float(self._reserved.sum()), 0.0)

    def prices(self) -> FloatArray:
        """Each model's price of a trial in the budget's currency: the mean of its trials so far, else the worst."""
        trials, spent = self._spent[:, 0], self._spent[:, self._currency]
        price = np.where(trials > 0.0, spent / np.maximum(trials, 1.0), self._worst[:, self._currency])
        return np.where(price > 0.0, price, MIN_PRICE)

    def spent(self) -> Cost:
        """Cost used so far, without trials in flight."""
        _, tokens, usd, gpu_seconds = self._total_used().tolist()
        return Cost(int(tokens), usd, gpu_seconds)

    def _total_used(self) -> FloatArray:
        return np.asarray(self._spent.sum(axis=0) + self._elsewhere)
