"""The rule where models share their seeds: pairs that are judged trial by trial have a flatter boundary.

The horizon is set for models that are independent. Near copies that are judged by the differences of the same trials
know as much after a tenth or a twentieth of it, and there c t^(-1/4) is at its highest: of what such a gate cost, half
was that. With c t^(-1/20), and a c that keeps the same promise, it is a third lower there, and a fifth higher at the
horizon, which such pairs hardly reach.

Which of the two holds for a pair is decided once, before its first look at what both made of the same trials, and by
what favours neither of the two (`shared_trials`): so each pair has one boundary, and its promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.sequential import ContinuedSequential, Sequential
from scorio.moments import FloatArray

if TYPE_CHECKING:  # as in `rules`
    from adaptive_eval.core.evidence import Evidence

KAPPA_BY_TRIAL = 0.05
"""The power of t, for pairs that are judged trial by trial (benchmarks/coupling.md)."""


Own = TypeVar("Own", Sequential, ContinuedSequential, covariant=True)
Told = TypeVar("Told", FloatArray, NDArray[np.bool_])


class _ByPair(Protocol[Own]):
    """Answers on all pairs, each by the pair's own rule."""

    __slots__ = ()

    @property
    def by_trial(self) -> Own:
        """For pairs that are judged trial by trial."""

    @property
    def apart(self) -> Own:
        """For all other pairs."""

    @property
    def confidence(self) -> float:
        return self.apart.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._combine(evidence, lambda rule: rule.boundary(evidence))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return self._combine(evidence, lambda rule: rule.p_value(evidence, sign))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedCoupled:
        return ContinuedCoupled(*(one.extended(looks, now, delta) for one in (self.by_trial, self.apart)))

    def _combine(self, evidence: Evidence, tell: Callable[[Own], Told]) -> Told:
        by_trial = evidence.paired
        if by_trial is None or not by_trial.any():
            return tell(self.apart)
        return np.where(by_trial, tell(self.by_trial), tell(self.apart))


@dataclass(frozen=True, slots=True)
class CoupledSequential(_ByPair[Sequential]):
    """`Sequential` for models that share their seeds.

    Examples:
        >>> from adaptive_eval.core.coupled_rule import CoupledSequential
        >>> from adaptive_eval.core.sequential import Sequential
        >>> rule = CoupledSequential(Sequential(0.95))
        >>> round(rule.apart.critical, 2), round(rule.by_trial.critical, 2)
        (2.11, 2.48)
    """

    by_pair: ClassVar[bool] = True

    apart: Sequential

    @property
    def by_trial(self) -> Sequential:
        return replace(self.apart, kappa=KAPPA_BY_TRIAL)

    def at_level(self, alpha: float) -> CoupledSequential:
        return CoupledSequential(self.apart.at_level(alpha))


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedCoupled(_ByPair[ContinuedSequential]):
    """`CoupledSequential` after changes of the horizon: what a pair has left of its error is what its own boundary
    left."""

    by_trial: ContinuedSequential
    apart: ContinuedSequential

    def at_level(self, alpha: float) -> ContinuedCoupled:
        return ContinuedCoupled(self.by_trial.at_level(alpha), self.apart.at_level(alpha))

    def tied(self, evidence: Evidence, delta: float) -> NDArray[np.bool_]:
        """Ties that each pair's own boundary certifies."""
        return self._combine(evidence, lambda rule: rule.tied(evidence, delta))

    def remaining_error(self, evidence: Evidence) -> FloatArray:
        return self._combine(evidence, lambda rule: rule.remaining_error(evidence))

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        return self._combine(evidence, lambda rule: rule.exhausted(evidence))
