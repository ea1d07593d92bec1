"""The time before the first look, where servers are held.

What answers of the first round take sets the clock of each model, and those whose first round has come go on, in rounds
of 1 + lookahead trials a question, for as long as the slowest model is at its first. How much that is in the end
depends on the answers of the first round alone: what is missing of it can only make it last longer.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from adaptive_eval.core.in_flight import BatchesInFlight, TrialArray, clock_seconds
from adaptive_eval.core.rounds import Batch


class Opening:
    """The first round, while it is in flight."""

    def __init__(self, batches: Sequence[Batch], most: int) -> None:
        """`most` is the horizon, in trials a question."""
        self._batches = tuple(batches)
        self._most = most
        self._clocks_set: set[int] = set()
        """Models whose first round has come."""
        self._slowest: dict[int, Batch] = {}
        """As it was last worked out, and of how many batches."""
        self._of = 0

    def start_clocks(
        self, flight: BatchesInFlight, set_aside: Collection[int], heard: Batch | None = None
    ) -> Iterator[TrialArray]:
        """Set the clocks of those whose first round has come; gives the rounds that go on, each to be issued at once.

        None go on where caps might not allow all of it. `heard` is the only batch of which there is news, if it is one.
        """
        batches = [batch for batch in self._batches if batch.model not in set_aside]
        complete = [batch for batch in batches if batch.missing == 0]
        if batches and not complete:
            return
        questions = flight.issued.shape[1]
        self._hear(batches, heard)
        last = max((one.size / questions * clock_seconds(one) for one in self._slowest.values()), default=0.0)
        for batch in complete:
            if batch.model not in self._clocks_set:
                self._clocks_set.add(batch.model)
                flight.start_clock(batch)
        for batch in complete if self._may_go_on(flight, complete, last) else ():
            while flight.until[batch.model] < last and (extra := self._another(flight, batch.model)).any():
                yield extra
        if len(complete) == len(batches):
            flight.now = last

    def _hear(self, batches: Sequence[Batch], heard: Batch | None) -> None:
        """Find of those of each size the one whose answers take longest: no other comes later.

        What a batch took only grows: with news of one of them no other has to be looked at.
        """
        if heard is None or len(batches) != self._of:
            self._slowest, self._of = {}, len(batches)
            news: Iterable[Batch] = batches
        else:
            news = [heard] if heard in self._batches else []
        for batch in news:
            so_far = self._slowest.get(batch.size)
            if so_far is None or batch.seconds > so_far.seconds:
                self._slowest[batch.size] = batch

    def _may_go_on(self, flight: BatchesInFlight, complete: Sequence[Batch], last: float) -> bool:
        """Whether any of them would go on, and caps allow all that everyone may be asked."""
        left = self._most * flight.issued.shape[1] - flight.issued.sum(axis=1)
        return any(flight.until[batch.model] < last for batch in complete) and flight.account.fits(left)

    def _another(self, flight: BatchesInFlight, model: int) -> TrialArray:
        """(L, M): one model's next round, as far as its horizon allows."""
        extra = np.zeros_like(flight.issued)
        extra[model] = np.minimum(1, self._most - flight.issued[model])
        return extra
