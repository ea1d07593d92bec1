"""From evidence to verdicts: calls that latch, ties, and what the remaining trials could settle.

Only `LatchedVerdicts` is carried from look to look: calls and ties made so far, and the smallest p-values seen (a
running minimum is a p-value at any time). `judge` and `forecast` are pure functions of it and of evidence.

With `familywise`, all comparisons of an objective share one error probability. A fixed set of pairs goes through Holm's
procedure over its one-sided hypotheses, on p-values that are minima over the looks so far. If the data choose the
pairs, Bonferroni's divisor counts the possible mistakes (see `objectives`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimator, Evidence
from adaptive_eval.core.near_best import slack_in_sigmas
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.rules import (
    Correctable,
    ErrorLeft,
    Rule,
    calls,
    has_error_left,
    is_correctable,
    is_giving_up,
    is_lenient,
    judges_by_pair,
    tie_boundary,
)
from adaptive_eval.core.sequential import margins
from adaptive_eval.core.settings import require
from scorio.moments import FloatArray
from scorio.sinf.compare import tied
from scorio.sinf.futility import predictive_power, smallest_delta, trials_needed
from scorio.sinf.multiplicity import holm

if TYPE_CHECKING:
    from adaptive_eval.core.optimal import Optimal


def share_error(
    p_first: FloatArray,
    p_second: FloatArray,
    scenarios: Sequence[Evidence],
    objective: Objective,
    rule: Correctable,
    departed: int = 0,
) -> tuple[Rule, NDArray[np.int8]]:
    """The rule at the error level that this look has reached, and the sign of each pair's familywise call (0: none).

    `p_first` and `p_second` are the smallest one-sided p-values so far for each model of a pair. The hypotheses of
    `departed` models count."""
    evidence = scenarios[0]
    family, full_family = objective.family(evidence.models), objective.family(evidence.models + departed)
    if isinstance(family, int) or isinstance(full_family, int):
        level = rule_shared_among(max(size for size in (family, full_family) if isinstance(size, int)), rule)
        return level, calls(level, scenarios)
    members = evidence.positions(family)
    departed_p = np.ones(2 * (len(full_family) - len(family)))
    p = np.concatenate([p_first[members], p_second[members], departed_p])
    significant = holm(p, 1.0 - rule.confidence)
    signs = np.zeros(len(evidence.z), np.int8)
    first, second = significant[: 2 * len(members)].astype(np.int8).reshape(2, -1)
    signs[members] = first - second
    return rule_shared_among(len(p) - int(significant.sum()), rule), signs


def first_call(objective: Objective, models: int, rule: Correctable) -> Rule:
    """The rule at the error level of the first call."""
    family = objective.family(models)
    return rule_shared_among(family if isinstance(family, int) else 2 * len(family), rule)


def rule_shared_among(hypotheses: int, rule: "Correctable | Optimal") -> Rule:
    """The rule at an equal share of its error probability for each of this many one-sided hypotheses."""
    return rule.at_level((1.0 - rule.confidence) / max(hypotheses, 1))


BoolArray = NDArray[np.bool_]

FUTILITY = 0.30
CROSSING_STEPS = 8
"""Iterations for the trials still needed, each halving the error of their logarithm: accurate to a percent."""


@dataclass(frozen=True, slots=True)
class Judging:
    """How comparisons are judged, besides the rule.

    `delta` is the indifference zone; `familywise` shares the error probability among all comparisons. `futility` is the
    least chance of being settled that is worth the whole way to the horizon: a comparison is out of reach when its
    predictive power is below `futility` times the remaining share of the way (None: only at the horizon). A rule that
    gives comparisons up has its own. Without `latch` a look's calls and ties stand only until the next look.

    Examples:
        Scores within two points are as good as equal, and one error probability is shared by all comparisons:

        >>> from adaptive_eval.core import Judging
        >>> Judging(delta=0.02, familywise=True)
        Judging(delta=0.02, futility=0.3, familywise=True, latch=True)
    """

    delta: float = 0.0
    futility: float | None = FUTILITY
    familywise: bool = False
    latch: bool = True

    def __post_init__(self) -> None:
        require(self.delta >= 0.0, "delta must not be negative", self.delta)
        chance = self.futility is None or 0.0 <= self.futility < 1.0
        require(chance, "futility must lie in [0, 1), or be None for never", self.futility)

    def futility_under(self, rule: Rule) -> float | None:
        """`futility`, or that of a rule whose pairs rest."""
        return rule.futility if is_giving_up(rule) and rule.rests else self.futility


class Criteria(NamedTuple):
    """Criteria of a look, the same at all looks of a run until its horizon is changed."""

    objective: Objective
    rule: Rule
    judging: Judging
    estimator: Estimator = "average"
    p_values: bool = True
    """If false, only those that decisions need are computed."""
    departed: int = 0
    """Models that earlier looks compared too: they still share the error of `familywise`."""
    ends: tuple[float, float] | None = None
    """Of the scale of scores, which are skewed near them; None: not counted."""
    new_run_rule: Rule | None = None
    """The rule by which a new run with this horizon would judge; None: the rule itself."""


@dataclass(frozen=True, slots=True, eq=False)
class LatchedVerdicts:
    """Latched verdicts: for each pair the sign of its call (0: none), whether it is tied, whether its rule has given it
    up, and the smallest p-values so far."""

    call: NDArray[np.int8]
    tie: BoolArray
    given_up: BoolArray
    p_first: FloatArray
    p_second: FloatArray

    @classmethod
    def blank(cls, pairs: int) -> "LatchedVerdicts":
        nowhere = np.zeros(pairs, bool)
        return cls(np.zeros(pairs, np.int8), nowhere, nowhere, np.ones(pairs), np.ones(pairs))

    def where(self, mask: BoolArray, others: "LatchedVerdicts") -> "LatchedVerdicts":
        """These verdicts for some of the pairs, and those of `others` for all others."""
        arrays = (np.where(mask, getattr(self, name), getattr(others, name)) for name in self.__slots__)
        return LatchedVerdicts(*arrays)


@dataclass(frozen=True, slots=True, eq=False)
class DecidingLooks:
    """The look that called or tied each judged pair, whether or not the objective compared it then."""

    latched: NDArray[np.int8]
    """The sign of the call; 2: tied; 0: neither."""
    look: NDArray[np.intp]
    """Counted from 1."""
    z: FloatArray
    boundary: FloatArray

    @classmethod
    def blank(cls, pairs: int) -> "DecidingLooks":
        no_values = np.full(pairs, np.nan)
        return cls(np.zeros(pairs, np.int8), np.zeros(pairs, np.intp), no_values, no_values)

    def with_look(
        self, number: int, memory: LatchedVerdicts, evidence: Evidence, boundary: FloatArray
    ) -> "DecidingLooks":
        """The decisions including those of this look, without those that a rule without latch or labels take back."""
        latched = np.where(memory.call != 0, memory.call, 2 * memory.tie).astype(np.int8)
        new = latched != self.latched
        if not new.any():
            return self
        return DecidingLooks(
            latched,
            np.where(new, number, self.look),
            np.where(new, np.abs(evidence.z), self.z),
            np.where(new, boundary, self.boundary),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PairForecast:
    """Forecast for the horizon: for each pair its boundary there, the smallest delta that could be certified, and the
    chance of being settled (`power`)."""

    evidence: Evidence
    delta: float
    horizon: FloatArray
    boundary: FloatArray
    tie_boundary: FloatArray
    certifiable: FloatArray
    given_up: BoolArray
    """Pairs that can now only be certified as tied."""
    ties_apart: bool = False
    """Whether ties have error of their own."""

    def power(self, at: NDArray[np.intp]) -> FloatArray:
        """Power of the pairs at these positions: computing it for all pairs of many models would dominate a look."""
        evidence, horizon = self.evidence, self.horizon[at]
        state = evidence.z[at], evidence.information[at], evidence.sigma[at]
        zone_bound = self.tie_boundary[at] if self.ties_apart else None
        power = _power(*state, self.boundary[at], self.delta, horizon, zone_bound)
        given_up = self.given_up[at]
        if not given_up.any():
            return power
        bound = self.tie_boundary[at]
        tied = _power(*state, bound, self.delta, horizon) - _power(*state, bound, 0.0, horizon)
        return np.where(given_up, tied if self.delta > 0.0 else 0.0, power)


def judge(memory: LatchedVerdicts, scenarios: Sequence[Evidence], criteria: Criteria) -> tuple[LatchedVerdicts, Rule]:
    """Latched verdicts after this look, and the rule at the error level that the calls so far have reached.

    `scenarios` are readings of the evidence, and a call, tie or p-value must hold under all of them.
    """
    objective, rule, judging, _, p_values, departed, *_ = criteria
    if not judging.latch:
        memory = replace(memory, call=np.zeros_like(memory.call), tie=np.zeros_like(memory.tie))
    called = None
    tested = getattr(rule, "ties", rule)
    if (p_values or judging.familywise) and is_correctable(tested):
        p_first, p_second = (
            np.max([tested.p_value(scenario, sign) for scenario in scenarios], axis=0) for sign in (1, -1)
        )
        memory = replace(
            memory, p_first=np.minimum(memory.p_first, p_first), p_second=np.minimum(memory.p_second, p_second)
        )
        if judging.familywise and is_correctable(rule):
            rule, called = share_error(memory.p_first, memory.p_second, scenarios, objective, rule, departed)
    bounds = [rule.boundary(scenario) for scenario in scenarios]
    if called is None:
        called = calls(rule, scenarios, bounds)
    call = np.where((memory.call == 0) & ~memory.tie & ~memory.given_up, called, memory.call)
    tie = memory.tie | ((call == 0) & np.all(_ties(scenarios, rule, judging.delta, bounds), axis=0))
    given_up = memory.given_up
    if is_giving_up(rule):  # under any reading of unknown grades: the true one may be the one that ends it
        given_up = given_up | ((call == 0) & np.any([rule.gives_up(scenario) for scenario in scenarios], axis=0))
    return replace(memory, call=call, tie=tie, given_up=given_up), rule


def _ties(scenarios: Sequence[Evidence], rule: Rule, delta: float, bounds: Sequence[FloatArray]) -> list[BoolArray]:
    """For each reading of the evidence, with its boundary, the pairs that are tied."""
    if has_error_left(rule) and delta > 0.0:
        return [_reach_margins(scenario, rule, delta) for scenario in scenarios]
    if is_lenient(rule):  # it calls all that it could tie but for equal scores
        delta = rule.margin
    return [
        tied(scenario.difference, scenario.sigma, tie_boundary(rule, scenario, bound), delta)
        for scenario, bound in zip(scenarios, bounds, strict=True)
    ]


def _reach_margins(evidence: Evidence, rule: ErrorLeft, delta: float) -> BoolArray:
    """Pairs for which both (delta - d)/s and (delta + d)/s reach their boundaries."""
    below, above = margins(evidence, delta)
    return np.asarray((below >= rule.margin_boundary(evidence, 1)) & (above >= rule.margin_boundary(evidence, -1)))


def pairs_decided_by_unknown(scenarios: Sequence[Evidence], rule: Rule, judging: Judging) -> BoolArray:
    """Pairs that some readings of the evidence would decide and others would not, or would decide differently."""
    if len(scenarios) == 1:
        return np.zeros(len(scenarios[0].z), bool)
    bounds = [rule.boundary(scenario) for scenario in scenarios]
    ties = _ties(scenarios, rule, judging.delta, bounds)
    single_calls = [calls(rule, [scenario], [bound]) != 0 for scenario, bound in zip(scenarios, bounds, strict=True)]
    decided_in_some = np.any(single_calls + ties, axis=0)
    decided_in_all = (calls(rule, scenarios, bounds) != 0) | np.all(ties, axis=0)
    return np.asarray(decided_in_some & ~decided_in_all)


def forecast(
    evidence: Evidence, rule: Rule, delta: float, horizon: FloatArray, given_up: BoolArray | None = None
) -> PairForecast:
    """Forecast of each pair at the information `horizon` (per pair, at most 1)."""
    ahead = _with_information(evidence, horizon)
    bound = rule.boundary(ahead)
    for_ties = tie_boundary(rule, ahead, bound)
    return PairForecast(
        evidence=evidence,
        delta=delta,
        horizon=horizon,
        boundary=bound,
        tie_boundary=for_ties,
        certifiable=smallest_delta(
            ahead.sigma, for_ties if delta > 0.0 else np.where(np.isinf(for_ties), bound, for_ties)
        ),
        given_up=np.zeros(len(bound), bool) if given_up is None else given_up,
        ties_apart=has_error_left(rule),
    )


def forecast_power(
    evidence: Evidence,
    rule: Rule,
    delta: float,
    horizon: FloatArray,
    at: NDArray[np.intp] | None = None,
    unknown: FloatArray | float = 0.0,
) -> FloatArray:
    """The forecast's power alone, for all pairs or for those at these positions; `unknown`: how far unknown grades
    could move each difference, which a call or tie must allow for."""
    if at is not None and judges_by_pair(rule):
        evidence, horizon, at = evidence.at_positions(at), horizon[at], None
    ahead = _with_information(evidence, horizon)
    margin = unknown / np.maximum(ahead.sigma, np.finfo(float).tiny)
    zone_bound = tie_boundary(rule, ahead) + margin if has_error_left(rule) else None
    state = evidence.z, evidence.information, evidence.sigma
    power = _power(*state, rule.boundary(ahead) + margin, delta, horizon, zone_bound)
    return power if at is None else np.asarray(power[at])


def _power(
    z: FloatArray,
    information: FloatArray,
    sigma: FloatArray,
    bound: FloatArray,
    delta: float,
    horizon: FloatArray,
    zone_bound: FloatArray | None = None,
) -> FloatArray:
    is_known = np.isfinite(sigma)
    power = predictive_power(z, information, bound, np.where(is_known, sigma, 1.0), delta, horizon, zone_bound)
    return np.where(is_known, power, 1.0)


def times_needed(ahead: PairForecast, evidence: Evidence, rule: Rule) -> FloatArray:
    """The multiple u of today's trials at which each pair is called, or certified as tied if that is sooner.

    With today's difference d and its standard error s: u = (b(u)/z)^2, or u = (b(u) s/(delta - |d|))^2."""
    if is_lenient(rule):  # by (|d| + margin)/s, since the boundary on |z| falls faster than the root of information
        lead = np.where(np.isfinite(evidence.sigma), np.abs(evidence.z) + slack_in_sigmas(rule.margin, evidence), 0.0)
        at_horizon = rule.strict_boundary(_with_information(evidence, ahead.horizon))
        return _times_to_cross(evidence, lead, rule.strict_boundary, at_horizon)
    called = _times_to_cross(evidence, evidence.z, rule.boundary, ahead.boundary)
    if not ahead.delta > 0.0:
        return called
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.maximum(ahead.delta - np.abs(evidence.difference), 0.0) / evidence.sigma
    tied = _times_to_cross(evidence, room, lambda then: tie_boundary(rule, then), ahead.tie_boundary)
    return np.asarray(np.fmin(called, tied))


