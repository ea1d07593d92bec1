"""Decides whether a refusal, a 4xx or 3xx, is final.

A single one says little: gateways lose a route for a moment, balancers ask a server that is not up yet, and firewalls
object to a prompt. So the request is repeated after a short pause, as after any failure. A refusal is believed

    of a request     when it was refused `OF_ONE` times, while others were accepted
    of a replica     when it refused `AT_FIRST` times, one after the other, and accepted nothing since, or `LATER` times
                     where it has answered before; requests that were on their way at the same time count once; or
                     at once when its list of models does not have this one, and no answer is named after it
    of a model       when it is believed of all its replicas: then all requests fail

This takes 1.5 s for a server that refuses from the start, and 8 s for one that has answered. After the second refusal
in a row, a replica is sent one request at a time, with pauses that double: it is not hammered, and a model with another
replica continues there. An answer, its first piece, or a request that was not refused for `ACCEPTED_SECONDS` shows that
the replica accepts requests.
"""

from collections.abc import Callable, Iterable

from adaptive_eval.endpoints.failures import REFUSED_PAUSE, ModelNotServed, Refusal
from adaptive_eval.endpoints.overdue import Heartbeat
from adaptive_eval.endpoints.replicas import HealthWatch, Replica, ReplicaSet

OF_ONE = 5
AT_FIRST, LATER = 3, 5
LONGEST_PAUSE = 60.0
ACCEPTED_SECONDS = 5.0
"""A refusal would arrive within this time."""

OF_AN_OPTION = frozenset({400, 405, 413, 415, 422, 501})
"""Statuses that may refuse an option of the request, such as `n` or `stream`, rather than the request."""


class _RefusalStreak:
    """Consecutive refusals of a replica."""

    __slots__ = ("began", "last", "number", "times")

    def __init__(self, now: float) -> None:
        self.began = now
        self.last = -float("inf")
        """Time of the last refusal that counts."""
        self.times = 0
        self.number = 0


class RefusalDoubts:
    """The replicas of one model that may be refusing everything."""

    def __init__(self, replicas: ReplicaSet, watch: HealthWatch, clock: Callable[[], float]) -> None:
        self._replicas = replicas
        self._watch = watch
        self._clock = clock
        self._rows: dict[str, _RefusalStreak] = {}

    def on_refusal(self, replica: Replica, refusal: Refusal, sent_at: float, pending: Iterable[Heartbeat]) -> bool:
        """Count a refused request while others are `pending`; returns whether the whole model is believed to refuse."""
        now = self._clock()
        row = self._rows.get(replica.url)
        if row is not None and any(_is_accepted(pulse, row.began, now) for pulse in pending):
            self._accept(replica)
            row = None
        row = row or self._rows.setdefault(replica.url, _RefusalStreak(now))
        row.number += 1
        if sent_at >= row.last:
            row.times, row.last = row.times + 1, now
        if row.number > 1:
            replica.apart = min(LONGEST_PAUSE, REFUSED_PAUSE * 2.0 ** (row.times - 1))
            self._replicas.pause(replica, replica.apart)
        known = replica.answered_at > -float("inf")
        if isinstance(refusal, ModelNotServed) or row.times >= (LATER if known else AT_FIRST):
            self._watch.mark_refusing(replica, str(refusal))
        if not all(other.refusing for other in self._replicas.replicas):
            return False
        self._replicas.refuse(refusal)
        return True

    def on_accepted(self, replica: Replica, sent_at: float) -> None:
        """Note that a request sent at this time was accepted."""
        row = self._rows.get(replica.url)
        if row is not None and sent_at >= row.began:
            self._accept(replica)

    def _accept(self, replica: Replica) -> None:
        row = self._rows.pop(replica.url)
        if row.number > 1:
            replica.apart, replica.wait_until = 0.0, -float("inf")
            self._watch.mark_accepting(replica)


def _is_accepted(pulse: Heartbeat, since: float, now: float) -> bool:
    return pulse.sent_at >= since and (pulse.first_at is not None or now - pulse.sent_at >= ACCEPTED_SECONDS)
