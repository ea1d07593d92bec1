"""Pauses, probes and windows of a model's replicas, adjusted to the outcomes of requests.

A single refusal, a 4xx or 3xx, says little: gateways lose a route for a moment, balancers ask a server that is not up
yet, and firewalls object to a prompt. So the request is repeated after a short pause, as after any failure. A refusal
is believed

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
from dataclasses import dataclass

from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.failures import (
    HANDLING,
    REFUSED_PAUSE,
    Failure,
    ModelNotServed,
    Refusal,
    safe_excerpt,
)
from adaptive_eval.endpoints.overdue import Heartbeat
from adaptive_eval.endpoints.replicas import HealthWatch, Replica, ReplicaSet
from adaptive_eval.endpoints.retry_after import RetryAfterPolicy
from adaptive_eval.endpoints.servers import IdentifiedServers
from adaptive_eval.endpoints.types import Limits, Notice

SHOWN_OF_A_WAIT = 60
OF_ONE = 5
AT_FIRST, LATER = 3, 5
LONGEST_PAUSE = 60.0
ACCEPTED_SECONDS = 5.0
"""A refusal would arrive within this time."""


@dataclass(slots=True)
class _RefusalStreak:
    """Consecutive refusals of a replica."""

    began: float
    last: float = -float("inf")
    """Time of the last refusal that counts."""
    times: int = 0
    number: int = 0


class ReplicaCare:
    """Adjusts pauses, probes and windows of one model's replicas after each attempt."""

    def __init__(
        self,
        replicas: ReplicaSet,
        servers: IdentifiedServers,
        caller: Caller,
        limits: Limits,
        longest_refusal: float,
        clock: Callable[[], float],
    ) -> None:
        """`longest_refusal`: most seconds for which one request waits out refusals."""
        self.watch = HealthWatch(replicas, caller.probe, limits.patience, clock)
        self._replicas = replicas
        self._servers = servers
        self._clock = clock
        self._streaks: dict[str, _RefusalStreak] = {}
        """Of replicas that may be refusing everything, by address."""
        self._waits = RetryAfterPolicy(
            longest_refusal, clock, servers.note, lambda text: safe_excerpt(text, caller.redactor, SHOWN_OF_A_WAIT)
        )

    def on_accepted(self, replica: Replica, sent_at: float) -> None:
        """Record that a request sent at this time is being answered."""
        streak = self._streaks.get(replica.url)
        if streak is not None and sent_at >= streak.began:
            self._end_streak(replica)

    def on_answer(self, replica: Replica, sent_at: float, now: float) -> None:
        """Record that a request sent at this time was answered."""
        replica.answered_at = now
        replica.mark_alive(now)
        replica.window.on_answer()
        self._waits.on_answer(replica.url)
        self.on_accepted(replica, sent_at)

    def on_refusal(self, replica: Replica, refusal: Refusal, sent_at: float, pending: Iterable[Heartbeat]) -> bool:
        """Count a refused request while others are `pending`; returns whether the whole model is believed to refuse."""
        now, refused_before = self._clock(), replica.refusing
        streak = self._streaks.get(replica.url)
        if streak is not None and any(_is_accepted(pulse, streak.began, now) for pulse in pending):
            self._end_streak(replica)
            streak = None
        streak = streak or self._streaks.setdefault(replica.url, _RefusalStreak(now))
        streak.number += 1
        if sent_at >= streak.last:
            streak.times, streak.last = streak.times + 1, now
        if streak.number > 1:
            replica.apart = min(LONGEST_PAUSE, REFUSED_PAUSE * 2.0 ** (streak.times - 1))
            self._replicas.pause(replica, replica.apart)
        known = replica.answered_at > -float("inf")
        if isinstance(refusal, ModelNotServed) or streak.times >= (LATER if known else AT_FIRST):
            self.watch.mark_refusing(replica, str(refusal))
        if all(other.refusing for other in self._replicas.replicas):
            self._replicas.refuse(refusal)
            return True
        if replica.refusing and not refused_before:
            text = f"its server at {replica.url} refuses everything, so its others are asked: {refusal}"
            self._servers.note(Notice("replica_refuses", text))
        return False

    def _end_streak(self, replica: Replica) -> None:
        """Use a replica as before, which accepts requests after all."""
        if self._streaks.pop(replica.url).number > 1:
            replica.apart, replica.wait_until = 0.0, -float("inf")
            self.watch.mark_accepting(replica)

    def on_unsent(self, replica: Replica, sent_at: float) -> None:
        """Send fewer requests at a time, because this machine could not open a connection."""
        replica.window.on_refusal(sent_at, self._clock())
        self._servers.note_first(Notice("out_of_files", open_files.shortage_message()))

    def on_failure(self, replica: Replica, failure: Failure, sent_at: float) -> None:
        """Handle a failed request: pause, send fewer at a time, or probe the replica."""
        handling = HANDLING[failure.kind]
        if handling.window == "halve":
            replica.window.on_refusal(sent_at, self._clock())
        elif handling.window == "cluster":
            replica.window.on_failure(sent_at, self._clock())
            if (pause := replica.window.pause) > 0.0:
                self._replicas.pause(replica, pause)
        failure.wait = self._waits.believed_seconds(replica.url, failure.retry_after, sent_at)
        if failure.wait > 0.0:
            self._replicas.pause(replica, failure.wait)
        if handling.health == "gone":
            self._servers.forget(replica.url)
            self.watch.mark_unreachable(replica)
        elif handling.health == "suspect":
            self.watch.suspect(replica)


def _is_accepted(pulse: Heartbeat, since: float, now: float) -> bool:
    return pulse.sent_at >= since and (pulse.first_at is not None or now - pulse.sent_at >= ACCEPTED_SECONDS)
