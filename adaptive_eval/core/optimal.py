"""The rule `optimal`: calling and giving up are computed together, by what a call is worth.

Pairs that are given up pay for those that are called: until its horizon, a pair that was given up is never called. The
promise holds at any schedule of looks with the spacing that the rule was given. A share of each pair's error is kept
for later horizons: with it, a pair that was given up can be taken up again when the horizon is raised, and is called as
rarely as promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.entries import Option
from adaptive_eval.core.rules import HOLDS_AT_ANY_LOOK, RuleEntry
from adaptive_eval.core.sequential import ContinuedSequential, Sequential, reached_information
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray

if TYPE_CHECKING:
    from adaptive_eval.core.evidence import Evidence
    from scorio.sinf.optimal import Stopping

RESERVE = 0.02
"""The share of a pair's error kept for later horizons. A single look at a finished design keeps none."""
UNSPENT = 0.2
"""What resting leaves of a pair's error, as a share of it, where that error and the first look are small
(`Optimal.unspent`)."""
MOST_LEFT = 0.9
"""The most error a pair may have left after a change of the horizon, so that the change alone calls nothing."""
MAX_CONFIDENCE = 0.999999
"""The highest confidence: the grid is too coarse for rarer errors."""
WORTH = 3.0
MIN_WORTH, MAX_WORTH = 0.1, 50.0
"""Below, hardly any pair is looked at twice; above, hardly any is given up."""
FUTILITY = 0.55
"""The least chance of being settled that is worth the whole way to the horizon; proportionally less if a call is worth
more than by default. A pair below it rests, and may go on later at no cost in error."""


class Spacing(NamedTuple):
    """The spacing of a pair's looks, in information; 1 is the whole way to the horizon."""

    stride: float = inf
    """Greatest distance of a look from the previous one, as a share of the information at that one."""
    step: float = 0.0
    """Constant added to that distance."""
    finest: float = 0.0
    """Least mean distance between looks; 0 if a pair may be looked at continuously."""

    def allows(self, other: Spacing | None) -> bool:
        """Whether looks with the other spacing keep to this one; None is any."""
        if other is None:
            return False
        return other.stride <= self.stride and other.step <= self.step and other.finest >= self.finest


