"""The time before the first look, where servers are held.

What answers of the first round take sets the clock of each model, and those whose first round has come go on, in rounds
of 1 + lookahead trials a question, for as long as the slowest model is at its first. How much that is in the end
depends on the answers of the first round alone: what is missing of it can only make it last longer.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from adaptive_eval.core.in_flight import BatchesInFlight, TrialArray, at_least
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.settings import Pace


class Opening:
    """The first round, while it is in flight."""

    def __init__(self, batches: Sequence[Batch], pace: Pace, most: int) -> None:
        """`most` is the horizon, in trials a question."""
        self._batches = tuple(batches)
        self._pace = pace
        self._most = most
        self._clocks_set: set[int] = set()
        """Models whose first round has come."""

    def start_clocks(self, flight: BatchesInFlight, set_aside: Collection[int]) -> Iterator[TrialArray]:
        """Set the clocks of those whose first round has come; gives the rounds that go on, each to be issued at once.

        None go on where caps might not allow all of it.
        """
        batches = [batch for batch in self._batches if batch.model not in set_aside]
        complete = [batch for batch in batches if batch.missing == 0]
        if batches and not complete:
            return
        questions = flight.issued.shape[1]
        last = max((one.size / questions * at_least(one) for one in _slowest(batches)), default=0.0)
        for batch in complete:
            if batch.model not in self._clocks_set:
                self._clocks_set.add(batch.model)
                flight.start_clock(batch)
        left = self._most * questions - flight.issued.sum(axis=1)
        for batch in complete if flight.account.fits(left) else ():
            while flight.until[batch.model] < last and (extra := self._another(flight, batch.model)).any():
                yield extra
        if len(complete) == len(batches):
            flight.now = last

    def _another(self, flight: BatchesInFlight, model: int) -> TrialArray:
        """(L, M): one model's next round, as far as its horizon allows."""
        extra = np.zeros_like(flight.issued)
        extra[model] = np.minimum(1 + self._pace.lookahead, self._most - flight.issued[model])
        return extra


def _slowest(batches: Sequence[Batch]) -> Iterable[Batch]:
    """Of those of each size the one whose answers take longest: no other comes later."""
    slowest: dict[int, tuple[float, Batch]] = {}
    for batch in batches:
        seconds = batch.seconds
        if batch.size not in slowest or seconds > slowest[batch.size][0]:
            slowest[batch.size] = seconds, batch
    return [batch for _, batch in slowest.values()]
