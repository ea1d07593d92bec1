"""Whether it is a request that fails, and not its server: others are answered meanwhile, and it fails every time.

Some requests fail for ever: a server that cannot parse what a seed makes its model say gives a 500 at every attempt.
A failure counts for this where others were answered since the last one of the same kind. `share` being that of the
failed among the attempts that these needed, chance alone has a request fail so often with the probability
share ** failures; below `CHANCE` it is the request. Where no other is asked, a tiny request stands for one, except
under caps, which count every token.
"""

from adaptive_eval.endpoints.failures import FailureKind
from adaptive_eval.endpoints.traffic import Traffic

CHANCE = 1e-6
OWN_KINDS = frozenset({FailureKind.SERVER_ERROR, FailureKind.BAD_RESPONSE, FailureKind.RESET})
"""Failures that a request may cause. An attempt that took too long is none: its answer may be a long one."""


class LoneFailures:
    """The failures of one request beside what became of others meanwhile."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._kind: FailureKind | None = None
        self._repeated = False
        self._answered = self._failed = 0
        self._seen = (0, 0)
        self.failures = 0
        """Those since each of which others were answered."""

    def judge(self, kind: FailureKind) -> bool | None:
        """Take one more failure, and say whether it is certain that the request itself fails; None where no other was
        answered since the last failure of this kind."""
        return self.is_certain if self._add(kind) else None

    def _add(self, kind: FailureKind) -> bool:
        if kind not in OWN_KINDS:
            return False
        traffic, self._repeated = self._traffic, kind is self._kind
        answered, failed = traffic.answered - self._seen[0], traffic.failed_before - self._seen[1]
        self._seen = (traffic.answered, traffic.failed_before)
        if not self._repeated:
            self._kind, self._answered, self._failed = kind, 0, 0
            self._count(0)
            return False
        self._failed += failed
        if answered == 0 or not traffic.has_answered:
            return False
        self._answered += answered
        self._count(self.failures + 1)
        return True

    @property
    def is_certain(self) -> bool:
        """Whether it is this request that fails."""
        share = (self._failed + 1) / (self._answered + self._failed + 2)
        return self.failures > 0 and share**self.failures <= CHANCE

    @property
    def lacks_another(self) -> bool:
        """Its server has said twice in the same way that it fails, and no other request was answered since."""
        return (
            self._repeated
            and self._kind is not FailureKind.RESET
            and self._traffic.has_answered
            and self._seen[0] == self._traffic.answered
        )

    def close(self) -> None:
        """The request is over."""
        self._count(0)

    def _count(self, failures: int) -> None:
        """Set the number, and keep count of the requests that have any."""
        self._traffic.aside += (failures > 0) - (self.failures > 0)
        self.failures = failures
