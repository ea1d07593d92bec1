"""Composing rounds: which models get trials next, and how many. It depends on the latest look alone.

A pair is decided when |z| reaches the boundary, or it is certified as tied, or given up. Today's difference d says
which comes first: with u times the trials, z grows to z sqrt(u) if d is the true difference, and falls to z/sqrt(u) if
there is none. Near a decision u is little above 1 and the next round small; far from one the round is large. A boundary
that holds at any schedule of looks allows that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Evidence, IndexArray
from adaptive_eval.core.in_flight import BatchesInFlight, TrialArray
from adaptive_eval.core.judge import BoolArray, Judging, after, forecast_power
from adaptive_eval.core.look import JudgedLook, likely_open
from adaptive_eval.core.pair_trials import trials_for
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import Policy, View
from adaptive_eval.core.rules import Rule, is_giving_up, judges_by_pair, tie_boundary
from adaptive_eval.core.settings import MAX_ROUND_FACTOR, require
from scorio.moments import FloatArray
from scorio.sinf.compare import tied

STEPS = 12
"""Multiples of today's trials to try, in equal ratios up to the horizon."""


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
    longest = 1.0 / np.clip(evidence.information, 1e-6, 1.0)
    times, futility = longest.copy(), judging.futility_under(rule)
    has_ended = np.zeros(len(longest), dtype=bool)
    for step in range(1, STEPS + 1):
        u = longest ** (step / STEPS)
        same = after(evidence, u)
        bound = rule.boundary(same)
        ends = np.abs(same.z) >= bound
        ends |= tied(same.difference, same.sigma, tie_boundary(rule, same, bound), judging.delta)
        equal = after(evidence, u, drift=False)
        if is_giving_up(rule):
            ends |= rule.gives_up(equal)
        if futility is not None:
            ends |= _given_up(equal, rule, judging.delta, futility)
        times = np.where(ends & ~has_ended, u, times)
        has_ended |= ends
    return times


def _given_up(evidence: Evidence, rule: Rule, delta: float, futility: float) -> BoolArray:
    share_left = np.maximum(1.0 - evidence.information, 0.0)
    return np.asarray(forecast_power(evidence, rule, delta, np.ones_like(share_left)) < futility * share_left)


def most_that_fit(
    priority: IndexArray, allocate: Callable[[IndexArray], TrialArray], fits: Callable[[TrialArray], bool]
) -> tuple[TrialArray | None, bool]:
    """The round for the most valuable comparisons that fit, and whether all of them fit; None if it would be empty."""
    extra: TrialArray | None = None
    fitting, too_many = 0, len(priority) + 1
    number = len(priority)
    while number > fitting:
        candidate = allocate(np.sort(priority[:number]))
        if fits(candidate):
            extra, fitting = candidate, number
        else:
            too_many = number
        number = (fitting + too_many) // 2
    return extra, fitting == len(priority)