@dataclass(frozen=True, slots=True)
class Optimal:
    """Calls and gives up at the lowest cost, given that a call pays `worth` (see `scorio.sinf.optimal`).

    Examples:
        >>> from adaptive_eval.core import Bench, Optimal, Plan
        >>> plan = Plan(Bench(models=3, questions=30, weights=[0.0, 1.0]), rule=Optimal(0.99))
        >>> plan.rule.spacing, plan.deciding_rule.spacing.step
        (None, 0.025)
    """

    by_pair: ClassVar[bool] = True

    confidence: float = 0.95
    start: float = 0.05
    worth: float = WORTH
    spacing: Spacing | None = None
    """None: that of the plan (`Plan.deciding_rule`); a rule used alone then holds at any looks."""
    rests: bool = False
    """Whether pairs below `futility` rest (`Plan.deciding_rule`). The boundary then spends what that leaves."""

    def __post_init__(self) -> None:
        rule = f"confidence must lie above 0.5 and be at most {MAX_CONFIDENCE:g}"
        require(0.5 < self.confidence <= MAX_CONFIDENCE, rule, self.confidence)
        require(0.0 < self.start <= 1.0, "start must lie in (0, 1]", self.start)
        rule = f"worth must lie between {MIN_WORTH:g} and {MAX_WORTH:g}"
        require(MIN_WORTH <= self.worth <= MAX_WORTH, rule, self.worth)
        stride, step, finest = self._look_spacing
        rule = "stride and step must not be negative, nor both 0"
        require(min(stride, step) >= 0.0 < max(stride, step), rule, (stride, step))
        require(0.0 <= finest < 1.0, "finest must lie in [0, 1)", finest)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._stopping().boundary(evidence.information)

    def gives_up(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Whether each pair ends here for good without a call."""
        return self._stopping().gives_up(evidence.z, evidence.information)

    def at_level(self, alpha: float) -> Optimal:
        """The rule at another one-sided error probability."""
        return replace(self, confidence=1.0 - alpha)

    def chance_left(self, evidence: Evidence) -> FloatArray:
        """For each pair, the chance of a later call if it were an exact tie."""
        return self._stopping().chance_left(evidence.z, evidence.information)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedOptimal:
        """The rule under a new horizon: each pair has the reserve, plus its remaining error unless it was given up.

        A pair that rested goes on now, so it has not left what the boundary spends of the error of resting pairs.
        """
        given_up = np.any([self.gives_up(look) for look in looks], axis=0)
        left = np.where(given_up, 0.0, self.chance_left(looks[-1]) / (1.0 + self.unspent)) + self.reserve
        return _continued(self, left, now, self.ties.extended(looks, now, delta))

    @property
    def futility(self) -> float:
        """The least chance of being settled that is worth the whole way to the horizon."""
        return FUTILITY * self._keenness

    @property
    def ties(self) -> Sequential:
        """The rule that certifies ties and gives the p-values of all pairs; its boundary does not rely on giving up."""
        return Sequential(self.confidence, self.start)

    @property
    def reserve(self) -> float:
        """A pair's error, if it were an exact tie, that is kept for later horizons."""
        return RESERVE * self._alpha if self.start < 1.0 else 0.0

    @property
    def unspent(self) -> float:
        """The share of a pair's error that resting leaves unspent; the boundary spends that much more.

        It falls with `futility`; with `start`, since nothing rests before the first look, and all error of a single
        look is spent there; and with the error alpha that is allowed: the lower the boundary, the sooner a pair is
        called, and the less resting keeps it from. At alpha = 0.5 nothing is left. Calibrated by whole runs at
        confidences of 80 to 99% (benchmarks/ties.md).
        """
        rare = max(1.0 - 2.0 * self._alpha, 0.0)
        return UNSPENT * self._keenness * (1.0 - self.start) * rare if self.rests else 0.0

    def _stopping(self) -> Stopping:
        from scorio.sinf.optimal import optimal_stopping

        # slightly below, so that rounding in t never hides the first look
        start = self.start * (1.0 - 1e-9) if self.start < 1.0 else 1.0
        alpha = (self._alpha - self.reserve) * (1.0 + self.unspent)
        return optimal_stopping(alpha, start, self.worth, *self._look_spacing)

    @property
    def _alpha(self) -> float:
        """The error that is allowed: the chance that an exact tie is called."""
        return 2.0 * (1.0 - self.confidence)

    @property
    def _keenness(self) -> float:
        """How much of the usual resting there is: less if a call is worth more."""
        return min(WORTH / self.worth, 1.0)

    @property
    def _look_spacing(self) -> Spacing:
        return Spacing() if self.spacing is None else self.spacing


AT_ANY_LOOKS = (
    "A comparison is decided when |z| reaches c t^(-1/4). t is the share of the information of {horizon}; c is such "
    "that the promise holds at any looks from the first one on."
)
"""The rule's description in plans where it gives nothing up (`Plan.deciding_rule`)."""

OPTIMAL = RuleEntry(
    name="optimal",
    make=Optimal,
    summary="holds at any number of looks, and gives up early",
    description="A comparison is decided when |z| reaches the boundary. It is given up when its chance of a decision, "
    "times {worth} (stopping.options.worth), is less than the unused share of {horizon}.",
    promise=HOLDS_AT_ANY_LOOK,
    correctable=True,
    gives_up=True,
    max_confidence=MAX_CONFIDENCE,
    options=(
        Option(
            name="worth",
            type="factor",
            description="Value of a decided comparison to `optimal`, as a multiple of the cost of taking one to its "
            "horizon, from 0.1 to 50: more costs more and decides more; default 3.",
            example=3.0,
            default="3",
        ),
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedOptimal:
    """`optimal` after changes of the horizon: `Sequential`, at the remaining error of each pair."""

    rule: Optimal
    height: FloatArray
    """What |z| t**kappa of each pair must reach; infinite if no error is left."""
    error_left: FloatArray
    """The chance of a call that each pair had, if it were an exact tie."""
    ties: ContinuedSequential
    """The rule that certifies ties within delta and gives p-values, continued separately."""

    @property
    def confidence(self) -> float:
        return self.rule.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return np.asarray(self.height * reached_information(evidence) ** -self.rule.ties.kappa)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedOptimal:
        """The rule under a new horizon, without calls between two looks: no error is spent beyond what there was."""
        from scorio.sinf.continuation import crossing_from

        t, has_error = reached_information(looks[-1]), np.isfinite(self.height)
        height = np.where(has_error, self.height, 1.0)
        chance = crossing_from(height[:, None], looks[-1].z * np.sqrt(t), t, self.rule.ties.kappa, 2)[:, 0]
        return _continued(self.rule, np.where(has_error, chance, 0.0), now, self.ties.extended(looks, now, delta))

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        return np.asarray(np.isinf(self.height))

    def margin_boundary(self, evidence: Evidence, sign: int) -> FloatArray:
        return self.ties.margin_boundary(evidence, sign)


def _continued(rule: Optimal, error_left: FloatArray, now: Evidence, ties: ContinuedSequential) -> ContinuedOptimal:
    from scorio.sinf.exchange import height_for

    error_left = np.minimum(error_left, MOST_LEFT)
    height = height_for(error_left, now.z, reached_information(now), rule.ties.kappa)
    return ContinuedOptimal(rule, height, np.where(np.isfinite(height), error_left, 0.0), ties)
