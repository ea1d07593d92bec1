"""The rule `sequential` where models share their seeds: pairs that are judged trial by trial have a flatter boundary.

The horizon is set for models that are independent. Near copies that are judged by the differences of the same trials
know as much after a tenth or a twentieth of it, and there c t^(-1/4) is at its highest: of what such a gate cost, half
was that. With c t^(-1/20), and a c that keeps the same promise, it is a third lower there, and a fifth higher at the
horizon, which such pairs hardly reach.

Which of the two holds for a pair is decided once, before its first look at what both made of the same trials, and by
what favours neither of the two (`shared_trials`): so each pair has one boundary, and its promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.sequential import ContinuedSequential, Sequential
from scorio.moments import FloatArray

if TYPE_CHECKING:  # as in `rules`
    from adaptive_eval.core.evidence import Evidence

KAPPA_BY_TRIAL = 0.05
"""The power of t, for pairs that are judged trial by trial (benchmarks/coupled_runs.md)."""


@dataclass(frozen=True, slots=True)
class CoupledSequential:
    """`sequential` for models that share their seeds.

    Examples:
        >>> from adaptive_eval.core.coupled_rule import CoupledSequential
        >>> from adaptive_eval.core.sequential import Sequential
        >>> rule = CoupledSequential(Sequential(0.95))
        >>> round(rule.apart.critical, 2), round(rule.by_trial.critical, 2)
        (2.11, 2.48)
    """

    by_pair: ClassVar[bool] = True

    apart: Sequential
    """For all other pairs."""

    @property
    def by_trial(self) -> Sequential:
        """For pairs that are judged trial by trial."""
        return replace(self.apart, kappa=KAPPA_BY_TRIAL)

    @property
    def confidence(self) -> float:
        return self.apart.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return _of_each(evidence, self.by_trial.boundary(evidence), self.apart.boundary(evidence))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return _of_each(evidence, self.by_trial.p_value(evidence, sign), self.apart.p_value(evidence, sign))

    def at_level(self, alpha: float) -> CoupledSequential:
        return CoupledSequential(self.apart.at_level(alpha))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedCoupled:
        return ContinuedCoupled(*(one.extended(looks, now, delta) for one in (self.by_trial, self.apart)))


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedCoupled:
    """The same after changes of the horizon: what a pair has left of its error is what its own boundary left."""

    by_trial: ContinuedSequential
    apart: ContinuedSequential

    @property
    def confidence(self) -> float:
        return self.apart.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return _of_each(evidence, self.by_trial.boundary(evidence), self.apart.boundary(evidence))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return _of_each(evidence, self.by_trial.p_value(evidence, sign), self.apart.p_value(evidence, sign))

    def at_level(self, alpha: float) -> ContinuedCoupled:
        return ContinuedCoupled(self.by_trial.at_level(alpha), self.apart.at_level(alpha))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedCoupled:
        return ContinuedCoupled(*(one.extended(looks, now, delta) for one in (self.by_trial, self.apart)))

    def tied(self, evidence: Evidence, delta: float) -> NDArray[np.bool_]:
        """As each pair's own boundary certifies it."""
        return _of_each(evidence, self.by_trial.tied(evidence, delta), self.apart.tied(evidence, delta)).astype(bool)

    def left(self, evidence: Evidence) -> FloatArray:
        return _of_each(evidence, self.by_trial.left(evidence), self.apart.left(evidence))

    def spent(self, evidence: Evidence) -> NDArray[np.bool_]:
        return _of_each(evidence, self.by_trial.spent(evidence), self.apart.spent(evidence)).astype(bool)


def _of_each(
    evidence: Evidence, by_trial: FloatArray | NDArray[np.bool_], apart: FloatArray | NDArray[np.bool_]
) -> FloatArray:
    """Of each pair, what holds for it."""
    return np.asarray(apart if evidence.paired is None else np.where(evidence.paired, by_trial, apart))
