"""A ledger of sent requests, so that what a run has asked for is known through kills, and caps hold.

The trials of a request are entered in the store, with the next group commit, and crossed out by the commit that has
their answers. Entries that a later start finds may have been generated and lost, and an event says so. The same goes
for an answer that is lost on the way while the run goes on (a reset, a stream that stops, a time-out, a dead replica).
A refusal or an error that a server reports costs nothing.

If a cap on tokens, USD or GPU time is set, a request is sent only once its entry is on disk, and what is lost counts at
its worst cost. Without one it counts as much as stored answers of its model do in the mean.
"""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.store import AnswersLost, RunBegun, RunFinished, RunReader, RunStopped, SentRequest, Store
from adaptive_eval.store.spending import lost_costs, mean_cost
from adaptive_eval.supply.types import Lane, Request

BEAT_SECONDS = 2.0
"""The elapsed time of a run is stored at least this often: a kill loses no more of it."""
UNSAID_SECONDS = BEAT_SECONDS + 1.0
"""A killed run may have been active for up to this long after its last record of the time."""


class Ledger:
    """Entries of the requests that are sent, and losses of each model's servers."""

    def __init__(self, lanes: Sequence[Lane], reader: RunReader, *, capped: bool) -> None:
        """`capped`: whether a cap counts what is lost."""
        self._lanes, self._reader, self._capped = lanes, reader, capped
        self._lost = [0] * len(lanes)
        """How many answers each model's endpoint had lost at the last call of `new_losses`."""

    def entry(self, request: Request) -> SentRequest:
        """Entry of a request."""
        return SentRequest(self._lanes[request.model].name, request.size)

    def new_losses(self) -> Iterator[AnswersLost]:
        """Answers that endpoints have lost since the last call."""
        before, self._lost = self._lost, [lane.endpoint.stats.lost for lane in self._lanes]
        counts = zip(self._lanes, self._lost, before, strict=True)
        if lost := [(lane, now - then) for lane, now, then in counts if now > then]:
            yield from _loss_events(self._reader, lost, killed=False, capped=self._capped)


def lose_entered(
    store: Store, lanes: Sequence[Lane], left: Mapping[str, int], *, capped: bool
) -> Iterator[AnswersLost]:
    """Record as lost the trials that earlier starts have entered and that have no answers.

    `left` counts each model's trials at batch services: they are not lost, and are entered anew when asked for.
    """
    counts = store.reader.in_flight()
    lost = [(lane, max(0, counts[lane.name] - left.get(lane.name, 0))) for lane in lanes if counts.get(lane.name)]
    for event in _loss_events(store.reader, lost, killed=True, capped=capped):
        store.lose(event)
        if event.answers:
            yield event


def _loss_events(
    reader: RunReader, lost: Sequence[tuple[Lane, int]], *, killed: bool, capped: bool
) -> Iterator[AnswersLost]:
    worst = lost_costs(reader, {lane.name: lane.price.worst for lane, _ in lost}) if capped else {}
    for lane, count in lost:
        cost = worst[lane.name] if capped else mean_cost(reader, lane.name)
        yield AnswersLost(lane.name, count, *cost.times(count), killed, estimated=None if capped else True)


def at_least_elapsed(reader: RunReader) -> float:
    """Seconds that the run has been active; after a kill with the longest time that it may not have recorded."""
    marks = [event for event in reader.events() if isinstance(event, RunBegun | RunStopped | RunFinished)]
    killed = bool(marks) and isinstance(marks[-1], RunBegun)
    return reader.elapsed + (UNSAID_SECONDS if killed else 0.0)
