"""Rules: the boundary that |z| must reach for a comparison to be called, given its evidence.

A rule is one method, `boundary`; those that can be corrected for many comparisons also give a p-value of one look,
whose running minimum is valid at any time, and know how to work `at_level` of another error probability. A rule that
continues in another form when the horizon changes after looks has `extended`. Each rule is followed by its entry, which
`registry` lists. `optimal` and `near_best` have files of their own; the others are here.

| rule            | boundary on |z|                        | promise                                         |
|-----------------|----------------------------------------|-------------------------------------------------|
| `published`     | constant, and nothing latches          | as published: none at repeated looks            |
| `anytime`       | normal mixture                         | holds at whatever looks, without a horizon      |
| `optimal`       | computed with giving up (`optimal`)    | holds at whatever looks, up to the horizon      |
| `near_best`     | lower by the margin (`near_best`)      | the model ahead is less than the margin behind  |

What holds, per pair: a wrong order with probability at most 1 - confidence, a call between exact ties at most twice
that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.entries import Entry
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray

if TYPE_CHECKING:  # so that the schema, which only lists the rules, does not load scipy
    from adaptive_eval.core.evidence import Estimator, Evidence
    from scorio.sinf.boundary import Mixture


class Rule(Protocol):
    """Decides a comparison."""

    def boundary(self, evidence: Evidence) -> FloatArray:
        """The value that |z| must reach for each pair to be called; infinite where no call is allowed."""


def calls(
    rule: Rule, scenarios: Sequence[Evidence], boundaries: Sequence[FloatArray] | None = None
) -> NDArray[np.int8]:
    """The sign of each pair's call (0: none), if all readings of the evidence agree on it."""
    if boundaries is None:
        boundaries = [rule.boundary(scenario) for scenario in scenarios]
    signs = [
        np.where(np.abs(scenario.z) >= bound, np.sign(scenario.z), 0).astype(np.int8)
        for scenario, bound in zip(scenarios, boundaries, strict=True)
    ]
    if len(signs) == 1:
        return signs[0]
    return np.where(np.all(np.stack(signs) == signs[0], axis=0), signs[0], 0).astype(np.int8)


@runtime_checkable
class Correctable(Rule, Protocol):
    """A rule with an error level, which can be shared among many comparisons."""

    confidence: float

    def p_value(self, evidence: Evidence, sign: int) -> FloatArray:
        """One look's p-value against "the first is not better" (sign 1) or "the second is not better" (sign -1)."""

    def at_level(self, alpha: float) -> Correctable:
        """This rule at one-sided error probability alpha; its p-values are the same."""


@runtime_checkable
class Extendable(Rule, Protocol):
    """A rule that takes another form when the horizon changes; any other continues unchanged."""

    def extended(self, looks: Sequence[Evidence], now: Evidence, delta: float) -> Rule:
        """The rule under the new horizon: `looks` were taken under the old one, `now` is the last of them under the
        new, and `delta` is the indifference zone."""


