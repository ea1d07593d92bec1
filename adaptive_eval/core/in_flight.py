"""What is in flight, in the order in which it counts.

Each batch is due at a time of a logical clock, which is set when the batch is issued. What is in flight is committed in
this order, (due, round, model), whatever comes first: so decisions depend on what was issued, never on what arrived.

Where rounds are of one size, every batch of a round is due one tick after the round before: all models go in step.
Where rounds are as large as the need, a batch is due as many ticks after those that its model was asked for before as
it has trials a question; where servers are held, ticks are longer for models whose answers take longer, as their square
root: of two models of which one takes t times as long, the other gets sqrt(t) times as many trials, which tells the two
apart in the least time of both servers. Then no model waits for another one's round, only for what the clock puts
before its own. Where rounds take as long whatever their size, as at batch services, each takes one tick. A clock that
is wrong makes someone wait, and changes no decision.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.account import BudgetAccount
from adaptive_eval.core.early_outcomes import EarlyOutcomes
from adaptive_eval.core.rounds import Batch, BatchPart, Round
from adaptive_eval.core.settings import Bench, Budget
from adaptive_eval.core.types import Ask, Cost, Outcome
from scorio.moments import FloatArray

TrialArray = NDArray[np.int32]
KnownPart = tuple[Batch, BatchPart]
"""What is known of a batch from an earlier run."""
SHORTEST = 1.0
"""Answers that take less than a second count as taking one: nobody waits long for those."""


def clock_seconds(batch: Batch) -> float:
    """Seconds of a trial of this batch on the logical clock; a lower bound while some are missing.

    The square root of an answer's seconds, as one of 1, 1.5, 2, 3, 4, 6, ...: nothing finer, so that the clock is the
    same where the same answers took about as long.
    """
    halves = round(math.log2(max(batch.seconds, SHORTEST)))
    return (1.0, 1.5)[halves % 2] * 2.0 ** (halves // 2)


class BatchesInFlight:
    """The batches in flight, the logical clock, and what is reserved for them."""

    def __init__(self, bench: Bench, budget: Budget) -> None:
        self.account = BudgetAccount(budget, bench.worst_cost)
        self.issued = np.zeros((bench.models, bench.questions), dtype=np.int32)
        self.now = 0.0
        """The time of the logical clock: when the latest batch that was committed was due."""
        self._batches: list[Batch] = []
        self._own: list[list[Batch]] = [[] for _ in range(bench.models)]
        """The batches in flight by model."""
        self._parked: list[list[Batch]] = [[] for _ in range(bench.models)]
        """Batches of models that no open comparison wants now, in their order."""
        self.takes: FloatArray = np.ones(bench.models)
        """(L,): what a trial of each model takes on the logical clock."""
        self.until = np.zeros(bench.models)
        """When the latest batch of each model is due."""
        self._composed = 0
        self.rounds_issued = 0
        self._not_asked: list[Round] = []
        self.early = EarlyOutcomes()

    # -- issuing --------------------------------------------------------------------------------------------------

    def issue(
        self, extra: TrialArray, *, in_step: bool, looked: bool = True, even: bool = False
    ) -> Iterator[KnownPart]:
        """Issue a round; gives those of its trials that are known from an earlier run, batch by batch.

        In step, all of it is due at the next tick; else each batch when its model has come so far, and `even` ones
        after a tick whatever their size. Before the first
        look a round is numbered by how many its models had, so that no number depends on who was first.
        """
        number = self._composed if looked else max(len(self._own[model]) for model in np.flatnonzero(extra.any(axis=1)))
        one = Round(number, self.issued, extra)
        self._composed = max(self._composed, number + 1)
        self.issued = self.issued + extra
        self.rounds_issued += 1
        self.account.reserve(extra.sum(axis=1))
        self._not_asked.append(one)
        tick = max((batch.due for batch in self._batches), default=self.now) + 1.0
        for batch in one.batches.values():
            took = 1.0 if even else self._sets(batch) * float(self.takes[batch.model])
            batch.due = tick if in_step else max(self.now, float(self.until[batch.model])) + took
            self.account.promise(batch)
            self._fly(batch)
        return self._known_parts(one.batches.values())

    def _fly(self, batch: Batch) -> None:
        self.until[batch.model] = batch.due
        insort(self._batches, batch, key=_order)
        self._own[batch.model].append(batch)

    def park(self, wanted: NDArray[np.bool_]) -> None:
        """Park what is in flight of models (L,) that are not wanted, and go on with what is parked of the others.

        Nothing of a parked batch is asked, and no look waits for it; what was asked before comes all the same.
        """
        for model, own in enumerate(self._own):
            if own and not wanted[model]:
                self._parked[model] += own
                self._own[model], self.until[model] = [], 0.0
                self._batches = [batch for batch in self._batches if batch.model != model]
            elif wanted[model] and self._parked[model]:
                parked, self._parked[model] = self._parked[model], []
                for batch in parked:
                    took = self._sets(batch) * float(self.takes[model])
                    batch.due = max(self.now, float(self.until[model])) + took
                    self._fly(batch)

    def is_parked(self, model: int) -> bool:
        """Whether a model has batches, and all of them are parked."""
        return bool(self._parked[model])

    @property
    def parked(self) -> NDArray[np.int64]:
        """(L,): trials of parked batches."""
        return np.array([sum(batch.size for batch in own) for own in self._parked], dtype=np.int64)

    def parked_batches(self) -> Iterator[Batch]:
        """All that is parked."""
        return chain.from_iterable(self._parked)

    def expected(self, model: int) -> Sequence[Batch]:
        """A model's batches of which something may come, parked or not."""
        return [*self._own[model], *self._parked[model]]

    def start_clock(self, opening: Batch) -> None:
        """Set a model's clock by what the answers of its first round took, once that is complete."""
        model, own = opening.model, self._own[opening.model]
        self.takes[model] = clock_seconds(opening)
        until = self._sets(opening) * self.takes[model]
        for batch in own:
            if batch is not opening:
                until = batch.due = until + self._sets(batch) * self.takes[model]
        self.until[model] = until
        self._batches.sort(key=_order)

    def _sets(self, batch: Batch) -> float:
        """Trials a question."""
        return batch.size / self.issued.shape[1]

    def remembered(self) -> Iterator[KnownPart]:
        """Outcomes of an earlier run that are kept and needed now, batch by batch; they are kept no more."""
        return self._known_parts([*self._batches, *self.parked_batches()])

    def _known_parts(self, batches: Iterable[Batch]) -> Iterator[KnownPart]:
        """Parts of batches that are known already, one by one: of millions no second copy is made."""
        if self.early:
            for batch in batches:
                if (part := self.early.take(batch)) is not None:
                    yield batch, part

    # -- what the shell is given ------------------------------------------------------------------------------------

    def ask(self, slots: int, model: int | None) -> list[Ask]:
        """Trials that were not asked for yet: at most `slots`, of one model if it is named."""
        asks: list[Ask] = []
        for batch in self.batches(model):
            if len(asks) >= slots:
                break
            asks.extend(batch.asks(slots - len(asks)))
        return asks

    def ask_rounds(self) -> list[Round]:
        """Rounds that were not asked for yet, as they were issued."""
        asked, self._not_asked = self._not_asked, []
        for one in asked:
            for batch in one.batches.values():
                batch.ask_all()
        return asked

    def place(self, outcome: Outcome) -> bool | None:
        """Give an outcome to its batch: True when it was new, False when it had come, None when nobody expects it."""
        for batch in self.expected(outcome.model):
            new = batch.place(outcome)
            if new is not None:
                return new
        return None

    # -- what has come ----------------------------------------------------------------------------------------------

    def batches(self, model: int | None = None) -> Sequence[Batch]:
        """All in flight, or those of one model, in the order in which they count."""
        return self._batches if model is None else self._own[model]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(L,): trials in flight."""
        sizes = np.zeros(len(self.issued), dtype=np.int64)
        for batch in self._batches:
            sizes[batch.model] += batch.size
        return sizes

    @property
    def ticks(self) -> int:
        """Number of times of the clock at which something is due."""
        return len({batch.due for batch in self._batches})

    def complete_and_due(self) -> list[Batch]:
        """The batches that are due next, once all of them are complete; none before, and none where nothing is in
        flight."""
        due: list[Batch] = []
        for batch in self._batches:
            if batch.due != self._batches[0].due:
                break
            if batch.missing:
                return []
            due.append(batch)
        return due

    def commit(self, batches: Iterable[Batch]) -> None:
        """Batches that are complete are in flight no more, and paid with what they used."""
        for batch in batches:
            self._batches.remove(batch)
            self._own[batch.model].remove(batch)
            self.now = max(self.now, batch.due)
            self.account.settle(batch, batch.size, batch.total_cost())
        if self._not_asked:  # who asks trial by trial never takes rounds, of which each holds all of its trials
            flying = set(map(id, chain(self._batches, *self._parked)))
            self._not_asked = [one for one in self._not_asked if not flying.isdisjoint(map(id, one.batches.values()))]

    def drop(self, model: int) -> list[Batch]:
        """A model's batches, which are in flight no more; their reservation stays."""
        dropped = [*self.expected(model)]
        self._own[model], self._parked[model] = [], []
        self._batches = [batch for batch in self._batches if batch.model != model]
        return dropped

    def clear(self) -> None:
        """Forget all batches: nothing is in flight any more."""
        self._batches, self._not_asked = [], []
        self._own, self._parked = [[] for _ in self._own], [[] for _ in self._own]

    @property
    def within_caps(self) -> bool:
        """Whether the caps bear what the trials in flight have used, those that may be missing, and what is kept."""
        return self._bears(0) and not (self.account.is_open and self._is_spent())

    def _is_spent(self) -> bool:
        """Whether what has come exceeds a cap."""
        early = np.array((len(self.early), *self.early.cost))
        came = sum((np.array(batch.spent_so_far()) for batch in self._batches), early)
        return not self.account.holds(came, np.zeros(len(self.issued), dtype=np.int64))

    def _bears(self, opened: int, times: int = 1) -> bool:
        """Whether they do with so many trials of each batch that may be asked, what is missing counted so many times.

        `opened` widens batches that are opened in part.
        """
        came, missing = np.array((len(self.early), *self.early.cost)), np.zeros(len(self.issued), dtype=np.int64)
        for batch in chain(self._batches, self.parked_batches()):
            counted, owed = batch.reserved(opened, times)
            came += counted
            missing[batch.model] += owed
        return self.account.holds(came, missing)

    def open_in_parts(self) -> None:
        """Let nothing be asked of what is in flight until `widen` allows it: caps do not bear all at its worst."""
        for batch in self._batches:
            batch.open = 0

    @property
    def in_parts(self) -> bool:
        """Whether there are trials in flight that may not be asked yet."""
        return any(batch.open < batch.size for batch in self._batches)

    def widen(self) -> bool:
        """Let more be asked of batches that are opened in part; False where that is over, and caps bear nothing more.

        It is asked as far as the caps bear it twice, so that losses do not end the run, or one trial of each where that
        is not borne and all before it has come. So where it is over is a function of what its trials cost.

        Where nothing bounds what a trial may cost, each part waits for all before it, by which the next is reserved;
        the first is one trial of each.
        """
        while parts := [batch for batch in self._batches if batch.open < batch.size]:
            now, most = max(batch.open for batch in parts), max(batch.size for batch in parts)
            is_owed = any(batch.count_missing(batch.open) for batch in self._batches)
            if self.account.is_open:
                if is_owed:
                    return True
                for batch in parts:
                    self.account.promise(batch)
                if self.account.unmeasured[[batch.model for batch in parts]].any():
                    most = now + 1
            opened = now + bisect_left(range(now + 1, most + 1), True, key=lambda size: not self._bears(size, 2))
            if opened == now and is_owed:
                return True
            if opened == now and not self._bears(now + 1):
                return False
            for batch in parts:
                batch.open = min(max(opened, now + 1), batch.size)
            self.rounds_issued += 1
        return True

    def hold(self, model: int, question: int, trial: int, cost: Cost) -> None:
        """Count what a trial in flight has used whose category is told later."""
        for batch in self.expected(model):
            batch.hold(question, trial, cost)

    def awaited(self) -> list[int]:
        """Models whose missing trials are due first: before those come nothing is committed."""
        return sorted({one.model for one in self._batches if one.missing and one.due == self._batches[0].due})

    def holding_up(self, others: int) -> list[int]:
        """Models whose missing trials keep so many others from rounds that are there, and from more after those.

        Fewer others have nothing to be compared with, and where there is hardly more nobody joins or comes back: what
        is there is just not quite what the looks ask for today.
        """
        late = self.awaited()
        ahead = {one.model for one in self._batches if not one.missing and one.model not in late}
        far = [model for model in ahead if self.early.of_model(model) >= self.issued.shape[1]]
        return late if len(far) >= others else []


def _order(batch: Batch) -> tuple[float, int, int]:
    return batch.due, batch.round_index, batch.model
