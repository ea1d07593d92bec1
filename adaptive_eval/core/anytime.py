"""The rule `anytime`, which needs no horizon: its boundary stays the same when the horizon changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from adaptive_eval.core.rules import HOLDS_AT_ANY_LOOK, RuleEntry, check_confidence
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray

if TYPE_CHECKING:  # as in `rules`
    from adaptive_eval.core.evidence import Evidence
    from scorio.sinf.boundary import Mixture


@dataclass(frozen=True, slots=True)
class Anytime:
    """The normal-mixture boundary, tightest at information `optimum`; needing no horizon costs it some power."""

    confidence: float = 0.95
    start: float = 0.05
    optimum: float = 0.5
    ratio: float | FloatArray = field(default=1.0, compare=False, repr=False)
    """How many times larger a pair's information is under the first horizon, under which it still counts."""

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        require(0.0 <= self.start <= 1.0, "start must lie in [0, 1]", self.start)
        require(self.optimum > 0.0, "optimum must be positive", self.optimum)

    @property
    def by_pair(self) -> bool:
        return isinstance(self.ratio, float)

    def boundary(self, evidence: Evidence) -> FloatArray:
        information = evidence.information * self.ratio
        early = information < self.start * (1.0 - 1e-9)
        return np.where(early, np.inf, self._shape().at(np.maximum(information, 1e-12)))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        information = evidence.information * self.ratio
        early = information < self.start * (1.0 - 1e-9)
        return np.where(early, 1.0, self._shape().p_value(sign * evidence.z, information, sides=1))

    def at_level(self, alpha: float) -> Anytime:
        from scorio.sinf.boundary import Mixture

        # the same mixture, whose p-values do not depend on the level: `optimum` moves to make up for the new level
        tuned = Mixture(2.0 * alpha, self.optimum)
        return replace(self, confidence=1.0 - alpha, optimum=self.optimum * float(tuned.r(1.0) / self._shape().r(1.0)))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> Anytime:
        return replace(self, ratio=self.ratio * _information_ratio(looks[-1], now))

    def _shape(self) -> Mixture:
        from scorio.sinf.boundary import Mixture

        return Mixture(2.0 * (1.0 - self.confidence), self.optimum)


ANYTIME = RuleEntry(
    name="anytime",
    make=Anytime,
    summary="holds at any number of looks and any trials.max",
    description="A comparison is decided when |z| reaches a normal-mixture boundary, for any trials.max.",
    promise=HOLDS_AT_ANY_LOOK,
    correctable=True,
)


def _information_ratio(before: Evidence, now: Evidence) -> FloatArray:
    """How many times larger the information is under the old horizon than under the new one."""
    measured = (now.information > 0.0) & (before.information > 0.0)
    ratio = before.information / np.where(measured, now.information, 1.0)
    return np.where(measured, ratio, np.median(ratio[measured]) if measured.any() else 1.0)