def _times_to_cross(
    evidence: Evidence, z: FloatArray, boundary: Callable[[Evidence], FloatArray], at_horizon: FloatArray
) -> FloatArray:
    """The multiple u of today's trials at which z sqrt(u) reaches the boundary.

    It starts from the boundary at the horizon. The boundary falls at most as the root of information, so each iteration
    halves the error of ln u. Beyond the horizon, the boundary at the horizon applies.
    """
    times = trials_needed(z, np.ones_like(z), at_horizon)
    for _ in range(CROSSING_STEPS):
        finite = np.isfinite(times)
        bound = boundary(after(evidence, np.where(finite, np.maximum(times, 1.0), 1.0)))
        times = np.where(finite & np.isfinite(bound), trials_needed(z, np.ones_like(z), bound), times)
    return times


def _with_information(evidence: Evidence, horizon: FloatArray) -> Evidence:
    """Evidence with today's differences and the information of the horizon."""
    return after(evidence, np.maximum(horizon / np.maximum(evidence.information, np.finfo(float).tiny), 1.0))


def after(evidence: Evidence, times: FloatArray, *, drift: bool = True) -> Evidence:
    """Evidence with today's differences after `times` as many trials; with none at all if not `drift`."""
    root = np.sqrt(times)
    shrink = np.ones_like(root) if drift else times
    return replace(
        evidence,
        difference=evidence.difference / shrink,
        sigma=evidence.sigma / root,
        z=evidence.z * root / shrink,
        information=evidence.information * times,
    )
