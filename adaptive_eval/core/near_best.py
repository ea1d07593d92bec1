"""The rule `near_best`: the model ahead is good enough once it is shown to be less than `margin` behind.

For each pair it tests whether the model ahead is worse than the other by `margin` or more, by the boundary
c t^(-1/20) on (|d| + margin)/s. It holds at any schedule of looks up to the horizon (Wang and Tsiatis 1987), and is
nearly flat, since most rivals of a leader are far behind it and can be dismissed at the first look. Expressed as a
boundary on |z|, it is lower by margin/s: of two equal models one is called sooner or later, whichever is ahead, and
either is a good pick.

So a call means less than a call of `optimal`: not that the model ahead is better, but that choosing it loses less than
the margin. Tiers and letters, which do mean that models differ, therefore use the boundary without the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rules import RuleEntry
from adaptive_eval.core.sequential import ContinuedSequential, Sequential
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray

if TYPE_CHECKING:
    from adaptive_eval.core.evidence import Evidence

MARGIN = 0.02
"""The default of `stopping.delta` for this rule: two points in a hundred."""
KAPPA = 0.05


def slack_in_sigmas(margin: float, evidence: Evidence) -> FloatArray:
    """The margin in standard errors of each pair; 0 if nothing is known of it."""
    with np.errstate(divide="ignore"):
        return np.where(np.isfinite(evidence.sigma), margin / evidence.sigma, 0.0)


@dataclass(frozen=True, slots=True)
class NearBest:
    """Called when the model ahead is less than `margin` behind, at this one-sided confidence.

    Examples:
        >>> from adaptive_eval.core import Bench, Best, NearBest, Plan
        >>> bench = Bench(models=3, questions=30, weights=[0.0, 1.0])
        >>> Plan(bench, objective=Best(), rule=NearBest(margin=0.01)).rule.margin
        0.01
    """

    by_pair: ClassVar[bool] = True

    margin: float = MARGIN
    confidence: float = 0.95
    start: float = 0.05

    def __post_init__(self) -> None:
        require(self.margin > 0.0, "margin must be positive", self.margin)
        require(self.test.confidence > 0.5, "confidence must lie above 0.5", self.confidence)

    @property
    def test(self) -> Sequential:
        """The rule that the margin is added to; it decides which models differ."""
        return Sequential(self.confidence, self.start, KAPPA)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return lowered(self.strict_boundary(evidence), evidence, self.margin)

    def strict_boundary(self, evidence: Evidence) -> FloatArray:
        """The |z| at which the model ahead is better."""
        return self.test.boundary(evidence)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedNearBest:
        """The rule under a new horizon: each direction of a pair has the error that its own test has left."""
        return ContinuedNearBest(self.margin, self.confidence, self.test.extended(looks, now, self.margin))


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedNearBest:
    """`near_best` after changes of the horizon."""

    margin: float
    confidence: float
    test: ContinuedSequential

    def boundary(self, evidence: Evidence) -> FloatArray:
        below, above = (self.test.margin_boundary(evidence, sign) for sign in (1, -1))
        return lowered(np.where(evidence.difference >= 0.0, above, below), evidence, self.margin)

    def strict_boundary(self, evidence: Evidence) -> FloatArray:
        """The |z| at which the model ahead is better."""
        return self.test.boundary(evidence)

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        below, above = (self.test.margin_boundary(evidence, sign) for sign in (1, -1))
        return np.asarray(np.isinf(below) & np.isinf(above))

    def margin_boundary(self, evidence: Evidence, sign: int) -> FloatArray:
        """No pair is ever tied: models within the margin are called."""
        return np.full_like(evidence.z, np.inf)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedNearBest:
        return ContinuedNearBest(self.margin, self.confidence, self.test.extended(looks, now, self.margin))


def lowered(boundary: FloatArray, evidence: Evidence, margin: float) -> FloatArray:
    """A boundary on (|d| + margin)/s as one on |z|; infinite if nothing is known of a pair."""
    is_known = np.isfinite(evidence.sigma)
    with np.errstate(invalid="ignore"):
        return np.where(
            is_known & np.isfinite(boundary), np.maximum(boundary - slack_in_sigmas(margin, evidence), 0.0), np.inf
        )


def _near_best(confidence: float, start: float, delta: float = MARGIN) -> NearBest:
    return NearBest(delta, confidence, start)


NEAR_BEST = RuleEntry(
    name="near_best",
    make=_near_best,
    summary="the model ahead is less than `delta` behind; the default for `best` and `top_k`",
    description="A comparison is decided when the model ahead is shown to be less than {delta} behind the other: "
    "(|d| + delta)/s reaches c t^(-1/20). t is the share of the information of {horizon}; c is such that the promise "
    "holds at any looks from the first one on.",
    promise="{whose}: at most {wrong} risk that the model named ahead is worse than the other by {delta} or more, "
    "however often you look. It does not say that the model ahead is better.",
    correctable=False,
    only_for=("best", "top_k"),
    instead="it does not show that one model is better than another: use optimal",
    lenient=True,
)
