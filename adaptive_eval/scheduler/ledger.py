"""A ledger of sent requests, so that what a run has asked for is known through kills, and caps hold.

The trials of a request are entered in the store, with the next group commit, and crossed out by the commit that has
their answers. Entries that a later start finds may have been generated and lost, and an event says so. The same goes
for an answer that is lost on the way while the run goes on (a reset, a stream that stops, a time-out, a dead replica).
A refusal or an error that a server reports costs nothing.

If a cap on tokens, USD or GPU time is set, a request is sent only once its entry is on disk, and what is lost counts at
its worst cost. Without one it counts as much as stored answers of its model do in the mean, and a kill leaves no trace
of requests that were sent since the newest commit, nor of verdicts that were under way.
"""

from collections.abc import Iterator, Mapping

from adaptive_eval.scheduler.state import RunState
from adaptive_eval.store import AnswersLost, RunBegun, RunFinished, RunReader, RunStopped, Store

BEAT_SECONDS = 2.0
"""The elapsed time of a run is stored at least this often: a kill loses no more of it."""
UNSAID_SECONDS = BEAT_SECONDS + 1.0
"""A killed run may have been active for up to this long after its last record of the time."""


def lose_entered(store: Store, state: RunState, left: Mapping[str, int]) -> Iterator[AnswersLost]:
    """Record as lost the trials that earlier starts have entered and that have no answers; all else is applied before.

    `left` counts each model's trials at batch services: they are not lost, and are entered anew when asked for.
    """
    counts = store.reader.in_flight()
    for model, lane in enumerate(state.lanes):
        if lane.name in counts:
            event = state.loss(model, max(0, counts[lane.name] - left.get(lane.name, 0)), killed=True)
            store.lose(event)
            if event.answers:
                state.apply(event)
                yield event


def at_least_elapsed(reader: RunReader) -> float:
    """Seconds that the run has been active; after a kill with the longest time that it may not have recorded."""
    marks = [event for event in reader.events() if isinstance(event, RunBegun | RunStopped | RunFinished)]
    killed = bool(marks) and isinstance(marks[-1], RunBegun)
    return reader.elapsed + (UNSAID_SECONDS if killed else 0.0)
