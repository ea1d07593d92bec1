"""The time before the first look if servers are held.

The seconds of a model's first-round answers set its clock. Models with a complete first round go on, in rounds of 1 +
lookahead trials a question, until the slowest model has completed its own. How much that comes to depends on the
answers of the first round alone: missing answers can only make it last longer.
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
        """Models whose first round is complete."""
        self._slowest: dict[int, Batch] = {}
        """The slowest batch of each size, as last computed."""
        self._of = 0

    def start_clocks(
        self, flight: BatchesInFlight, set_aside: Collection[int], heard: Batch | None = None
    ) -> Iterator[TrialArray]:
        """Set the clocks of models whose first round is complete; yields further rounds, each to be issued at once.

        There are none if the caps might not allow all of it. `heard` is the only batch with new outcomes, if it is one.
        """
        batches = [batch for batch in self._batches if batch.model not in set_aside]
        complete = [batch for batch in batches if batch.missing == 0]
        if batches and not complete:
            return
        questions = flight.issued.shape[1]
        self._update_slowest(batches, heard)
        last = max((one.size / questions * clock_seconds(one) for one in self._slowest.values()), default=0.0)
        for batch in complete:
            if batch.model not in self._clocks_set:
                self._clocks_set.add(batch.model)
                flight.start_clock(batch)
        for batch in complete if self._may_go_on(flight, complete, last) else ():
            while flight.until[batch.model] < last and (extra := self._next_round(flight, batch.model)).any():
                yield extra
        if len(complete) == len(batches):
            flight.now = last

    def _update_slowest(self, batches: Sequence[Batch], heard: Batch | None) -> None:
        """Find the batch of each size whose answers take longest: it is the last of its size to complete.

        A batch's seconds only grow, so that with news of a single batch no other has to be looked at.
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
        """Whether any model would go on, and the caps allow all that every model may be asked."""
        left = self._most * flight.issued.shape[1] - flight.issued.sum(axis=1)
        return any(flight.until[batch.model] < last for batch in complete) and flight.account.fits(left)

    def _next_round(self, flight: BatchesInFlight, model: int) -> TrialArray:
        """(L, M): a model's next round, as far as its horizon allows."""
        extra = np.zeros_like(flight.issued)
        extra[model] = np.minimum(1, self._most - flight.issued[model])
        return extra