def checked_allocation(policy: Policy, view: View) -> TrialArray:
    """The policy's round, checked against the sizes that the view allows."""
    extra = np.asarray(policy.allocate(view))
    is_valid = extra.shape == view.issued.shape and extra.min() >= 0 and np.all(extra.sum(axis=1) <= view.sizes)
    require(bool(is_valid), f"{policy} must give each model 0 to view.sizes trials", extra)
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

    def limits(self, trials: NDArray[np.int64]) -> NDArray[np.int64]:
        """(L,): trials per question that can serve a model: its own limit, or in step the largest of its opponents."""
        limits = np.where(self.in_step(len(trials)), 0, trials)
        for side in (0, 1) if self.paired.any() else ():
            member, opponent = self.pairs[:, side], self.pairs[:, 1 - side]
            np.maximum.at(limits, member, np.where(self.paired, trials[opponent], trials[member]))
        return np.minimum(limits, trials)

    def ahead(self, issued: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(L,): models in step that have more trials than every opponent: the opponents go first."""
        ahead = self.in_step(len(issued))
        for side in (0, 1):
            member, opponent = self.pairs[:, side], self.pairs[:, 1 - side]
            if self.paired.any():  # then no pair has a fixed value
                ahead[member[~self.paired | (issued[member] <= issued[opponent])]] = False
        return ahead


@dataclass(frozen=True, slots=True, eq=False)
class RoundComposer:
    """Composes the next round from the latest look."""

    plan: Plan
    flight: BatchesInFlight
    last_look: JudgedLook
    seen_trials: NDArray[np.int64]
    """(L,): trials of each model that the look has seen, including those known beforehand."""
    prior_trials: NDArray[np.int64]
    """(L,): trials known beforehand."""
    in_play: NDArray[np.bool_]
    joining: NDArray[np.bool_]
    """(L,): models that wait for their first round: their comparisons are not judged yet."""

    def _may_serve(self, pairs: IndexArray) -> NDArray[np.bool_]:
        """Mask of the open comparisons (n, 2) that a round may serve."""
        return np.asarray(~np.append(self.joining, False)[pairs].any(axis=1))

    def next_round(self) -> tuple[TrialArray, bool]:
        """The next round for as many open comparisons as the caps allow, and whether they allow all of them.

        If rounds as large as needed do not fit, the smallest rounds are tried before any comparison is left out.
        """
        nothing = np.zeros(self.plan.bench.models)
        if not self.plan.pace.share:
            return self._affordable_round(nothing)
        needed = self._needed_trials()
        extra, fits = self._affordable_round(needed)
        if not fits and needed.any():
            return self._affordable_round(nothing)
        return extra, fits

    def round_in_parts(self) -> TrialArray:
        """The smallest round, for as many open comparisons as probably fit the caps; empty if there are none."""
        return self._affordable_round(np.zeros(self.plan.bench.models), self.flight.account.probably_fits)[0]

    def smallest_round(self) -> NDArray[np.int64]:
        """(L,): trials of each model in the smallest round that serves every open comparison, whether caps cover it or
        not."""
        priority, allocate = self._choices(np.zeros(self.plan.bench.models))
        return np.asarray(allocate(np.sort(priority)).sum(axis=1, dtype=np.int64))

    def _needed_trials(self) -> FloatArray:
        """(L,): the pace's share of the further trials that each model needs until one of its open comparisons may be
        decided."""
        last_look, pairs = self.last_look, self.last_look.open_pairs()
        pairs = pairs[self._may_serve(pairs)]
        at = last_look.evidence.positions(pairs)
        times = times_to_decision(last_look.cautious, last_look.rule, self.plan.judging, at)
        further = self.plan.pace.share * (trials_for(times, last_look.fixed[at]) - 1.0)
        needed = np.zeros(self.plan.bench.models + 1)
        seen_trials = np.append(self.seen_trials, 0)
        for side in (0, 1):
            np.maximum.at(needed, pairs[:, side], further * seen_trials[pairs[:, side]])
        return needed[:-1]

    def _affordable_round(
        self, needed: FloatArray, fits: Callable[[NDArray[np.int64]], bool] | None = None
    ) -> tuple[TrialArray, bool]:
        """The policy's round for as many open comparisons as fit, and whether all of them did.

        A round issued ahead of a look serves only comparisons that are likely to be still open then. If not all fit,
        those with the highest chance of being settled for the money come first. Bisection finds how many fit: a round
        for more of them never costs less. `fits`: other than at the worst cost of each trial.
        """
        priority, allocate = self._choices(needed)
        is_affordable = fits or self.flight.account.fits
        extra, all_fit = most_that_fit(priority, allocate, lambda extra: is_affordable(extra.sum(axis=1)))
        return np.zeros_like(self.flight.issued) if extra is None else extra, all_fit

    def _choices(self, needed: FloatArray) -> tuple[IndexArray, Callable[[IndexArray], TrialArray]]:
        """The comparisons that a round may serve, the most valuable first, and the round that the policy makes for some
        of them."""
        plan, flight, last_look = self.plan, self.flight, self.last_look
        issued, g = flight.issued, plan.bench.question_weights
        pairs = last_look.open_pairs()
        is_served = self._may_serve(pairs)
        if flight.batches():
            committed_and_flying = issued.sum(axis=1) - flight.parked + self.prior_trials
            is_served &= likely_open(last_look, self.seen_trials, committed_and_flying, plan.judging.delta)
        pairs, prices = pairs[is_served], np.append(flight.account.prices(), 0.0)
        at, by_trial = last_look.evidence.positions(pairs), last_look.evidence.paired
        power = last_look.forecast.power(at)
        paired = np.zeros(len(pairs), bool) if by_trial is None else by_trial[at]

        def allocate(chosen: IndexArray) -> TrialArray:
            served = ServedPairs(pairs[chosen], paired[chosen])
            trials, question_weights = plan.source.choice(issued, g)
            view = View(
                open_pairs=served.pairs,
                power=power[chosen],
                order=last_look.order,
                in_play=self.in_play,
                issued=trials,
                trial_var=last_look.estimates.trial_var,
                sizes=self._round_sizes(served, prices[:-1], needed),
                question_weights=question_weights,
            )
            extra = checked_allocation(plan.policy, view)
            return plan.source.allocated(extra, issued, served.in_step(len(issued)), g)

        return np.argsort(-power / prices[pairs].sum(axis=1), kind="stable"), allocate

    def _round_sizes(self, served: ServedPairs, prices: FloatArray, needed: FloatArray) -> NDArray[np.int64]:
        """Trials that a model may get in a round, at least the plan's minimum. Cheap models get more, by the square
        root of the price.

        For a pair, n proportional to 1/sqrt(price) gives the most information for the money, unless only shared trials
        count.
        """
        flight, pairs = self.flight, served.pairs
        models, questions = flight.issued.shape
        issued, in_step = flight.issued.sum(axis=1), served.in_step(models)
        members = pairs[pairs < models]
        top_price = prices[members].max() if len(members) else 1.0
        cheap = np.where(in_step, 1.0, np.clip(np.sqrt(top_price / prices), 1.0, MAX_ROUND_FACTOR))
        if self.plan.pace.in_step:
            sizes = np.asarray(np.rint(self.plan.source.least_round(self.plan.bench) * cheap).astype(np.int64))
        elif self.plan.pace.dedicated_servers:
            round_of_all = questions * int(self.in_play[np.unique(members)].sum())
            ahead = self.plan.pace.rounds_ahead(flight.account.affordable() + int(flight.sizes.sum()), round_of_all)
            sizes = np.where(flight.sizes <= ahead * questions, questions, 0)
        else:
            target = np.where(flight.sizes == 0, np.maximum(np.rint(needed), questions) * cheap, 0.0)
            sizes = np.floor(target / questions).astype(np.int64) * questions
        asked, lengths = self.plan.bench.asked, self.plan.bench.recorded_lengths
        sizes[~self.in_play | served.ahead(np.where(asked, issued, lengths * questions))] = 0
        limits = served.limits(np.where(asked, self.plan.trials.max, lengths))
        return np.asarray(np.clip(limits * questions - issued, 0, sizes))
