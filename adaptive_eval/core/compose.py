"""Composing rounds: which models get trials next, and how many. It depends on the latest look alone.

A pair is decided when |z| reaches the boundary, or it is certified as tied, or given up. Today's difference d says
which comes first: with u times the trials, z grows to z sqrt(u) if d is the true difference, and falls to z/sqrt(u) if
there is none. Near a decision u is little above 1 and the next round small; far from one the round is large. A boundary
that holds at any schedule of looks allows that.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.drawn import next_questions
from adaptive_eval.core.evidence import Evidence, IndexArray
from adaptive_eval.core.in_flight import BatchesInFlight, TrialArray
from adaptive_eval.core.judge import BoolArray, Judging, after, forecast_power
from adaptive_eval.core.look import JudgedLook, likely_open, trials_for
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import Policy, View, spread
from adaptive_eval.core.rules import Rule, is_giving_up, judges_by_pair, tie_boundary
from adaptive_eval.core.settings import MOST_PER_ROUND, Pace, require
from scorio.moments import FloatArray, weighted
from scorio.sinf.compare import tied

REFILL = 0.8
"""A model is asked for more once at most this share of its intended trials is in flight."""
STEPS = 12
"""Multiples of today's trials to try, in equal ratios up to the horizon."""


class RoundInputs(NamedTuple):
    """Inputs from which a round is composed."""

    standing: JudgedLook
    pace: Pace
    most: int
    """Trials a question at the horizon."""
    held: NDArray[np.int64]
    """(L,): trials of each model that the look has seen, including those known beforehand."""
    before: NDArray[np.int64]
    """(L,): trials known beforehand."""
    in_play: NDArray[np.bool_]


def next_round(plan: Plan, flight: BatchesInFlight, now: RoundInputs) -> tuple[TrialArray, bool]:
    """The next round for as many open comparisons as the caps allow, and whether they allow all of them.

    If rounds as large as needed do not fit, the smallest rounds are tried before any comparison is left out.
    """
    if not now.pace.share:
        return _affordable_round(plan, flight, now, np.zeros(plan.bench.models))
    needed = needed_trials(plan, now, now.pace.share)
    extra, fits = _affordable_round(plan, flight, now, needed)
    if not fits and needed.any():
        return _affordable_round(plan, flight, now, np.zeros_like(needed))
    return extra, fits


def needed_trials(plan: Plan, now: RoundInputs, share: float) -> FloatArray:
    """(L,): `share` of the further trials that each model needs until one of its open comparisons may be decided."""
    standing, pairs = now.standing, now.standing.open_pairs()
    at = standing.evidence.positions(pairs)
    times = times_to_decision(standing.cautious, standing.rule, plan.judging, at)
    further = share * (trials_for(times, standing.fixed[at]) - 1.0)
    needed = np.zeros(plan.bench.models + 1)
    held = np.append(now.held, 0)
    for side in (0, 1):
        np.maximum.at(needed, pairs[:, side], further * held[pairs[:, side]])
    return needed[:-1]


def times_to_decision(
    evidence: Evidence, rule: Rule, judging: Judging, at: NDArray[np.intp] | None = None
) -> FloatArray:
    """The smallest multiple u >= 1 of today's trials at which each pair may be decided; at most the horizon's.

    For all pairs, or for those at these positions.
    """
    if at is not None:
        if not judges_by_pair(rule):
            return np.asarray(times_to_decision(evidence, rule, judging)[at])
        evidence = evidence.at_positions(at)
    most = 1.0 / np.clip(evidence.information, 1e-6, 1.0)
    times, futility = most.copy(), judging.futility_under(rule, evidence)
    found = np.zeros(len(most), dtype=bool)
    for step in range(1, STEPS + 1):
        u = most ** (step / STEPS)
        same = after(evidence, u)
        bound = rule.boundary(same)
        ends = np.abs(same.z) >= bound
        ends |= tied(same.difference, same.sigma, tie_boundary(rule, same, bound), judging.delta)
        equal = after(evidence, u, drift=False)
        if is_giving_up(rule):
            ends |= rule.gives_up(equal)
        if futility is not None:
            ends |= _given_up(equal, rule, judging.delta, futility)
        times = np.where(ends & ~found, u, times)
        found |= ends
    return times


def _given_up(evidence: Evidence, rule: Rule, delta: float, futility: float) -> BoolArray:
    left = np.maximum(1.0 - evidence.information, 0.0)
    return np.asarray(forecast_power(evidence, rule, delta, np.ones_like(left)) < futility * left)


def _affordable_round(
    plan: Plan, flight: BatchesInFlight, now: RoundInputs, needed: FloatArray
) -> tuple[TrialArray, bool]:
    """The policy's round for as many open comparisons as fit, and whether all of them did.

    A round issued ahead of a look serves only comparisons that are likely to be still open then. If not all fit, those
    with the highest chance of being settled for the money come first. Bisection finds how many fit: a round for more of
    them never costs less.
    """
    standing = now.standing
    pairs, power = standing.open_pairs(), standing.open_power()
    if flight.batches():
        issued = flight.issued.sum(axis=1) - flight.parked + now.before
        stay = likely_open(standing, now.held, issued, plan.judging.delta)
        pairs, power = pairs[stay], power[stay]
    prices = np.append(flight.account.prices(), 0.0)

    by_trial = standing.evidence.paired
    paired = np.zeros(len(pairs), bool) if by_trial is None else by_trial[standing.evidence.positions(pairs)]

    def allocate(chosen: IndexArray) -> TrialArray:
        served = ServedPairs(pairs[chosen], paired[chosen])
        sizes = _round_sizes(flight, now, served, prices[:-1], needed, plan.least_round)
        if plan.drawn:
            # the policy sets the number for each model, the draw sets the order of the questions
            of_models = make_view(now, served.pairs, flight.issued.sum(axis=1, keepdims=True), sizes, power[chosen])
            return next_questions(flight.issued, checked_allocation(plan.policy, of_models)[:, 0])
        g = plan.bench.question_weights
        extra = checked_allocation(plan.policy, make_view(now, served.pairs, flight.issued, sizes, power[chosen], g))
        return _even_round(extra, flight.issued, served.in_step(len(flight.issued)), g)

    worth = np.argsort(-power / prices[pairs].sum(axis=1), kind="stable")
    extra, fits = most_that_fit(worth, allocate, lambda extra: flight.account.fits(extra.sum(axis=1)))
    return np.zeros_like(flight.issued) if extra is None else extra, fits


