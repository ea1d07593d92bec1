"""Caps hold through kills: a request is sent when it is written down that it will be, and what it may cost at worst.

Where a cap on tokens, USD or GPU time is set, the trials of a request are entered in the store, with the next group
commit, before it is sent, and crossed out by the commit that has their answers. What a later start finds entered was
generated and lost, as far as anybody knows: it is spent at its worst, and an event says so. An answer that is lost on
the way while the run goes on (a reset, a stream that stops, a time-out, a dead replica) is spent at its worst, too, as
soon as it is noticed. A refusal or an error that a server reports costs nothing: nobody is charged for it.
"""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.scheduler.types import BEAT_SECONDS
from adaptive_eval.store import AnswersLost, RunBegun, RunFinished, RunReader, RunStopped, SentRequest, Store
from adaptive_eval.store.spending import lost_costs
from adaptive_eval.supply.types import Lane, Request

UNSAID_SECONDS = BEAT_SECONDS + 1.0
"""A run that was killed may have been active for so long without saying so."""


class Ledger:
    """Entries of the requests that are sent, and losses of each model's servers."""

    def __init__(self, lanes: Sequence[Lane], reader: RunReader) -> None:
        self._lanes, self._reader = lanes, reader
        self._lost = [0] * len(lanes)
        """Answers that the endpoint of each model had lost when it was asked last."""

    def entry(self, request: Request) -> SentRequest:
        """Entry of a request, crossed out when no answer is to come."""
        return SentRequest(self._lanes[request.model].name, request.size)

    def new_losses(self) -> Iterator[AnswersLost]:
        """Answers that endpoints have lost since the last call."""
        before, self._lost = self._lost, [lane.endpoint.stats.lost for lane in self._lanes]
        counts = zip(self._lanes, self._lost, before, strict=True)
        if lost := [(lane, now - then) for lane, now, then in counts if now > then]:
            yield from _losses(self._reader, lost, killed=False)


def lose_entered(store: Store, lanes: Sequence[Lane], left: Mapping[str, int]) -> Iterator[AnswersLost]:
    """Write down as lost what earlier starts have entered and have no answers for.

    `left` is what batch services have of each model: it is not lost, and is entered anew when it is asked for.
    """
    counts = store.reader.in_flight()
    lost = [(lane, max(0, counts[lane.name] - left.get(lane.name, 0))) for lane in lanes if counts.get(lane.name)]
    for event in _losses(store.reader, lost, killed=True):
        store.lose(event)
        if event.answers:
            yield event


def _losses(reader: RunReader, lost: Sequence[tuple[Lane, int]], *, killed: bool) -> Iterator[AnswersLost]:
    costs = lost_costs(reader, {lane.name: lane.price.worst for lane, _ in lost})
    for lane, count in lost:
        yield AnswersLost(lane.name, count, *costs[lane.name].times(count), killed)


def at_least_elapsed(reader: RunReader) -> float:
    """Seconds that the run has been active: after a kill with as much more as it may have been without saying so."""
    marks = [event for event in reader.events() if isinstance(event, RunBegun | RunStopped | RunFinished)]
    killed = bool(marks) and isinstance(marks[-1], RunBegun)
    return reader.elapsed + (UNSAID_SECONDS if killed else 0.0)
