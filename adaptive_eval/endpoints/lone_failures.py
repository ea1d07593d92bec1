"""Decides whether a request itself fails rather than its server: it fails every time, while others are answered.

Some requests always fail: a server that cannot parse what a seed makes its model say returns 500 at every attempt. A
failure counts towards this if other requests were answered since the last one of the same kind. If `share` of the
attempts that these needed failed, a request fails this often by chance with probability share ** failures; below
`CHANCE` the request itself is to blame. If no other request is asked, a tiny one takes their place. Caps count every
token, and a tiny request as a lost answer: under them one is asked only when a server that fails half of its attempts
would fail the request so often in a row with probability `CHANCE`, and before the request would be given up.
"""

from adaptive_eval.endpoints.failures import HANDLING, FailureKind
from adaptive_eval.endpoints.traffic import Traffic

CHANCE = 1e-6


def can_blame(kind: FailureKind | None, traffic: Traffic) -> bool:
    """Whether a tiny request can show that a request itself causes this kind of failure, in a model that answers."""
    may_cause = kind is not None and HANDLING[kind].own and kind is not FailureKind.RESET
    return may_cause and traffic.has_answered


class LoneFailures:
    """Failures of one request, compared with the outcomes of others."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._kind: FailureKind | None = None
        self._repeated = False
        self._answered = self._failed = 0
        self._seen = (0, 0)
        self.failures = 0
        """Failures after each of which others were answered."""
        self._alone = 0
        """Further failures of this kind in a row, with no other request answered between."""
        self.is_proven = False
        """Whether a tiny request was answered since it began to fail in this way."""

    def judge(self, kind: FailureKind) -> bool | None:
        """Add a failure, and return whether the request itself is certain to fail; None if no other request was
        answered since its last failure of this kind."""
        return self.is_certain if self._add(kind) or self.is_proven else None

    def _add(self, kind: FailureKind) -> bool:
        if not HANDLING[kind].own:  # such as a time-out: its answer may be a long one
            return False
        traffic, self._repeated = self._traffic, kind is self._kind
        answered, failed = traffic.answered - self._seen[0], traffic.failed_before - self._seen[1]
        self._seen = (traffic.answered, traffic.failed_before)
        if not self._repeated:
            self._kind, self._answered, self._failed, self._alone, self.is_proven = kind, 0, 0, 0, False
            self._count(0)
            return False
        self._failed += failed
        self._alone = 0 if answered else self._alone + 1
        if answered == 0 or not traffic.has_answered:
            return False
        self._answered += answered
        self._count(self.failures + 1)
        return True

    @property
    def is_certain(self) -> bool:
        """Whether this request itself fails."""
        share = (self._failed + 1) / (self._answered + self._failed + 2)
        return self.is_proven or (self.failures > 0 and share**self.failures <= CHANCE)

    @property
    def is_beyond_chance(self) -> bool:
        """Whether a server that fails half of its attempts would hardly fail this request so often in a row."""
        return 0.5**self._alone <= CHANCE

    @property
    def lacks_another(self) -> bool:
        """Whether its server has failed twice in the same way, with no other request answered since."""
        return self._repeated and can_blame(self._kind, self._traffic) and self._seen[0] == self._traffic.answered

    def close(self) -> None:
        """Stop counting, since the request is over."""
        self._count(0)

    def _count(self, failures: int) -> None:
        """Set the number of failures, and update the count of requests with any."""
        self._traffic.aside += (failures > 0) - (self.failures > 0)
        self.failures = failures
