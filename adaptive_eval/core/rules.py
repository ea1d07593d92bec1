"""Rules: what |z| must reach for a comparison to be called, given how much is known of it.

A rule is one method, `boundary`; those that can be corrected for many comparisons also give a p-value of one look,
whose running minimum is valid at any time, and know how to work `at_level` of another error probability.

| rule            | boundary on |z|                        | promise                                         |
|-----------------|----------------------------------------|-------------------------------------------------|
| `zscore`        | constant                               | as published: ties are called in 25-49% of runs |
| `intervals`     | the credible intervals do not overlap  | as published                                    |
| `sequential`    | c t^(-kappa)                           | holds at whatever looks, up to the horizon      |
| `anytime`       | normal mixture                         | holds at whatever looks, without a horizon      |
| `expected_loss` | loss of the leader's choice < epsilon  | bounded regret                                  |

What holds, per pair: a wrong order with probability at most 1 - confidence, a call between exact ties at most twice
that.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray
from scorio.sinf.boundary import Mixture, WangTsiatis
from scorio.sinf.compare import expected_loss


class Rule(Protocol):
    """Decides a comparison."""

    def boundary(self, evidence: Evidence) -> FloatArray:
        """What |z| must reach for each pair to be called; infinite where no call is allowed."""
        ...


@runtime_checkable
class Correctable(Rule, Protocol):
    """A rule with an error level, which can be shared among many comparisons."""

    confidence: float

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        """One look's p-value against "the first is not better" (sign 1) or "the second is not better" (sign -1)."""
        ...

    def at_level(self, alpha: float) -> "Correctable":
        """The same rule at one-sided error probability alpha; its p-values are the same."""
        ...


@dataclass(frozen=True, slots=True)
class ZScore:
    """A constant, checked at every look, as published."""

    threshold: float = 1.645

    def __post_init__(self) -> None:
        require(self.threshold > 0.0, "threshold must be positive", self.threshold)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return np.full_like(evidence.z, self.threshold)


@dataclass(frozen=True, slots=True)
class Intervals:
    """The two credible intervals do not overlap: |d| >= z_(1+confidence)/2 (sigma_1 + sigma_2)."""

    confidence: float = 0.95

    def __post_init__(self) -> None:
        _check_confidence(self.confidence)

    def boundary(self, evidence: Evidence) -> FloatArray:
        together = evidence.sigma_first + evidence.sigma_second
        with np.errstate(invalid="ignore"):
            boundary = ndtri((1.0 + self.confidence) / 2.0) * together / evidence.sigma
        return np.where(np.isfinite(boundary), boundary, np.inf)


@dataclass(frozen=True, slots=True)
class Sequential:
    """c t^(-kappa) for information t >= start; c holds at any schedule of looks (Wang and Tsiatis 1987)."""

    confidence: float = 0.95
    start: float = 0.05
    kappa: float = 0.25

    def __post_init__(self) -> None:
        _check_confidence(self.confidence)
        require(0.0 < self.start <= 1.0, "start must lie in (0, 1]", self.start)
        require(0.0 <= self.kappa <= 0.5, "kappa must lie in [0, 0.5]", self.kappa)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._shape().at(evidence.information, self.critical)

    @property
    def critical(self) -> float:
        """The constant c."""
        return self._shape().critical(2.0 * (1.0 - self.confidence))

    def p_at_horizon(self, height: FloatArray) -> FloatArray:
        """The one-sided p-value of |z| t**kappa."""
        return self._shape().p_value(height, 1.0, sides=1)

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        return self._shape().p_value(sign * evidence.z, evidence.information, sides=1)

    def at_level(self, alpha: float) -> "Sequential":
        return replace(self, confidence=1.0 - alpha)

    def _shape(self) -> WangTsiatis:
        # a hair below, so that rounding in t never hides the first look
        return WangTsiatis(self.kappa, self.start * (1.0 - 1e-9))


@dataclass(frozen=True, slots=True)
class Anytime:
    """The normal-mixture boundary, tightest at information `optimum`; it needs no horizon, and pays for that."""

    confidence: float = 0.95
    start: float = 0.05
    optimum: float = 0.5

    def __post_init__(self) -> None:
        _check_confidence(self.confidence)
        require(0.0 <= self.start <= 1.0, "start must lie in [0, 1]", self.start)
        require(self.optimum > 0.0, "optimum must be positive", self.optimum)

    def boundary(self, evidence: Evidence) -> FloatArray:
        early = evidence.information < self.start * (1.0 - 1e-9)
        return np.where(early, np.inf, self._shape().at(np.maximum(evidence.information, 1e-12)))

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        early = evidence.information < self.start * (1.0 - 1e-9)
        return np.where(early, 1.0, self._shape().p_value(sign * evidence.z, evidence.information, sides=1))

    def at_level(self, alpha: float) -> "Anytime":
        # of the same mixture, whose p-values know no level: another optimum makes up for what the level changes
        tuned = Mixture(2.0 * alpha, self.optimum)
        return replace(self, confidence=1.0 - alpha, optimum=self.optimum * float(tuned.r(1.0) / self._shape().r(1.0)))

    def _shape(self) -> Mixture:
        return Mixture(2.0 * (1.0 - self.confidence), self.optimum)


@dataclass(frozen=True, slots=True)
class ExpectedLoss:
    """Called when choosing the one ahead loses less than epsilon on average: s [phi(z) - z (1 - Phi(z))] < epsilon."""

    epsilon: float = 0.0025

    def __post_init__(self) -> None:
        require(self.epsilon > 0.0, "epsilon must be positive", self.epsilon)

    def boundary(self, evidence: Evidence) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            allowed = np.where(np.isfinite(evidence.sigma), self.epsilon / evidence.sigma, 0.0)
        return _z_at_loss(allowed)


@dataclass(frozen=True, slots=True)
class Precision:
    """The rule of the objective `precision`: called when z_(1+confidence)/2 sigma <= half_width, whatever z is.

    It is put as a boundary on |z| (against a far away reference) so that power and trials needed follow as for all.
    """

    half_width: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        require(self.half_width > 0.0, "half_width must be positive", self.half_width)
        _check_confidence(self.confidence)

    def boundary(self, evidence: Evidence) -> FloatArray:
        known = np.isfinite(evidence.sigma)
        too_wide_by = ndtri((1.0 + self.confidence) / 2.0) * np.where(known, evidence.sigma, 0.0) / self.half_width
        return np.where(known, np.abs(evidence.z) * too_wide_by, np.inf)


def _check_confidence(confidence: float) -> None:
    require(0.5 <= confidence < 1.0, "confidence must lie in [0.5, 1)", confidence)


@lru_cache(maxsize=1)
def _loss_table() -> PchipInterpolator:
    """z over ln(expected loss at sigma 1), which falls with z."""
    z = np.linspace(0.0, 8.0, 801)
    return PchipInterpolator(np.log(expected_loss(z, np.ones_like(z)))[::-1], z[::-1])


def _z_at_loss(loss: FloatArray) -> FloatArray:
    """The z at which the unit expected loss phi(z) - z (1 - Phi(z)) has this value; infinite for 0."""
    table = _loss_table()
    lowest, highest = table.x[0], table.x[-1]
    with np.errstate(divide="ignore"):
        logs = np.log(loss)
    z = np.where(logs < highest, table(np.clip(logs, lowest, highest)), 0.0)
    return np.where(logs < lowest, np.inf, z)
