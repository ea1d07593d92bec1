"""When a failed request is sent again, and when it is given up.

A request is given up after `attempts` failures, but not before it has failed for `retry_for` seconds: servers restart
in minutes, and every long run has requests with a few quick failures in a row. Rate limits (429) and service tiers
without capacity are waited out for as long as one answer may take. A failure to connect does not count: the replica is
suspended, and probes decide whether another is available. A request over its time limit is sent again `attempts` times;
then its caller turns it into an answer. A request that is refused `refusals` times is given up, too.

A server that fails everything is sent one request at a time, and each would need its own `attempts` failures. So a
request is also given up once the whole model has failed as often and as long, without an answer in between, and nothing
is in flight. From then on no request waits for its turn at the server: one is sent after each pause, and the others
fail at once.

Some requests fail at every attempt while others are answered: for example, a server that cannot parse the output for
one seed returns 500 each time. Such a request is given up on its own, and has no answer. A failure counts towards this
if other requests were answered since the last failure of the same kind. If `share` of their attempts failed, a request
fails this often by chance with probability share ** failures; below `chance` the request itself is at fault. If no
other request is answered meanwhile, a tiny one is sent after `attempts` consecutive failures (`endpoint`): if it is
answered, and the request fails once more, the request itself is at fault.

Waits grow exponentially with full jitter. A Retry-After holds for the replica that sent it: its requests are only
spread a little, and may go to another replica.
"""

from collections import Counter
from collections.abc import Awaitable, Callable

import tenacity

from adaptive_eval.endpoints.failures import HANDLING, Failure, FailureKind, Refused
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import Limits


def believed_wait(failure: Failure, max_wait: float, settings: EndpointSettings) -> float:
    """Seconds to pause a replica as its Retry-After asks; 0 if that exceeds `max_wait`, the wait of one request."""
    return min(failure.retry_after, settings.longest_wait) if failure.retry_after <= max_wait else 0.0


class Retries:
    """Failures of one request, which decide how it is retried."""

    def __init__(
        self,
        limits: Limits,
        longest_wait: float,
        settings: EndpointSettings,
        clock: Callable[[], float],
        traffic: Traffic,
    ) -> None:
        """`longest_wait`: seconds for which rate limits are waited out."""
        self._retry_for = limits.retry_for
        self.timeouts = settings.attempts
        """Timeouts after which the request is given up."""
        self.refusals = settings.refusals
        """Refusals after which the request is given up."""
        self._longest_wait = longest_wait
        self._settings = settings
        self._clock = clock
        self._started_at = clock()
        self._counts: Counter[FailureKind] = Counter()
        self._traffic = traffic
        # failures of one kind in a row, which the request itself may cause
        self._kind: FailureKind | None = None
        self._in_a_row = 0
        self._among_others = 0
        """Failures since whose predecessor other requests were answered."""
        self._is_among_others = False
        """Whether the last failure is one of them."""
        self._at_first = self._at_last = (0, 0)
        """Answered requests, and their failed attempts, at the first and the last failure."""
        self.is_proven = False
        """Whether a tiny request was answered meanwhile."""

    def retrying(self, sleep: Callable[[float], Awaitable[None]]) -> tenacity.AsyncRetrying:
        """Tenacity's loop, for a request that has failed once; it raises the last failure."""
        failed = tenacity.retry_if_exception_type(Failure)
        return tenacity.AsyncRetrying(
            retry=failed, stop=lambda state: self.give_up(_failure(state)), wait=self._wait, sleep=sleep, reraise=True
        )

    def give_up(self, failure: Failure) -> bool:
        """Count a failure, and return whether the request is given up."""
        kind, waited = failure.kind, self._clock() - self._started_at
        self._counts[kind] += 1
        self._count_in_a_row(kind)
        if HANDLING[kind].waited_out:
            return waited + failure.wait > self._longest_wait
        if isinstance(failure, Refused):
            return failure.believed or self._counts[kind] >= self.refusals
        if kind is FailureKind.TIMED_OUT:
            return self._counts[kind] >= self.timeouts
        if self.is_request_at_fault or self._is_among_others:
            return self.is_request_at_fault
        if self.failures >= self._settings.attempts and waited >= self._retry_for:
            return True
        return self.has_all_failed and not self.is_proven

    @property
    def has_all_failed(self) -> bool:
        """Whether the whole model has failed as often and as long as one request may."""
        return self._traffic.has_failed(self._settings.attempts, self._clock() - self._retry_for)

    @property
    def failures(self) -> int:
        """Failures that count towards the attempts after which the request is given up."""
        return sum(count for kind, count in self._counts.items() if HANDLING[kind].counts)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next attempt."""
        failure = _failure(state)
        backoff, longest_backoff = self._settings.backoff, self._settings.longest_backoff
        if failure.kind is FailureKind.TIER_FULL:  # no other pause keeps requests from a server that is not in trouble
            longest_backoff = self._settings.longest_wait
        if HANDLING[failure.kind].at_once:
            return 0.0
        if failure.kind is FailureKind.REFUSED:
            return min(longest_backoff, backoff * 2.0 ** self._counts[FailureKind.REFUSED])
        if failure.wait:
            return tenacity.wait_random(0.0, backoff)(state)
        return tenacity.wait_random_exponential(multiplier=backoff, max=longest_backoff)(state)

    # -- a request that fails alone ------------------------------------------------------------------------------

    def _count_in_a_row(self, kind: FailureKind) -> None:
        self._is_among_others = False
        if not HANDLING[kind].request_may_cause:  # such as a time-out: its answer may be a long one
            return
        now = (self._traffic.answered, self._traffic.failed_before)
        if kind is not self._kind:
            self.close()
            self._kind, self._in_a_row, self._at_first, self.is_proven = kind, 0, now, False
        elif now[0] > self._at_last[0]:
            self._is_among_others = True
            self._traffic.stuck_requests += not self._among_others
            self._among_others += 1
        self._in_a_row += 1
        self._at_last = now

    @property
    def is_request_at_fault(self) -> bool:
        """Whether the failures are caused by the request itself, not by its server."""
        if self._kind is None or self._counts[self._kind] < self._settings.attempts:
            return False
        answered, failed = (last - first for last, first in zip(self._at_last, self._at_first, strict=True))
        share = (failed + 1) / (answered + failed + 2)
        return self.is_proven or (self._among_others > 0 and share**self._among_others <= self._settings.chance)

    @property
    def needs_proof(self) -> bool:
        """Whether only another request can show if the server answers, after this many failures."""
        is_enough = self._in_a_row >= self._settings.attempts and not self.is_proven
        are_none_answered = not self._is_among_others and self._traffic.answered == self._at_last[0]
        return is_enough and are_none_answered and can_blame_request(self._kind, self._traffic)

    def close(self) -> None:
        """Stop counting, since the request is over."""
        self._traffic.stuck_requests -= self._among_others > 0
        self._among_others = 0


def can_blame_request(kind: FailureKind | None, traffic: Traffic) -> bool:
    """Whether a tiny request can show that the request itself causes this kind of failure, if the model answers."""
    may_cause = kind is not None and HANDLING[kind].request_may_cause and kind is not FailureKind.RESET
    return may_cause and traffic.has_answered


def _failure(state: tenacity.RetryCallState) -> Failure:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, Failure)
    return error