class ErrorLeft(Rule, Protocol):
    """A rule under a changed horizon, which limits each comparison to its unspent error."""

    def exhausted(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Pairs that have used up their error and can no longer be called."""

    def margin_boundary(self, evidence: Evidence, sign: int) -> FloatArray:
        """The value that (delta - sign d)/s of each pair must reach for a tie, which takes both signs and has error of
        its own; infinite if none is left."""


class GivingUp(Rule, Protocol):
    """A rule that gives comparisons up; these are never called, and so pay for its calls."""

    def gives_up(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Whether each pair ends here for good without a call."""

    @property
    def rests(self) -> bool:
        """Whether pairs with too small a chance of a decision get no trials for now."""

    @property
    def futility(self) -> float:
        """The value of `Judging.futility` under this rule."""

    @property
    def ties(self) -> Correctable:
        """A rule that gives nothing up: it certifies ties within delta and gives the p-values of all pairs."""


class Lenient(Rule, Protocol):
    """A rule that calls the model ahead if it is less than a margin behind: not all that it calls is better."""

    margin: float

    def strict_boundary(self, evidence: Evidence) -> FloatArray:
        """The |z| at which the model ahead is better."""


def is_lenient(rule: Rule) -> TypeGuard[Lenient]:
    """Whether a rule is a `Lenient`, without `isinstance` as below."""
    return hasattr(rule, "strict_boundary")


def judges_by_pair(rule: object) -> bool:
    """Whether a rule declares, by `by_pair = True`, that its verdict on a pair depends on that pair's evidence alone:
    pairs of several runs can then be judged at once."""
    return bool(getattr(rule, "by_pair", False))


def is_giving_up(rule: Rule) -> TypeGuard[GivingUp]:
    """Whether a rule is a `GivingUp`. On protocols `isinstance` takes a tenth of a look, and from Python 3.12 overlooks
    what a rule delegates."""
    return hasattr(rule, "gives_up") and hasattr(rule, "ties")


def has_error_left(rule: Rule) -> TypeGuard[ErrorLeft]:
    """Whether a rule is an `ErrorLeft`, without `isinstance` as above."""
    return hasattr(rule, "exhausted") and hasattr(rule, "margin_boundary")


def is_correctable(rule: Rule) -> TypeGuard[Correctable]:
    """Whether a rule is a `Correctable`, without the cost of `isinstance`."""
    return hasattr(rule, "confidence") and hasattr(rule, "p_value") and hasattr(rule, "at_level")


def tie_boundary(rule: Rule, evidence: Evidence, boundary: FloatArray | None = None) -> FloatArray:
    """The boundary on |z| that certifies a tie: the given one, unless that relies on giving up or on a margin, or ties
    have error of their own, whose stricter side then counts for both."""
    if is_giving_up(rule):
        return rule.ties.boundary(evidence)
    if is_lenient(rule):
        return rule.strict_boundary(evidence)
    if has_error_left(rule):
        return np.maximum(*(rule.margin_boundary(evidence, sign) for sign in (1, -1)))
    return rule.boundary(evidence) if boundary is None else boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEntry(Entry[Rule]):
    """A rule that can be configured; it may ask for `confidence`, and for `start`, the information at the first look.

    Its sentences may contain {horizon}, as in "80 trials a question", {wrong} and {tie}, the probabilities of a wrong
    order and of a call between exact ties, and {whose}, the comparisons for which these hold.
    """

    promise: str
    """One sentence: how often it is wrong."""
    correctable: bool
    """Whether it, or what certifies its ties, is `Correctable`, so that `familywise` may share its error."""
    caution: str = ""
    """Warning to the reader of a result."""
    in_short: str = ""
    """The caution in one line, shown with the result; empty if its promise holds at `confidence`."""
    latching: bool = True
    """Whether a call stands whatever later looks show."""
    estimator: Estimator = "average"
    """What it compares."""
    gives_up: bool = False
    """Whether it is a `GivingUp`."""
    lenient: bool = False
    """Whether it is a `Lenient`, with the margin `stopping.delta`: its calls do not say that a model is better."""
    max_confidence: float = 1.0
    """The highest confidence for which it can be computed."""
    only_for: tuple[str, ...] = ()
    """Objectives that its promise is about; empty: any."""
    instead: str = ""
    """For other objectives: why it cannot be used, and what to choose."""


TIES_NAMED = "24 to 51%"
"""Measured for runs that compare two copies of one model, with a look after every round (benchmarks/published.md)."""
MEASURED_PEEKING = (
    f"With a look after every round, z > 1.645 named a winner between two equal models in {TIES_NAMED} of runs "
    "(measured), with a single look in 9%. The rule optimal promises at most 10%, at any number of looks."
)
PEEKING = "its confidence is that of a single look, but the run looked after every round. " + MEASURED_PEEKING
HOLDS_AT_ANY_LOOK = (
    "{whose}: at most {wrong} risk of a wrong order, {tie} risk of naming a winner between equal models, however often "
    "you look."
)


@dataclass(frozen=True, slots=True)
class ZScore:
    """A constant boundary, applied at every look."""

    by_pair: ClassVar[bool] = True

    threshold: float = 1.645

    def __post_init__(self) -> None:
        require(self.threshold > 0.0, "threshold must be positive", self.threshold)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return np.full_like(evidence.z, self.threshold)


def _published(confidence: float) -> ZScore:
    return ZScore(_quantile(confidence))


PUBLISHED = RuleEntry(
    name="published",
    make=_published,
    summary="z of Bayes@N, judged anew at every look; no promise for repeated looks",
    description="As published with Bayes@N (Hariri et al., arXiv 2510.04265, 2.5 and 2.9): two models differ where "
    "z = |mu - mu'| / sqrt(sigma^2 + sigma'^2) of their posteriors under the uniform prior exceeds the normal "
    "quantile of the confidence at the latest look. A later look may reverse a decision.",
    promise="None for repeated looks: the confidence is that of a single look, at a number of trials fixed "
    "beforehand. " + MEASURED_PEEKING,
    correctable=False,
    caution=PEEKING
    + " It compares Bayes@N, which lies nearer to the middle of the scale, more so for models with fewer trials",
    in_short=f"none for repeated looks: {TIES_NAMED} of runs name a winner between two equal models (measured), the "
    "rule optimal at most 10%",
    latching=False,
    estimator="bayes",
)


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


@dataclass(frozen=True, slots=True)
class Precision:
    """The rule of the objective `precision`: called when the 95% interval is at most so wide, whatever z is and
    whatever the unknown grades are.

    Written as a boundary on |z| (against a distant reference), so that power and trials needed follow as for any rule.
    """

    by_pair: ClassVar[bool] = True

    half_width: float

    def __post_init__(self) -> None:
        require(self.half_width > 0.0, "half_width must be positive", self.half_width)

    def boundary(self, evidence: Evidence) -> FloatArray:
        room = np.full_like(evidence.z, self.half_width) - (0.0 if evidence.unknown is None else evidence.unknown)
        can_fit = np.isfinite(evidence.sigma) & (room > 0.0)
        excess = _quantile(0.975) * np.where(can_fit, evidence.sigma, 0.0) / np.where(can_fit, room, 1.0)
        return np.where(can_fit, np.abs(evidence.z) * excess, np.inf)


PRECISION = RuleEntry(
    name="precision",
    make=Precision,
    summary="the rule of the objective precision",
    description="A score is done when its interval is narrow enough.",
    promise="Each 95% interval contains the score on these questions in 95% of runs.",
    correctable=False,
)


def _quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))


def check_confidence(confidence: float) -> None:
    require(0.5 <= confidence < 1.0, "confidence must lie in [0.5, 1)", confidence)