def most_that_fit(
    worth: IndexArray, allocate: Callable[[IndexArray], TrialArray], fits: Callable[[TrialArray], bool]
) -> tuple[TrialArray | None, bool]:
    """The round for the most valuable comparisons that fit, and whether all of them fit; None if it would be empty."""
    extra: TrialArray | None = None
    fitting, too_many = 0, len(worth) + 1
    served = len(worth)
    while served > fitting:
        tried = allocate(np.sort(worth[:served]))
        if fits(tried):
            extra, fitting = tried, served
        else:
            too_many = served
        served = (fitting + too_many) // 2
    return extra, fitting == len(worth)


def _even_round(extra: TrialArray, issued: TrialArray, models: NDArray[np.bool_], g: FloatArray | None) -> TrialArray:
    """The round with the trials of `models` spread by question weight alone, so that all have the same ones.

    Weights from what other models made of the same random numbers would depend on the model's own luck.
    """
    served = np.flatnonzero(models & extra.any(axis=1))
    if len(served):
        extra = extra.copy()
        extra[served] = spread(
            issued[served], weighted(np.ones((len(served), issued.shape[1])), g), extra[served].sum(axis=1)
        )
    return extra


def make_view(
    now: RoundInputs,
    pairs: IndexArray,
    issued: TrialArray,
    sizes: NDArray[np.int64],
    power: FloatArray,
    g: FloatArray | None = None,
) -> View:
    """The policy's view, given the `power` of its pairs."""
    return View(
        open_pairs=pairs,
        power=power,
        order=now.standing.order,
        in_play=now.in_play,
        issued=issued,
        trial_var=now.standing.estimates.trial_var,
        sizes=sizes,
        question_weights=g,
    )


def checked_allocation(policy: Policy, view: View) -> TrialArray:
    """The policy's round, checked against the sizes that the view allows."""
    extra = np.asarray(policy.allocate(view))
    allowed = extra.shape == view.issued.shape and extra.min() >= 0 and np.all(extra.sum(axis=1) <= view.sizes)
    require(bool(allowed), f"{policy} must give each model 0 to view.sizes trials", extra)
    return extra.astype(np.int32)


class ServedPairs(NamedTuple):
    """Pairs (n, 2) that a round serves, and which of them are judged by trials with the same seeds."""

    pairs: IndexArray
    paired: NDArray[np.bool_]

    def in_step(self, models: int) -> NDArray[np.bool_]:
        """(L,): models whose trials count only together with another model's."""
        members = np.zeros(models + 1, dtype=bool)
        members[self.pairs[self.paired].ravel()] = True
        return members[:models]

    def ahead(self, issued: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(L,): those of them with more trials than every opponent: the opponents go first."""
        ahead = self.in_step(len(issued))
        for side in (0, 1):
            own, other = self.pairs[:, side], self.pairs[:, 1 - side]
            if self.paired.any():  # then no pair has a fixed value
                ahead[own[~self.paired | (issued[own] <= issued[other])]] = False
        return ahead


def _round_sizes(
    flight: BatchesInFlight, now: RoundInputs, served: ServedPairs, prices: FloatArray, needed: FloatArray, least: int
) -> NDArray[np.int64]:
    """Trials a model may get in a round, at least `least`; cheap models get more, by the square root of the price.

    For a pair, n proportional to 1/sqrt(price) gives the most information for the money, unless only shared trials
    count.
    """
    pairs = served.pairs
    models, questions = flight.issued.shape
    issued, in_step = flight.issued.sum(axis=1), served.in_step(models)
    members = pairs[pairs < models]
    dearest = prices[members].max() if len(members) else 1.0
    cheap = np.where(in_step, 1.0, np.clip(np.sqrt(dearest / prices), 1.0, MOST_PER_ROUND))
    if now.pace.in_step:
        sizes = np.asarray(np.rint(least * cheap).astype(np.int64))
    elif now.pace.held:
        round_of_all = questions * int(now.in_play[np.unique(members)].sum())
        ahead = now.pace.rounds_ahead(flight.account.affordable() + int(flight.sizes.sum()), round_of_all)
        sizes = np.where(flight.sizes <= ahead * questions, questions, 0)
    else:
        wanted = np.maximum(np.rint(needed), questions * (1 + now.pace.lookahead)) * cheap
        short = np.where(flight.sizes <= (REFILL if now.pace.lookahead else 0.0) * wanted, wanted - flight.sizes, 0.0)
        sizes = np.floor(short / questions).astype(np.int64) * questions
    sizes[~now.in_play | served.ahead(issued)] = 0
    return np.asarray(np.clip(now.most * questions - issued, 0, sizes))
