"""Whether a refusal is believed: a 4xx (or 3xx) that no retry would mend, if it is meant.

One of them says little: gateways lose a route for a moment, balancers ask a server that is not up yet, and firewalls
take a prompt amiss. So the request is sent again after a short pause, as after any failure. It is believed

    of a request     when it was refused `OF_ONE` times, while others were accepted
    of a replica     when it refused `AT_FIRST` times, one after the other, and accepted nothing since, or `LATER` times
                     where it has answered before; requests that were on their way at the same time count once; or
                     at once when its list of models does not have this one, and no answer is named after it
    of a model       when it is believed of all its replicas: then everyone is told

which takes 1.5 s of a server that refuses from the start, and 8 s of one that has answered. From the second refusal
on, as long as nothing is accepted, a replica is sent one request at a time, with pauses that double: it is not
hammered, and a model that has another replica goes on there. An answer, the first piece of one, or a request that was
not refused for `ACCEPTED_SECONDS` is a sign that it accepts.
"""

from collections.abc import Callable, Iterable

from adaptive_eval.endpoints.failures import REFUSED_PAUSE, NotServed, Refusal
from adaptive_eval.endpoints.overdue import LastHeard
from adaptive_eval.endpoints.replicas import HealthWatch, Replica, ReplicaSet

OF_ONE = 5
AT_FIRST, LATER = 3, 5
LONGEST_PAUSE = 60.0
ACCEPTED_SECONDS = 5.0
"""Refusals come at once."""

OF_AN_OPTION = frozenset({400, 405, 413, 415, 422, 501})
"""What may refuse an option of the request, such as `n` or `stream`, and not all of it."""


class _RefusalStreak:
    """Refusals of a replica since it last accepted anything."""

    __slots__ = ("began", "last", "number", "times")

    def __init__(self, now: float) -> None:
        self.began = now
        self.last = -float("inf")
        """When the last of those that count was heard."""
        self.times = 0
        self.number = 0


class RefusalDoubts:
    """The replicas of one model that may refuse everything."""

    def __init__(self, replicas: ReplicaSet, watch: HealthWatch, clock: Callable[[], float]) -> None:
        self._replicas = replicas
        self._watch = watch
        self._clock = clock
        self._rows: dict[str, _RefusalStreak] = {}

    def refused(self, replica: Replica, refusal: Refusal, sent_at: float, pending: Iterable[LastHeard]) -> bool:
        """A request was refused, while others are `pending`; whether that is believed of the whole model."""
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
        if isinstance(refusal, NotServed) or row.times >= (LATER if known else AT_FIRST):
            self._watch.refuses(replica, str(refusal))
        if not all(other.refusing for other in self._replicas.replicas):
            return False
        self._replicas.refuse(refusal)
        return True

    def accepted(self, replica: Replica, sent_at: float) -> None:
        """A request that was sent then was not refused."""
        row = self._rows.get(replica.url)
        if row is not None and sent_at >= row.began:
            self._accept(replica)

    def _accept(self, replica: Replica) -> None:
        row = self._rows.pop(replica.url)
        if row.number > 1:
            replica.apart, replica.wait_until = 0.0, -float("inf")
            self._watch.accepts(replica)


def _is_accepted(pulse: LastHeard, since: float, now: float) -> bool:
    return pulse.sent_at >= since and (pulse.first_at is not None or now - pulse.sent_at >= ACCEPTED_SECONDS)
