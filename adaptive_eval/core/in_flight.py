"""Batches in flight, in the order in which they are committed.

A logical clock sets when each batch is due, at the time it is issued. Batches are committed in the order (due, round,
model), whichever arrives first. So decisions depend on what was issued, never on what has arrived.

- Rounds of one size: every batch of a round is due one tick after the round before. All models go in step.
- Rounds as large as needed: a batch is due one tick after its model's previous one, whatever its size.
- Dedicated servers: a tick is longer for a model with slower answers, by the square root. If one of two models takes t
  times as long, the other gets sqrt(t) times as many trials, which separates the two in the least total server time. No
  model waits for another's round, only for batches that the clock puts before its own.

The stored times of the first round's answers set the clock. A wrong clock makes models wait, but no promise depends on
it.

Before the first look, models with a complete first round continue with rounds of one trial per question until the
slowest model has completed its own. How many rounds that is depends on the answers of the first round alone: missing
answers can only make it longer.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.account import BudgetAccount
from adaptive_eval.core.early_outcomes import EarlyOutcomes
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.settings import MAX_SHARE_AHEAD, Bench, Budget
from adaptive_eval.core.types import NO_COST, Ask, ModelNumbers, Outcome
from scorio.moments import FloatArray

TrialArray = NDArray[np.int32]


class DroppedBatches(NamedTuple):
    """Batches of a model that was set aside."""

    batches: Sequence[Batch]
    spent: FloatArray
    """What had been spent on the model before they were dropped, by currency."""


MIN_ANSWER_SECONDS = 1.0
"""Faster answers count as one second: waiting for them costs little."""
_order = attrgetter("due", "round_index", "model")


def clock_seconds(batch: Batch) -> float:
    """Seconds of a trial of this batch on the logical clock; a lower bound while some are missing.

    The square root of an answer's seconds, rounded to 1, 1.5, 2, 3, 4, 6, ...: no finer, so that the clock is the same
    whenever the same answers took about as long.
    """
    halves = round(math.log2(max(batch.seconds, MIN_ANSWER_SECONDS)))
    return (1.0, 1.5)[halves % 2] * 2.0 ** (halves // 2)


class BatchesInFlight:
    """The batches in flight, the logical clock, and the reserve for them."""

    def __init__(self, bench: Bench, budget: Budget, gpu_hour: float | None = None) -> None:
        self._together = bench.together or (1,) * bench.models
        self.account = BudgetAccount(budget, bench.worst_cost, gpu_hour)
        self.issued = np.zeros((bench.models, bench.questions), dtype=np.int32)
        self.now = 0.0
        """The time of the logical clock: when the latest batch that was committed was due."""
        self._by_model: list[list[Batch]] = [[] for _ in range(bench.models)]
        """The batches of each model that may still get outcomes, parked or not, in the order of issue."""
        self._in_order: list[Batch] | None = None
        """All that are not parked, in the order in which they are committed; None if that has changed since."""
        self._in_parts: list[Batch] | None = None
        """Those of them that are partly open; None if that has changed since."""
        self.ticks_per_trial: FloatArray = np.ones(bench.models)
        """(L,): ticks of the logical clock that one trial per question of each model takes."""
        self.last_due = np.zeros(bench.models)
        """When the latest batch of each model is due."""
        self._composed = 0
        self.rounds_issued = 0
        self.early = EarlyOutcomes()

    def take_over(
        self, before: "BatchesInFlight", models: ModelNumbers, dropped: Mapping[int, "DroppedBatches"]
    ) -> None:
        """Continue the stage before, whose rounds stay in flight as far as the caps of today cover them.

        Dropped batches come back with their model: `dropped` has them by its earlier number. No trial counts as
        requested yet."""
        self.now, self._composed, self.rounds_issued = before.now, before._composed, before.rounds_issued
        others = [float(before.ticks_per_trial[old_number]) for old_number in models if old_number is not None]
        for model, old_number in enumerate(models):
            if old_number is None:
                if not self.issued[model].any():  # else it has come back
                    self.ticks_per_trial[model] = float(np.median(others)) if others else 1.0
                continue
            self.issued[model] = before.issued[old_number]
            self.ticks_per_trial[model] = before.ticks_per_trial[old_number]
            batches = self._take_over_account(model, before, old_number, dropped)
            for batch in (*before._by_model[old_number], *batches):
                renumbered = batch.for_model(model)
                self.account.reserve(renumbered)
                self._by_model[model].append(renumbered)
                self._forget_order()
            self.last_due[model] = before.last_due[old_number]
        self.early = before.early.for_models(models)
        self._withdraw_unpaid()

    def bring_back(
        self,
        model: int,
        before: "BatchesInFlight",
        old_number: int,
        trials: TrialArray,
        dropped: Mapping[int, "DroppedBatches"],
    ) -> None:
        """Continue with the committed `trials` (M,) of a model that was away; what it had in flight is asked again."""
        self.issued[model] = trials
        self.ticks_per_trial[model] = before.ticks_per_trial[old_number]
        self._take_over_account(model, before, old_number, dropped)

    def _take_over_account(
        self, model: int, before: "BatchesInFlight", old_number: int, dropped: Mapping[int, "DroppedBatches"]
    ) -> Sequence[Batch]:
        """Go on from what a model had cost without dropped batches, and return these."""
        batches, spent = dropped.get(old_number) or ((), before.account.spent_on(old_number))
        self.account.take_over(before.account, model, old_number, spent)
        return batches

    def _forget_order(self) -> None:
        """Put batches in order anew, when their order is asked for next."""
        self._in_order = self._in_parts = None

    def _withdraw_unpaid(self) -> None:
        """Withdraw the latest rounds of which nothing has arrived until the caps cover those in flight."""
        while not self.within_caps():
            latest = [batches[-1] for batches in self._by_model if batches]
            untouched = [batch for batch in latest if batch.missing == batch.size]
            if not untouched:
                return
            withdrawn = max(untouched, key=_order)
            model = withdrawn.model
            self._by_model[model].remove(withdrawn)
            self._forget_order()
            self.issued[model] -= withdrawn.slots.extra
            self.last_due[model] = max((batch.due for batch in self.batches(model)), default=0.0)
            self.account.settle(withdrawn, 0, NO_COST)

    # -- issuing ------------------------------------------------------------------------------------------------------

    def issue(self, extra: TrialArray, *, in_step: bool, looked: bool = True, fixed_time: bool = False) -> None:
        """Issue a round, with its trials that are known from an earlier run.

        In step, all of it is due at the next tick; otherwise each batch follows its model's previous one. With
        `fixed_time` a batch takes one tick, whatever its size. Before the first look, a round's number is the number of
        its models' earlier rounds, so that it does not depend on which model came first.
        """
        number = (
            self._composed if looked else max(len(self._by_model[model]) for model in np.flatnonzero(extra.any(axis=1)))
        )
        batches = [
            Batch(model, number, self.issued[model], extra[model], self._together[model])
            for model in np.flatnonzero(extra.any(axis=1)).tolist()
        ]
        self._composed = max(self._composed, number + 1)
        self.issued = self.issued + extra
        self.rounds_issued += 1
        tick = max((batch.due for batch in self.batches()), default=self.now) + 1.0
        for batch in batches:
            self._set_due(batch, tick if in_step else None, 1.0 if fixed_time else None)
            self.account.reserve(batch)
            self.account.promise(batch)
            self._by_model[batch.model].append(batch)
        self._forget_order()
        self._take_known(batches)

    def _set_due(self, batch: Batch, at: float | None = None, ticks: float | None = None) -> None:
        """Set when a batch is due: at this time, or so many ticks after its model's previous one."""
        if ticks is None:
            ticks = self._trials_per_question(batch) * float(self.ticks_per_trial[batch.model])
        batch.due = max(self.now, float(self.last_due[batch.model])) + ticks if at is None else at
        self.last_due[batch.model] = batch.due
        self._forget_order()

    def may_park(self, needed: NDArray[np.bool_]) -> bool:
        """Whether the batches of all models but these (L,) may be parked. They stay reserved, since they may have been
        sent, and that must not take too much of a cap."""
        idle = np.where(needed, 0, self.sizes + self.parked)
        return not idle.any() or self.account.share_of_rest(idle) <= MAX_SHARE_AHEAD

    def park(self, needed: NDArray[np.bool_]) -> None:
        """Park the batches of models (L,) that are not wanted, and resume the parked batches of the others.

        No trial of a parked batch is asked, and no look waits for it; trials already asked for still arrive.
        """
        for batch in self.all_batches():
            if batch.parked != needed[batch.model]:
                continue
            batch.parked = not batch.parked
            self._forget_order()
            if batch.parked:
                self.last_due[batch.model] = 0.0
            else:
                self._set_due(batch)

    def is_parked(self, model: int) -> bool:
        """Whether a model has batches, and all of them are parked."""
        return any(batch.parked for batch in self._by_model[model])

    @property
    def parked(self) -> NDArray[np.int64]:
        """(L,): trials in parked batches."""
        return self._sizes_of(self.parked_batches())

    def parked_batches(self) -> Sequence[Batch]:
        """All parked batches."""
        return [batch for batch in self.all_batches() if batch.parked]

    def all_batches(self) -> Iterator[Batch]:
        """All batches, parked or not."""
        return chain.from_iterable(self._by_model)

    def expected(self, model: int) -> Sequence[Batch]:
        """A model's batches that may still get outcomes, parked or not."""
        return self._by_model[model]

    def start_clocks(self, max_trials: int) -> Iterator[TrialArray]:
        """Set the clocks of models whose first round is complete, while others' are in flight; yields further rounds of
        these models, each to be issued at once.

        `max_trials` is the horizon, in trials per question. There are none if the caps might not allow all of it.
        """
        openings = [batches[0] for batches in self._by_model if batches]
        complete = [batch for batch in openings if batch.missing == 0]
        if not complete:
            return
        slowest = max(openings, key=attrgetter("seconds"))
        last = self._trials_per_question(slowest) * clock_seconds(slowest)
        self._set_clocks(complete)
        left = max_trials * self.issued.shape[1] - self.issued.sum(axis=1)
        if any(self.last_due[batch.model] < last for batch in complete) and self.account.fits(left):
            for model in [batch.model for batch in complete]:
                while self.last_due[model] < last and (self.issued[model] < max_trials).any():
                    extra = np.zeros_like(self.issued)
                    extra[model] = self.issued[model] < max_trials
                    yield extra
        if len(complete) == len(openings):
            self.now = last

    def _set_clocks(self, openings: Iterable[Batch]) -> None:
        """Set models' clocks by their complete first rounds, and when their other batches are due."""
        for opening in openings:
            model, ticks = opening.model, clock_seconds(opening)
            if self.ticks_per_trial[model] == ticks:
                continue
            self.ticks_per_trial[model], until = ticks, self._trials_per_question(opening) * ticks
            for batch in self._by_model[model][1:]:
                until = batch.due = until + self._trials_per_question(batch) * ticks
            self.last_due[model] = until
            self._forget_order()

    def _trials_per_question(self, batch: Batch) -> float:
        """Trials per question of a batch."""
        return batch.size / self.issued.shape[1]

    def take_known(self) -> None:
        """Take kept outcomes of an earlier run that batches in flight need."""
        self._take_known(self.all_batches())

    def _take_known(self, batches: Iterable[Batch]) -> None:
        for batch in batches if self.early else ():
            part = self.early.take(batch)
            if part is not None and not batch.store_part(part):
                raise ValueError(f"a trial of model {batch.model} in round {batch.round_index} was told twice")

    # -- trials for the shell -----------------------------------------------------------------------------------------

    def ask(self, slots: int, model: int | None) -> list[Ask]:
        """Trials that were not asked for yet: at most `slots`, of one model if it is named."""
        trials: list[Ask] = []
        for batch in self.batches(model):
            if len(trials) >= slots:
                break
            trials.extend(batch.next_asks(slots - len(trials)))
        return trials

    def ask_batches(self) -> list[Batch]:
        """Batches of which nothing was asked for yet, in the order of their rounds."""
        return sorted(filter(Batch.ask_all, self.all_batches()), key=attrgetter("round_index", "model"))

    def place(self, outcome: Outcome) -> bool | None:
        """Give an outcome to its batch: True if it was new, False if it had arrived before, None if unexpected."""
        for batch in self.expected(outcome.model):
            new = batch.place(outcome)
            if new is not None:
                return new
        return None

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def batches(self, model: int | None = None) -> Sequence[Batch]:
        """All batches in flight, or those of one model, in the order in which they are committed; parked ones are not
        among them."""
        if model is not None:
            return sorted((batch for batch in self._by_model[model] if not batch.parked), key=_order)
        if self._in_order is None:
            self._in_order = sorted((batch for batch in self.all_batches() if not batch.parked), key=_order)
        return self._in_order

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(L,): trials in flight."""
        return self._sizes_of(self.batches())

    def _sizes_of(self, batches: Iterable[Batch]) -> NDArray[np.int64]:
        sizes = np.zeros(len(self.issued), dtype=np.int64)
        for batch in batches:
            sizes[batch.model] += batch.size
        return sizes

    @property
    def ticks(self) -> int:
        """Number of clock times at which something is due."""
        return len({batch.due for batch in self.batches()})

    def complete_and_due(self) -> list[Batch]:
        """The batches due next, once all of them are complete; empty before, or if nothing is in flight."""
        return [] if any(batch.missing for batch in self._due_next()) else list(self._due_next())

    def _due_next(self) -> Iterator[Batch]:
        batches = self.batches()
        return takewhile(lambda batch: batch.due == batches[0].due, batches)

    def commit(self, batches: Iterable[Batch]) -> None:
        """Remove complete batches, and replace their reservation by their cost."""
        for batch in batches:
            self._by_model[batch.model].remove(batch)
            self._forget_order()
            self.now = max(self.now, batch.due)
            self.account.take_first_costs(batch)
            self.account.settle(batch, batch.size, batch.total_cost())
            batch.used = None  # costs of single trials are not needed any more

    def drop(self, model: int) -> list[Batch]:
        """Remove and return a model's batches; their reservation stays."""
        dropped, self._by_model[model] = self._by_model[model], []
        for batch in dropped:
            batch.parked = False
        self._forget_order()
        return dropped

    def clear(self) -> list[Batch]:
        """Remove and return all batches."""
        return [batch for model in range(len(self._by_model)) for batch in self.drop(model)]

    def within_caps(self) -> bool:
        """Whether the caps cover the cost of kept outcomes and of trials in flight, missing ones at their worst."""
        arrived = sum((np.array(batch.spent_so_far()) for batch in self.batches()), self._kept())
        return self._caps_cover(0) and self.account.caps_hold(arrived, np.zeros(len(self.issued), dtype=np.int64))

    def caps_short_of(self, trials: NDArray[np.int64]) -> dict[str, float]:
        """The caps that do not cover trials in flight and these of each model, by currency, with totals that would."""
        arrived, trials = self._kept(), trials.copy()
        for batch in self.all_batches():
            arrived += batch.spent_so_far()
            trials[batch.model] += batch.missing
        return self.account.caps_short_of(arrived, trials, self._largest_costs())

    def worst_totals(self, trials: NDArray[np.int64]) -> dict[str, float]:
        """The worst cost of so many trials of each model, by currency; of unbounded ones by the largest cost so far."""
        return self.account.worst_totals(trials, self._largest_costs())

    def _largest_costs(self) -> FloatArray:
        """(L, 4): the largest cost of trials in flight by model, or their mean where single costs are not kept."""
        largest = np.zeros((len(self.issued), 4))
        for batch in self.all_batches():
            mean = np.array(batch.spent_so_far()) / max(batch.size - batch.missing, 1)
            cost = mean if batch.used is None else batch.used.max(axis=0)
            largest[batch.model] = np.maximum(largest[batch.model], cost)
        return largest

    def _kept(self) -> FloatArray:
        """The kept outcomes and their cost, by currency."""
        return np.array((len(self.early), *self.early.cost))

    def _caps_cover(self, opened: int, times: int = 1) -> bool:
        """Whether the caps cover kept outcomes and the trials in flight, with partly opened batches opened as far as
        `opened`, and each missing trial counted `times` times."""
        arrived, missing = self._kept(), np.zeros(len(self.issued), dtype=np.int64)
        for batch in self.all_batches():
            batch_cost, batch_missing = batch.reserved(opened, times)
            arrived += batch_cost
            missing[batch.model] += batch_missing
        return self.account.caps_hold(arrived, missing)

    def open_in_parts(self, model: int | None = None) -> None:
        """Hold back all trials in flight, of one model if it is given, until `release_more` releases them: the caps do
        not cover their worst case."""
        for batch in self.batches(model):
            batch.open = 0
        self._in_parts = None

    @property
    def in_parts(self) -> bool:
        """Whether some trials in flight may not be asked yet."""
        return bool(self._partly_open())

    def _partly_open(self) -> list[Batch]:
        if self._in_parts is None:
            self._in_parts = [batch for batch in self.batches() if batch.open < batch.size]
        return self._in_parts

    def release_more(self) -> bool:
        """Release more trials of partly opened batches; False if the caps allow no more.

        As many are released as the caps cover twice, so that losses do not end the run; or one trial of each batch if
        that is not covered and all before it have arrived. So where this ends is a function of the trials' cost.

        If a trial's cost is unbounded, each part waits for all before it, which set its reserve; the first part is one
        trial of each batch.
        """
        while parts := self._partly_open():
            opened_now, largest = max(batch.open for batch in parts), max(batch.size for batch in parts)
            is_owed = any(batch.count_missing(batch.open) for batch in self.batches())
            if self.account.is_open:
                if is_owed:
                    return True
                for batch in parts:
                    self.account.promise(batch)
                if self.account.unmeasured[[batch.model for batch in parts]].any():
                    largest = opened_now + 1
            opened = opened_now + bisect_left(
                range(opened_now + 1, largest + 1), True, key=lambda size: not self._caps_cover(size, 2)
            )
            if opened == opened_now and is_owed:
                return True
            if opened == opened_now and not self._caps_cover(opened_now + 1):
                return False
            for batch in parts:
                batch.open = min(max(opened, opened_now + 1), batch.size)
            self._in_parts = None
            self.rounds_issued += 1
        return True

    def awaited(self) -> list[int]:
        """Models whose missing trials are due first: nothing is committed before they arrive."""
        return sorted({batch.model for batch in self._due_next() if batch.missing})

    def holding_up(self, others: int) -> list[int]:
        """Models whose missing trials hold up at least `others` models with complete rounds and kept trials.

        Fewer others would have nothing to be compared with; with few kept trials no model has joined or come back, and
        these are just not quite what today's looks ask for.
        """
        late = self.awaited()
        ahead = {batch.model for batch in self.batches() if not batch.missing and batch.model not in late}
        waiting = [model for model in ahead if self.early.kept_outcomes(model) >= self.issued.shape[1]]
        return late if len(waiting) >= others else []
