"""The boundary of `optimal` if it gives nothing up: c t^(-kappa), which holds at any schedule of looks.

It certifies ties and gives p-values. It also decides if comparisons share an error, if models share seeds, or if the
spacing of looks is unknown (`Plan.deciding_rule`).

It spends its error on the way to its horizon. Under another horizon a comparison may spend only its remaining error,
given what its looks have shown (`scorio.sinf.exchange`). So calls between exact ties stay as rare as promised, however
often the horizon changes. A comparison with no error left is out of reach for good.

If models share their seeds, pairs that are judged trial by trial have a flatter boundary. The horizon is set for
independent models. Near copies judged by differences of the same trials have as much information after a tenth or a
twentieth of it. There c t^(-1/4) is highest, which was half the cost of such a gate. With c t^(-1/20), and a c that
keeps the same promise, the boundary is a third lower there, and a fifth higher at the horizon, which such pairs rarely
reach.

The boundary of a pair is chosen once, before the first look at trials that both models share, by a statistic that
favours neither (`shared_trials`). So each pair keeps one boundary, and its promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rules import check_confidence
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray

if TYPE_CHECKING:  # as in `rules`
    from adaptive_eval.core.evidence import Evidence
    from scorio.sinf.boundary import WangTsiatis
    from scorio.sinf.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Sequential:
    """c t^(-kappa) for information t >= start; c holds at any schedule of looks (Wang and Tsiatis 1987).

    Examples:
        >>> from adaptive_eval.core.sequential import Sequential
        >>> round(Sequential(0.95).critical, 2), round(Sequential(0.99).critical, 2)
        (2.11, 2.71)
    """

    by_pair: ClassVar[bool] = True

    confidence: float = 0.95
    start: float = 0.05
    kappa: float = 0.25

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        require(0.0 < self.start <= 1.0, "start must lie in (0, 1]", self.start)
        require(0.0 <= self.kappa <= 0.5, "kappa must lie in [0, 0.5]", self.kappa)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._shape().at(evidence.information, self.critical)

    @property
    def critical(self) -> float:
        """The constant c."""
        return self._shape().critical(2.0 * (1.0 - self.confidence))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return self._shape().p_value(sign * evidence.z, evidence.information, sides=1)

    def at_level(self, alpha: float) -> Sequential:
        return replace(self, confidence=1.0 - alpha)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedSequential:
        return ContinuedSequential(self, (SpentError(self.kappa, self.start, tuple(looks), now, delta),))

    def _shape(self) -> WangTsiatis:
        return _boundary_shape(self.kappa, self.start)


@lru_cache(maxsize=64)
def _boundary_shape(kappa: float, start: float) -> WangTsiatis:
    from scorio.sinf.boundary import WangTsiatis

    # slightly below, so that rounding in t never hides the first look
    return WangTsiatis(kappa, start * (1.0 - 1e-9))


@dataclass(frozen=True, eq=False)
class SpentError:
    """The error exchanges of all pairs at one change of the horizon, for each statistic that is followed. Each is
    computed when it is first needed: with many models that takes seconds."""

    kappa: float
    start: float
    looks: tuple[Evidence, ...]
    """Those under the old horizon."""
    now: Evidence
    """The last of them under the new one."""
    delta: float

    @cached_property
    def two_sided(self) -> Exchange:
        return self._exchange([look.z for look in self.looks], 2)

    @cached_property
    def first(self) -> Exchange:
        return self._exchange([look.z for look in self.looks], 1)

    @cached_property
    def second(self) -> Exchange:
        return self._exchange([-look.z for look in self.looks], 1)

    @cached_property
    def below(self) -> Exchange | None:
        """For (delta - d)/s, which certifies that the difference is below delta."""
        return self._exchange([margins(look, self.delta)[0] for look in self.looks], 1) if self.delta > 0.0 else None

    @cached_property
    def above(self) -> Exchange | None:
        return self._exchange([margins(look, self.delta)[1] for look in self.looks], 1) if self.delta > 0.0 else None

    def _exchange(self, values: Sequence[FloatArray], sides: int) -> Exchange:
        from scorio.sinf.exchange import LookValues, exchange

        values_at_looks = [LookValues(z, look.information) for z, look in zip(values, self.looks, strict=True)]
        return exchange(values_at_looks, self.now.information, self.kappa, self.start, sides)


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedSequential:
    """`Sequential` after changes of the horizon; heights are expressed as those of the first horizon."""

    rule: Sequential
    spent_errors: tuple[SpentError, ...]

    @property
    def confidence(self) -> float:
        return self.rule.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        height = self.critical(evidence)
        for spent in self.spent_errors:
            height = spent.two_sided.new_height(height)
        return self._at(evidence, height)

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        height = np.maximum(sign * evidence.z, 0.0) * reached_information(evidence) ** self.rule.kappa
        for spent in reversed(self.spent_errors):
            height = (spent.first if sign > 0 else spent.second).old_height(height)
        return self.rule._shape().p_value(height, 1.0, sides=1)

    def at_level(self, alpha: float) -> ContinuedSequential:
        return replace(self, rule=self.rule.at_level(alpha))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedSequential:
        spent = SpentError(self.rule.kappa, 0.0, tuple(looks), now, delta)
        return replace(self, spent_errors=(*self.spent_errors, spent))

    def margin_boundary(self, evidence: Evidence, sign: int) -> FloatArray:
        """The boundary on (delta - sign d)/s of each pair, each sign a separate test; infinite without delta."""
        height = self.critical(evidence)
        for spent in self.spent_errors:
            side = spent.below if sign > 0 else spent.above
            if side is None:
                return np.full_like(height, np.inf)
            height = side.new_height(height)
        return self._at(evidence, height)

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        return np.asarray(np.isinf(self.boundary(evidence)))

    def critical(self, evidence: Evidence) -> FloatArray:
        """The constant of the first horizon."""
        return np.full(len(evidence.z), self.rule.critical)

    def _at(self, evidence: Evidence, height: FloatArray) -> FloatArray:
        return np.asarray(height * reached_information(evidence) ** -self.rule.kappa)


def margins(evidence: Evidence, delta: float) -> tuple[FloatArray, FloatArray]:
    """(delta - d)/s and (delta + d)/s; 0 if the pair is unknown, and large if nothing is uncertain."""
    sigma = np.where(np.isfinite(evidence.sigma), np.maximum(evidence.sigma, 1e-12), np.inf)
    return (delta - evidence.difference) / sigma, (delta + evidence.difference) / sigma


def reached_information(evidence: Evidence) -> FloatArray:
    """The share of each pair's information at the horizon that has been reached, above 0 and at most 1."""
    return np.clip(evidence.information, np.finfo(float).tiny, 1.0)


