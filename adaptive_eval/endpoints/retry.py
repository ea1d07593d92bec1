"""When a failed request is sent again, and when it is given up.

It is given up after `attempts` failures, but not before the model has failed it for `patience` seconds: servers
restart in minutes, and a few quick failures in a row happen to some request on every long run. Refusals (429) are
waited out for as long as one answer may take. A connection that could not be made counts for nothing here: the
replica is set aside, and whether one is left is decided by its health. A request over its time limit is sent again
`attempts` times; then it is an answer, which its caller makes of it.

Waits grow exponentially with full jitter. A Retry-After holds for the replica that sent it (`ReplicaSet.pause`): the
request only comes apart from the others that were told the same, and may go to another replica.
"""

from collections import Counter
from collections.abc import Callable

import tenacity

from adaptive_eval.endpoints.failures import Failure, Kind
from adaptive_eval.endpoints.types import Limits

SLOWEST = 30.0
APART = 0.5

_AT_ONCE = frozenset({Kind.UNREACHABLE, Kind.REPLICA_LOST, Kind.TIMED_OUT})
"""Nothing is gained by waiting: the next attempt goes elsewhere, or waits for a replica's health."""
_UNCOUNTED = frozenset({Kind.UNREACHABLE, Kind.RATE_LIMITED, Kind.TIMED_OUT})

_backoff = tenacity.wait_random_exponential(multiplier=1.0, max=SLOWEST)
_apart = tenacity.wait_random(0.0, APART)


class Persistence:
    """The decisions for one request that has failed once, in tenacity's terms."""

    def __init__(self, limits: Limits, timeouts: int, longest_refusal: float, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._timeouts = timeouts
        self._longest_refusal = longest_refusal
        self._clock = clock
        self._began = clock()
        self._counts: Counter[Kind] = Counter()

    def stop(self, state: tenacity.RetryCallState) -> bool:
        """Whether the request is given up; called once for each failure."""
        failure = _failure(state)
        self._counts[failure.kind] += 1
        waited = self._clock() - self._began
        if failure.kind is Kind.TIMED_OUT:
            return self._counts[Kind.TIMED_OUT] >= self._timeouts
        if failure.kind is Kind.RATE_LIMITED:
            return waited + (failure.retry_after or 0.0) > self._longest_refusal
        counted = sum(count for kind, count in self._counts.items() if kind not in _UNCOUNTED)
        return counted >= self._limits.attempts and waited >= self._limits.patience

    def wait(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next attempt."""
        failure = _failure(state)
        if failure.kind is Kind.RATE_LIMITED and failure.retry_after:
            return _apart(state)
        return 0.0 if failure.kind in _AT_ONCE else _backoff(state)


def _failure(state: tenacity.RetryCallState) -> Failure:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, Failure)
    return error
