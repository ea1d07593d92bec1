"""One replica of a model: its window, its health, and what each event does to them.

A replica changes only through events: `send`, `take_back`, `on_accepted`, `on_answer`, `on_failure`, `on_refusal`,
`on_probe` and `on_load`. It has no clock, no network and no access to other replicas. `failures.HANDLING` defines the
effect of each kind of failure.

    window    maximum requests in flight. It is halved when the replica has no room (429, 503), once for all requests in
              flight, and not again before the next answer: if a server answers nothing, fewer requests do not help. It
              grows back step by step with the answers. Its ceiling is the configured concurrency, or less if the
              server's load requires it (`load`). Latency is ignored, since a model server slows down as it fills.
    trouble   failures or refusals with no answer between them. From the second one on, requests are sent one by one,
              after pauses that double with each round; requests in flight together are one round. A replica that
              refuses `refusals` rounds is assumed to refuse everything, and other replicas are used.
    health    a probe follows a failed request, or a silence while requests are in flight. `probe_misses` consecutive
              probes without a sign of life (such as an answer) suspend the replica, and so does a failed connection: it
              gets only probes until one succeeds.

A single refusal (another 4xx or a 3xx) is weak evidence: gateways lose a route for a moment, balancers use a server
that is not up yet, and firewalls reject a prompt. Trouble with refusals ends only with an answer, or its first piece,
to a request sent after the first refusal.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from adaptive_eval.endpoints.failures import HANDLING, FailureKind
from adaptive_eval.endpoints.load import ServerLoad, Steering
from adaptive_eval.endpoints.settings import DEFAULT, EndpointSettings
from adaptive_eval.endpoints.types import ReplicaStats


class ProbeTrouble(NamedTuple):
    """Why a probe found no sign of life."""

    reason: str
    is_silent: bool = False
    """Whether a connection was made, but no answer came."""


@dataclass(slots=True)
class FailureRounds:
    """Failures without an answer between them; those of requests in flight together are one round."""

    failures: int = 0
    rounds: int = 0
    since: float = inf
    """Time of the first of them."""
    counted_until: float = -inf
    """Requests sent before this time belong to a round that is already counted."""

    def add(self, sent_at: float, now: float) -> bool:
        """Count the failure of a request sent at this time; returns whether it starts a new round."""
        is_new = sent_at >= self.counted_until
        self.failures += 1
        if is_new:
            self.rounds += 1
            self.since, self.counted_until = min(self.since, now), now
        return is_new

    def end(self) -> None:
        """Count further failures from the start, after an answer."""
        self.failures, self.rounds, self.since = 0, 0, inf


class Replica:
    """One server of one model."""

    def __init__(
        self, url: str, configured: int, settings: EndpointSettings = DEFAULT, answers_per_request: int = 1
    ) -> None:
        self.url = url
        self._settings = settings
        self.in_flight = 0
        self.sent = 0
        self.peak_in_flight = 0
        """Maximum requests in flight since the server's load was last read."""
        # the window
        self.steering = Steering(configured, settings)
        """Its ceiling."""
        self.steering.limit(settings.first_window // answers_per_request)
        self.window = self.steering.ceiling
        self._answers = 0
        """Answers since it last grew by a step."""
        self._halved_at = -inf
        # trouble
        self._failing = FailureRounds()
        self._refusals = 0
        """Rounds of refusals among them."""
        self._paused_until = self._retry_after_until = -inf
        """End of the pause for its trouble, and of the server's Retry-After."""
        self.refuses = False
        """Whether it is assumed to refuse everything."""
        # health
        self.healthy = True
        self.trouble = ""
        """Why it is suspended or refuses."""
        self.reached = False
        """Whether its server exists: it has answered a probe or accepted a connection."""
        self.answered_at = self.alive_at = -inf
        """Time of the last answer, and of the last sign of life."""
        self.awake_since = -inf
        """Time of the first sign of life after a silence."""
        self.counted_at = -inf
        """Last time at which the server counted every request in flight (`load`)."""
        self._suspect = False
        self._misses = 0
        self._probed_at = -inf
        self._alive_before = -inf
        """The last sign of life before the first of these probes."""

    @property
    def is_usable(self) -> bool:
        """Whether it can take others' requests."""
        return self.healthy and not self.refuses

    @property
    def free_at(self) -> float:
        """When its pauses end."""
        return max(self._paused_until, self._retry_after_until)

    def can_take(self, now: float) -> bool:
        """Whether it can be sent a request."""
        return self.healthy and self.in_flight < self.window and now >= self.free_at

    @property
    def stats(self) -> ReplicaStats:
        return ReplicaStats(self.url, self.is_usable, self.in_flight, self.window, self.trouble)

    # -- requests ------------------------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """A request is sent."""
        self.in_flight += 1
        self.sent += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self._pause(now)

    def take_back(self) -> None:
        """A request has ended, with any outcome."""
        self.in_flight -= 1

    def on_accepted(self, sent_at: float) -> None:
        """The answer to a request sent at this time has begun."""
        if self._failing.failures and (not self._refusals or sent_at >= self._failing.since):
            self._end_trouble()

    def _end_trouble(self) -> None:
        self._failing.end()
        self._refusals = 0
        self._paused_until = -inf
        if self.refuses:
            self.refuses, self.trouble = False, ""

    def on_answer(self, sent_at: float, now: float) -> None:
        """A request sent at this time was answered."""
        if self.answered_at == -inf:  # while a server starts, its load may be unavailable
            self.steering.misses = 0
        self.answered_at = now
        self.on_alive(now)
        self.on_accepted(sent_at)
        ceiling = self.steering.ceiling
        if self.window < ceiling:
            self._answers += 1
            if self._answers >= self.window:
                self._answers = 0
                self.window = min(ceiling, self.window + max(1, ceiling // self._settings.window_steps))

    def on_failure(self, kind: FailureKind, sent_at: float, now: float, wait: float = 0.0) -> None:
        """A request sent at this time failed; `wait` is the server's Retry-After in seconds."""
        handling = HANDLING[kind]
        if handling.halves_window and sent_at >= self._halved_at and self._halved_at <= self.answered_at:
            self.window = max(1, self.window // 2)
            self._halved_at, self._answers = now, 0
        if handling.trouble:
            self._add_trouble(sent_at, now)
        if wait > 0.0:
            self._retry_after_until = max(self._retry_after_until, now + wait)
        if handling.health == "gone":
            self.healthy = False
        self._suspect |= handling.health != "fine"

    def on_refusal(self, reason: str, sent_at: float, now: float, *, is_certain: bool = False) -> None:
        """A request sent at this time was refused; `is_certain` if the refusal is known to be final."""
        if not self._refusals:
            self._failing = FailureRounds()
        self._refusals += self._add_trouble(sent_at, now)
        is_known = self.answered_at > -inf
        if is_certain or self._refusals >= self._settings.refusals // (1 if is_known else 2):
            self.refuses, self.trouble = True, reason

    def on_load(self, load: ServerLoad | None, in_flight: int, now: float) -> None:
        """Handle a reading of its server's load, with this many requests in flight there throughout; None if it
        failed."""
        is_whole = self.window == self.steering.ceiling
        is_warm = self.answered_at > -inf
        if load is None:
            self.steering.on_failure(now, is_warm=is_warm)
        else:
            self.steering.on_load(load, self.peak_in_flight, in_flight, now, is_warm=is_warm)
            if load.total >= in_flight:
                self.counted_at = now
        self.peak_in_flight = self.in_flight
        # a window that refusals have shrunk still grows by itself
        self.window = self.steering.ceiling if is_whole else min(self.window, self.steering.ceiling)

    def needs_reading(self, now: float) -> bool:
        """Whether to read its server's load now."""
        return self.healthy and self.steering.needs_reading(now, self.peak_in_flight > 0)

    def _add_trouble(self, sent_at: float, now: float) -> bool:
        """Count a failure or refusal; returns whether it starts a new round."""
        is_new = self._failing.add(sent_at, now)
        self._pause(now)
        return is_new

    def _pause(self, now: float) -> None:
        """Pause between requests while it is in trouble."""
        if self._failing.failures > 1:
            seconds = self._settings.backoff * 2.0 ** min(self._failing.rounds - 1, 16)
            self._paused_until = now + min(self._settings.longest_pause, seconds)

    # -- health --------------------------------------------------------------------------------------------------

    def on_alive(self, at: float) -> None:
        """Handle a sign of life."""
        if at - self.alive_at > self._settings.probe_misses * self._settings.probe_every:
            self.awake_since = at
        self.alive_at = max(self.alive_at, at)

    def on_suspicion(self) -> None:
        """Probe it soon, since it may be dead."""
        self._suspect = True

    def needs_probe(self, now: float) -> bool:
        """Whether to probe it now."""
        since = now - self._probed_at
        if self._suspect or self._misses or not self.healthy:
            return since >= self._settings.probe_again
        every = self._settings.probe_every
        return self.in_flight > 0 and since >= every and now - self.answered_at >= every

    def start_probe(self) -> None:
        """A probe begins."""
        self._suspect = False
        if not self._misses:
            self._alive_before = self.alive_at

    def on_probe(self, trouble: ProbeTrouble | None, now: float) -> int:
        """Handle the end of a probe; returns the number of consecutive misses if it is enough to suspend the
        replica."""
        self._probed_at = now
        self.reached |= trouble is None or trouble.is_silent
        if trouble is None:
            self.on_alive(now)
        if trouble is None or self.alive_at > self._alive_before:
            if not (self.healthy or self._refusals):
                self._end_trouble()
            self._misses, self.healthy = 0, True
            if not self.refuses:
                self.trouble = ""
            return 0
        self._misses += 1
        if self._misses < self._settings.probe_misses:
            return 0
        self.healthy, self.trouble = False, trouble.reason
        return self._misses