KAPPA_BY_TRIAL = 0.05
"""The power of t for pairs judged trial by trial (benchmarks/coupling.md)."""


@dataclass(frozen=True)
class Coupled:
    """`Sequential` for models that share their seeds, before and after changes of the horizon.

    Examples:
        >>> from adaptive_eval.core.sequential import Coupled, Sequential
        >>> rule = Coupled.from_rule(Sequential(0.95))
        >>> round(rule.independent.critical, 2), round(rule.by_trial.critical, 2)
        (2.11, 2.48)
    """

    by_trial: Sequential | ContinuedSequential
    """The rule for pairs judged trial by trial."""
    independent: Sequential | ContinuedSequential
    """The rule for all other pairs."""

    @classmethod
    def from_rule(cls, rule: Sequential) -> Coupled:
        """`rule`, with a flatter boundary for pairs judged trial by trial."""
        return cls(replace(rule, kappa=KAPPA_BY_TRIAL), rule)

    @property
    def by_pair(self) -> bool:
        return isinstance(self.independent, Sequential)

    @property
    def confidence(self) -> float:
        return self.independent.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._of_each("boundary", evidence)

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return self._of_each("p_value", evidence, sign)

    def at_level(self, alpha: float) -> Coupled:
        return Coupled(self.by_trial.at_level(alpha), self.independent.at_level(alpha))

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> Coupled:
        return Coupled(*(rule.extended(looks, now, delta) for rule in (self.by_trial, self.independent)))

    def __getattr__(self, name: str) -> Any:
        if name not in ("margin_boundary", "exhausted") or isinstance(self.independent, Sequential):
            raise AttributeError(name)
        return partial(self._of_each, name)

    def _of_each(self, method: str, evidence: Evidence, *more: float) -> NDArray[Any]:
        """For each pair the result of this method of its own rule."""
        others: NDArray[Any] = getattr(self.independent, method)(evidence, *more)
        if evidence.paired is None or not evidence.paired.any():
            return others
        return np.where(evidence.paired, getattr(self.by_trial, method)(evidence, *more), others)
