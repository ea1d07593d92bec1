"""The rule `optimal`: calling and giving up computed together, for what a call is worth.

What was given up has paid for what is called: up to its horizon, a pair that it gives up is never called, whatever
comes. Its promise holds at any schedule of looks that keeps to what it was told of their spacing. A share of each
pair's error is kept for later horizons: with it a pair that was given up can be taken up again when the horizon is
raised, and called as rarely as promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

RESERVE = 0.1
"""The share of a pair's error that is kept for later horizons. A single look at a finished design keeps none."""
MOST_LEFT = 0.9
"""Of a pair's error after a change of the horizon, so that nothing is called by that alone."""
SUREST = 0.999999
"""The grid is too coarse for rarer errors."""
WORTH = 3.0
LEAST_WORTH, MOST_WORTH = 0.1, 50.0
"""Below, hardly anything is looked at twice; above, hardly anything is given up."""
FUTILITY = 0.55
"""The least chance of being settled that is worth the whole way to the horizon; less, in proportion, where a call is
worth more than it is by default. A pair that has less rests, and may go on later; that costs none of its error."""


class Spacing(NamedTuple):
    """How a pair's looks lie, in information, 1 being the whole way to the horizon."""

    stride: float = inf
    """How far a look may be from the one before, as a share of the information at that one."""
    step: float = 0.0
    """How much further, whatever is there."""
    finest: float = 0.0
    """How far looks lie apart at least, in the mean; 0 is for a pair that may be looked at all the time."""


@dataclass(frozen=True, slots=True)
class Optimal:
    """Calls and gives up so that a call, of which `worth` is paid for, costs least (see `scorio.sinf.optimal`).

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
    """None: that of the plan (`Plan.deciding_rule`); by itself it holds at any looks."""

    def __post_init__(self) -> None:
        rule = f"confidence must lie above 0.5 and be at most {SUREST:g}"
        require(0.5 < self.confidence <= SUREST, rule, self.confidence)
        require(0.0 < self.start <= 1.0, "start must lie in (0, 1]", self.start)
        rule = f"worth must lie between {LEAST_WORTH:g} and {MOST_WORTH:g}"
        require(LEAST_WORTH <= self.worth <= MOST_WORTH, rule, self.worth)
        stride, step, finest = self._looks
        rule = "stride and step must not be negative, nor both 0"
        require(min(stride, step) >= 0.0 < max(stride, step), rule, (stride, step))
        require(0.0 <= finest < 1.0, "finest must lie in [0, 1)", finest)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self._computed().boundary(evidence.information)

    def gives_up(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Whether each pair ends here without a call, for good."""
        return self._computed().gives_up(evidence.z, evidence.information)

    def chance_left(self, evidence: Evidence) -> FloatArray:
        """For each pair, the chance that it would be called from here on, were it an exact tie."""
        return self._computed().chance_left(evidence.z, evidence.information)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedOptimal:
        """The rule under a new horizon: each pair has the reserve, and the error left to it unless it was given up."""
        given_up = np.any([self.gives_up(look) for look in looks], axis=0)
        left = np.where(given_up, 0.0, self.chance_left(looks[-1])) + self.reserve
        return _continued(self, left, now, self.ties.extended(looks, now, delta))

    @property
    def futility(self) -> float:
        """The least chance of being settled that is worth the whole way to the horizon."""
        return FUTILITY * min(WORTH / self.worth, 1.0)

    @property
    def ties(self) -> Sequential:
        """The rule that certifies ties and gives the p-values of all pairs: it gives nothing up, so that its boundary
        does not count on that."""
        return Sequential(self.confidence, self.start)

    @property
    def reserve(self) -> float:
        """The error of a pair, were it an exact tie, that is kept for later horizons."""
        return RESERVE * 2.0 * (1.0 - self.confidence) if self.start < 1.0 else 0.0

    def _computed(self) -> Stopping:
        from scorio.sinf.optimal import optimal_stopping

        # a hair below, so that rounding in t never hides the first look
        start = self.start * (1.0 - 1e-9) if self.start < 1.0 else 1.0
        alpha = 2.0 * (1.0 - self.confidence) - self.reserve
        return optimal_stopping(alpha, start, self.worth, *self._looks)

    @property
    def _looks(self) -> Spacing:
        return Spacing() if self.spacing is None else self.spacing


AT_ANY_LOOKS = (
    "A comparison is called when |z| reaches c t^(-1/4), where t is the share of the information at the horizon of "
    "{horizon}, and c is such that the promise holds at whatever looks are taken from the first one on."
)
"""What is said of it where it gives nothing up (`Plan.deciding_rule`)."""

OPTIMAL = RuleEntry(
    name="optimal",
    make=Optimal,
    gist="holds at any number of looks, and gives up early",
    says="A comparison is called, or given up, where backward induction says that further trials would cost more than "
    "they are worth: a call is worth {worth} times what it costs to take a comparison to {horizon}.",
    promise=HOLDS_AT_ANY_LOOK,
    correctable=True,
    gives_up=True,
    surest=SUREST,
    spends_error=True,
    options=(
        Option(
            name="worth",
            type="factor",
            says="What a call is worth to `optimal`, in whole ways of a comparison to its horizon, between 0.1 and 50: "
            "more costs more and calls more; default 3.",
            example=3.0,
            default="3",
        ),
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class ContinuedOptimal:
    """`optimal` after changes of the horizon: `Sequential`, by what each pair has left of its error."""

    rule: Optimal
    height: FloatArray
    """Of each pair, what |z| t**kappa must reach; infinite where nothing is left."""
    error_left: FloatArray
    """The chance of a call that each pair had, were it an exact tie."""
    ties: ContinuedSequential
    """What certifies ties within delta, and gives p-values, carried over for itself."""

    @property
    def confidence(self) -> float:
        return self.rule.confidence

    def boundary(self, evidence: Evidence) -> FloatArray:
        return np.asarray(self.height * reached_information(evidence) ** -self.rule.ties.kappa)

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> ContinuedOptimal:
        """The rule under a new horizon, without calls unseen between two looks: no more is spent than there was."""
        from scorio.sinf.continuation import crossing_from

        t, able = reached_information(looks[-1]), np.isfinite(self.height)
        height = np.where(able, self.height, 1.0)
        chance = crossing_from(height, looks[-1].z * np.sqrt(t), t, self.rule.ties.kappa, 2)
        return _continued(self.rule, np.where(able, chance, 0.0), now, self.ties.extended(looks, now, delta))

    def remaining_error(self, evidence: Evidence) -> FloatArray:
        return self.error_left

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        return np.asarray(np.isinf(self.height))

    def tied(self, evidence: Evidence, delta: float) -> NDArray[np.bool_]:
        return self.ties.tied(evidence, delta)


def _continued(rule: Optimal, left: FloatArray, now: Evidence, ties: ContinuedSequential) -> ContinuedOptimal:
    from scorio.sinf.exchange import height_for

    left = np.minimum(left, MOST_LEFT)
    height = height_for(left, now.z, reached_information(now), rule.ties.kappa)
    return ContinuedOptimal(rule, height, np.where(np.isfinite(height), left, 0.0), ties)
