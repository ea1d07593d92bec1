"""Pauses, probes and windows of a model's replicas, adjusted to the outcomes of requests."""

from collections.abc import Callable, Iterable

from adaptive_eval.endpoints import open_files
from adaptive_eval.endpoints.client import Caller
from adaptive_eval.endpoints.failures import Failure, FailureKind, Refusal, safe_excerpt
from adaptive_eval.endpoints.overdue import Heartbeat
from adaptive_eval.endpoints.refusals import RefusalDoubts
from adaptive_eval.endpoints.replicas import HealthWatch, Replica, ReplicaSet
from adaptive_eval.endpoints.retry_after import RetryAfterPolicy
from adaptive_eval.endpoints.servers import IdentifiedServers
from adaptive_eval.endpoints.types import Limits, Notice

SHOWN_OF_A_WAIT = 60


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
        self._doubts = RefusalDoubts(replicas, self.watch, clock)
        self._waits = RetryAfterPolicy(
            longest_refusal, clock, servers.note, lambda text: safe_excerpt(text, caller.secrets, SHOWN_OF_A_WAIT)
        )

    def on_accepted(self, replica: Replica, sent_at: float) -> None:
        """Record that a request sent at this time is being answered."""
        self._doubts.on_accepted(replica, sent_at)

    def on_answer(self, replica: Replica, sent_at: float, now: float) -> None:
        """Record that a request sent at this time was answered."""
        replica.answered_at = now
        replica.mark_alive(now)
        replica.window.on_answer()
        self._waits.on_answer(replica.url)
        self._doubts.on_accepted(replica, sent_at)

    def on_refusal(self, replica: Replica, refusal: Refusal, sent_at: float, pending: Iterable[Heartbeat]) -> bool:
        """Count a refused request while others are `pending`; returns whether the whole model is believed to refuse."""
        refused_before = replica.refusing
        of_all = self._doubts.on_refusal(replica, refusal, sent_at, pending)
        if replica.refusing and not (refused_before or of_all):
            text = f"its server at {replica.url} refuses everything, so its others are asked: {refusal}"
            self._servers.note(Notice("replica_refuses", text))
        return of_all

    def on_unsent(self, replica: Replica, sent_at: float) -> None:
        """Send fewer requests at a time, because this machine could not open a connection."""
        replica.window.on_refusal(sent_at, self._clock())
        self._servers.note_first(Notice("out_of_files", open_files.shortage_message()))

    def on_failure(self, replica: Replica, failure: Failure, sent_at: float) -> None:
        """Handle a failed request: pause, send fewer at a time, or probe the replica."""
        if failure.kind is FailureKind.RATE_LIMITED:
            replica.window.on_refusal(sent_at, self._clock())
        else:
            replica.window.on_failure(sent_at, self._clock())
            if (pause := replica.window.pause) > 0.0:
                self._replicas.pause(replica, pause)
        failure.wait = self._waits.believed_seconds(replica.url, failure.retry_after, sent_at)
        if failure.wait > 0.0:
            self._replicas.pause(replica, failure.wait)
        if failure.kind is FailureKind.UNREACHABLE:
            self._servers.forget(replica.url)
            self.watch.mark_unreachable(replica)
        elif failure.kind is not FailureKind.RATE_LIMITED:
            self.watch.suspect(replica)
