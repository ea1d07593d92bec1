"""The rule where models share their seeds: pairs that are judged trial by trial have a flatter boundary.

The horizon is set for models that are independent. Near copies judged by differences of the same trials have as much
information after a tenth or a twentieth of it, where c t^(-1/4) is at its highest: that was half the cost of such a
gate. With c t^(-1/20), and a c that keeps the same promise, the boundary is a third lower there, and a fifth higher at
the horizon, which such pairs rarely reach.

Which boundary a pair has is decided once, before the first look at trials that both models share, by a statistic that
favours neither (`shared_trials`): so each pair keeps one boundary, and its promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.sequential import ContinuedSequential, Sequential
from scorio.moments import FloatArray

if TYPE_CHECKING:  # as in `rules`
    from adaptive_eval.core.evidence import Evidence

KAPPA_BY_TRIAL = 0.05
"""The power of t for pairs judged trial by trial (benchmarks/coupling.md)."""


Own = TypeVar("Own", Sequential, ContinuedSequential)
Told = TypeVar("Told", FloatArray, NDArray[np.bool_])


@dataclass(frozen=True)
class _ByPair(Generic[Own]):
    """Applies to each pair its own rule."""

    by_trial: Own
    """The rule for pairs judged trial by trial."""
    apart: Own
    """The rule for all other pairs."""

    @property
    def confidence(self) -> float:
        return self.apart.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._combine(evidence, lambda rule: rule.boundary(evidence))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return self._combine(evidence, lambda rule: rule.p_value(evidence, sign))

    def at_level(self, alpha: float) -> Self:
        return replace(self, by_trial=self.by_trial.at_level(alpha), apart=self.apart.at_level(alpha))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedCoupled:
        return ContinuedCoupled(*(one.extended(looks, now, delta) for one in (self.by_trial, self.apart)))

    def _combine(self, evidence: Evidence, tell: Callable[[Own], Told]) -> Told:
        by_trial = evidence.paired
        if by_trial is None or not by_trial.any():
            return tell(self.apart)
        return np.where(by_trial, tell(self.by_trial), tell(self.apart))


class CoupledSequential(_ByPair[Sequential]):
    """`Sequential` for models that share their seeds.

    Examples:
        >>> from adaptive_eval.core.coupled_rule import CoupledSequential
        >>> from adaptive_eval.core.sequential import Sequential
        >>> rule = CoupledSequential.from_rule(Sequential(0.95))
        >>> round(rule.apart.critical, 2), round(rule.by_trial.critical, 2)
        (2.11, 2.48)
    """

    by_pair: ClassVar[bool] = True

    @classmethod
    def from_rule(cls, apart: Sequential) -> CoupledSequential:
        """`apart`, with a flatter boundary for pairs judged trial by trial."""
        return cls(replace(apart, kappa=KAPPA_BY_TRIAL), apart)


class ContinuedCoupled(_ByPair[ContinuedSequential]):
    """`CoupledSequential` after changes of the horizon; each pair has the error that its own boundary has left."""

    def tied(self, evidence: Evidence, delta: float) -> NDArray[np.bool_]:
        """Ties certified by each pair's own boundary."""
        return self._combine(evidence, lambda rule: rule.tied(evidence, delta))

    def remaining_error(self, evidence: Evidence) -> FloatArray:
        return self._combine(evidence, lambda rule: rule.remaining_error(evidence))

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        return self._combine(evidence, lambda rule: rule.exhausted(evidence))
