"""One look: from the counts of complete rounds to an order, the verdicts of the objective's comparisons, and tiers.

Models that are never asked have their outcomes from an earlier run. The uncertainty of such a model's score stays,
whatever the other model of a pair is asked, so information does not grow in proportion to the trials. If a share f of
today's variance of a difference is fixed, n times the other model's trials make the variance (1 - f)/n + f times as
large: information can grow at most 1/f times.

Looks at such a pair still have the joint distribution that the rules are computed for: with the recorded mean held
fixed, the differences at two looks have the variance of the later one as their covariance (Scharfstein, Tsiatis and
Robins 1997), whatever share is fixed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.cheapest import CheapestChoice, choose
from adaptive_eval.core.evidence import (
    AT_HORIZON,
    Estimates,
    Evidence,
    IndexArray,
    cautious,
    weigh_evidence,
)
from adaptive_eval.core.gates import deciding_parts
from adaptive_eval.core.judge import (
    BoolArray,
    Criteria,
    LatchedVerdicts,
    PairForecast,
    forecast,
    forecast_power,
    judge,
    pairs_decided_by_unknown,
    times_needed,
)
from adaptive_eval.core.objectives import Objective
from adaptive_eval.core.pair_trials import AvailableTrials, PairTrials, information_from, lowerable, trials_for
from adaptive_eval.core.rules import Rule, calls, has_error_left, is_giving_up, is_lenient
from adaptive_eval.core.shared_trials import PairedEvidence
from adaptive_eval.core.tally import ScoreBounds
from adaptive_eval.core.types import VERDICTS, Look, PairVerdict, Verdict
from scorio.moments import FloatArray
from scorio.rank.letters import letter_display

VerdictsOf = Callable[[IndexArray, IndexArray], NDArray[np.intp]]


@dataclass(frozen=True, slots=True, eq=False)
class JudgedLook:
    """Findings of a look."""

    estimates: Estimates
    evidence: Evidence
    memory: LatchedVerdicts
    rule: Rule
    forecast: PairForecast
    cautious: Evidence
    """The evidence that holds whatever the unknown grades are; forecasts are made from it."""
    order: IndexArray
    compares: bool
    """Whether the objective compares its pairs; otherwise z, difference and boundary mean nothing."""
    verdicts_of: VerdictsOf
    """The verdicts of any pairs (n, 2) at their positions, whether or not the objective compares them today."""
    fixed: FloatArray
    """For each pair, the share of its variance that no trial can lower (`lowerable`)."""
    balance: FloatArray
    """For each pair (P, 2), how much of the rest trials of either model lower."""
    reversible: BoolArray
    """Undecided pairs whose order unknown grades could reverse."""
    pairs: IndexArray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.intp))
    """The objective's comparisons (n, 2), the model placed higher first."""
    verdicts: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """(n,): positions in VERDICTS."""
    boundary: FloatArray | None = None
    """The boundary on |z| of each pair, if that is not the boundary of the rule."""
    choice: CheapestChoice | None = None
    """The state of the choice of the cheapest; None under any other objective."""
    by_grades: Evidence | None = None
    """If labels correct the evidence, the cautious one by the grades, which a call has to agree with, too."""

    def least_z(self) -> FloatArray:
        """The |z| at which each pair is called."""
        return self.rule.boundary(self.evidence) if self.boundary is None else self.boundary

    def shown_different(self) -> NDArray[np.int8]:
        """For each pair the sign of the model that is shown to be better, 0: neither. It is the call, unless the rule
        also calls models that are merely not much worse."""
        if not is_lenient(self.rule):
            return self.memory.call
        scenarios = [self.evidence, self.cautious, *([] if self.by_grades is None else [self.by_grades])]
        signs = [calls(self.rule, [evidence], [self.rule.strict_boundary(evidence)]) for evidence in scenarios]
        call = self.memory.call
        return np.where(np.all(np.stack(signs) == call, axis=0), call, 0).astype(np.int8)

    def open_pairs(self) -> IndexArray:
        is_open = self.verdicts == VERDICTS.index(Verdict.OPEN)
        return np.asarray(self.pairs[is_open if self.choice is None else is_open & ~self.choice.resting])

    def in_open_pairs(self) -> BoolArray:
        """(L,): models in an open comparison."""
        opened = np.zeros(len(self.order) + 1, dtype=bool)
        opened[self.open_pairs().ravel()] = True
        return opened[:-1]


def judge_look(
    estimates: Estimates,
    ways: Sequence[Evidence],
    memory: LatchedVerdicts,
    criteria: Criteria,
    available: AvailableTrials,
    *,
    calls_stand: bool = False,
) -> JudgedLook:
    """Judge every pair, then give the objective's comparisons their verdicts.

    `ways` are the readings of the evidence. With `calls_stand`, nothing latches anew.
    """
    objective, _, judging, estimator, *_ = criteria
    evidence, compared = ways[0], estimates.on(estimator)
    judged, level = judge(memory, ways, criteria)
    memory = memory if calls_stand else judged
    reversible = reversed_by_unknown(ways, memory)
    fixed, balance = lowerable(compared, evidence, available.recorded)
    reach, certain = reachable_information(evidence, available, fixed, balance), cautious(ways)
    ahead = forecast(certain, level, judging.delta, reach, memory.given_up)
    new_run_rule = criteria.new_run_rule
    if new_run_rule is not None and has_error_left(level) and not judging.delta:  # only a new run can have a delta
        ahead = replace(ahead, certifiable=forecast(certain, new_run_rule, judging.delta, reach).certifiable)
    memory = without_void(memory, evidence, available.void)
    if evidence.gate is not None:
        evidence = replace(evidence, deciding=deciding_parts(evidence, memory, ahead))
    given_up = level.gives_up(ways[0]) if is_giving_up(level) else memory.given_up
    verdicts_of = partial(
        _verdicts,
        evidence,
        memory,
        ahead,
        available=available,
        spent=level.exhausted(evidence) if has_error_left(level) else np.zeros(len(evidence.z), bool),
        futility=judging.futility_under(level),
        unknown_decide=pairs_decided_by_unknown(ways, level, judging),
        as_graded=None if len(ways) == 1 else forecast(ways[0], level, judging.delta, reach, given_up),
    )
    look = JudgedLook(
        estimates=estimates,
        evidence=evidence,
        memory=memory,
        rule=level,
        forecast=ahead,
        cautious=certain,
        order=models_in_order(compared, available.void),
        compares=objective.compares,
        verdicts_of=verdicts_of,
        fixed=fixed,
        balance=balance,
        reversible=reversible,
    )
    return with_comparisons(look, objective, available)


def without_void(memory: LatchedVerdicts, evidence: Evidence, void: BoolArray) -> LatchedVerdicts:
    """The verdicts without any on models whose answers are no samples: they are set aside, so these are blocked."""
    of_void = np.append(void, False)
    return LatchedVerdicts.blank(len(evidence.z)).where(of_void[evidence.first] | of_void[evidence.second], memory)


def reversed_by_unknown(ways: Sequence[Evidence], memory: LatchedVerdicts) -> BoolArray:
    """Undecided pairs whose order unknown grades could reverse."""
    z = np.stack([way.z for way in ways])
    return np.asarray((z.min(axis=0) < 0.0) & (z.max(axis=0) > 0.0) & (memory.call == 0) & ~memory.tie)


def with_comparisons(look: JudgedLook, objective: Objective, available: AvailableTrials) -> JudgedLook:
    """The look with the comparisons that matter at it, by today's order or by the costs of the models, and their
    verdicts."""
    evidence = look.evidence
    if evidence.margin is None or evidence.margin.baseline is not None:
        pairs = compared_pairs(look, objective, available)
        return replace(look, pairs=pairs, verdicts=look.verdicts_of(pairs, evidence.positions(pairs)))
    all_pairs = np.stack([evidence.first, evidence.second], axis=1)
    verdicts = look.verdicts_of(all_pairs, np.arange(len(all_pairs)))
    choice = choose(evidence, look.memory.call, verdicts, look.order, available.costs)
    evidence = replace(evidence, deciding=choice.sides)
    return replace(look, evidence=evidence, pairs=choice.pairs, verdicts=choice.verdicts, choice=choice)


def evidence_readings(
    estimates: Estimates,
    criteria: Criteria,
    bounds: ScoreBounds | None = None,
    paired: Sequence[PairedEvidence] = (),
) -> list[Evidence]:
    """Readings of the evidence: as graded, and if needed with unknown grades in favour of either side.

    Ungraded answers count in the information of all three: they bring no look forward, and boundaries are as planned.
    Where nothing is compared, the other two readings hold how far unknown grades could move each score.
    `paired` has the evidence from trials with the same seeds, for each reading.
    """
    objective, estimator = criteria.objective, criteria.estimator
    weigh = partial(weigh_evidence, reference=objective.reference, margin=objective.margin, ends=criteria.ends)
    graded = weigh(estimates.on(estimator), paired=paired[0] if paired else None)
    if bounds is None:
        return [graded]
    lowest, highest = bounds.lowest.on(estimator), bounds.highest.on(estimator)
    for_first, for_second = paired[1:] or (None, None)
    favouring_first = weigh(highest, other=lowest, paired=for_first)
    favouring_second = weigh(lowest, other=highest, paired=for_second)
    if not objective.compares:
        unknown = np.nan_to_num(highest.score - lowest.score)[favouring_first.first] / 2.0
        favouring_first, favouring_second = (
            replace(reading, unknown=unknown) for reading in (favouring_first, favouring_second)
        )
    return [
        replace(graded, information=np.minimum(favouring_first.information, favouring_second.information)),
        favouring_first,
        favouring_second,
    ]


def models_in_order(estimates: Estimates, void: BoolArray) -> IndexArray:
    """The models from best to worst; last those whose answers are no samples."""
    return np.lexsort((-estimates.score, void))


def compared_pairs(look: JudgedLook, objective: Objective, available: AvailableTrials) -> IndexArray:
    """The objective's comparisons (n, 2), the model first that is placed higher, or under a gate the one that is ahead
    with its margin counted, or trial by trial; a reference is never first.

    Models that were set aside are placed last. If neighbours are compared, such a model is compared with its neighbours
    by score: against the last one alone a ranking would count as decided in which its place is open. So would one in
    which unknown grades could place a model above others than its neighbours; these pairs are compared, too.
    """
    evidence, order, reversible = look.evidence, look.order, look.reversible
    aside = np.append(available.set_aside, False)
    in_play_first = order[np.argsort(available.set_aside[order], kind="stable")]
    pairs = objective.comparisons(in_play_first)
    if objective.in_order and aside.any():
        by_score = objective.comparisons(order)
        pairs = np.concatenate(
            [part[aside[part].any(axis=1) == of_aside] for part, of_aside in ((pairs, False), (by_score, True))]
        )
    if objective.in_order and reversible.any():
        unsure = reversible & ~aside[evidence.first] & ~aside[evidence.second]
        unsure[evidence.positions(pairs)] = False
        pairs = np.concatenate([pairs, np.stack([evidence.first[unsure], evidence.second[unsure]], axis=1)])
    rank = np.argsort(np.append(order, len(order)))  # a reference, number L, stands last
    behind = rank[pairs[:, 0]] > rank[pairs[:, 1]]
    pairs = np.where(behind[:, None], pairs[:, ::-1], pairs)
    if (evidence.margin is None and evidence.paired is None) or evidence.against_reference:
        return pairs
    at = evidence.positions(pairs)
    behind = np.where(evidence.first[at] == pairs[:, 0], evidence.z[at], -evidence.z[at]) < 0.0
    return np.where(behind[:, None], pairs[:, ::-1], pairs)


def reachable_information(
    evidence: Evidence, available: AvailableTrials, fixed: FloatArray, balance: FloatArray
) -> FloatArray:
    """The information that each pair could reach with all trials left; 1 is the horizon."""
    trials, of_models = PairTrials.of(available, evidence, balance), np.append(available.reserved, 0)
    reserved = of_models[evidence.first] + of_models[evidence.second]
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = information_from(trials.times_with(available.affordable + reserved), fixed)
        reach = np.where(evidence.information > 0.0, evidence.information * growth, 1.0)
    return np.clip(reach, np.minimum(evidence.information, 1.0), 1.0)


def _verdicts(
    evidence: Evidence,
    memory: LatchedVerdicts,
    ahead: PairForecast,
    pairs: IndexArray,
    at: IndexArray,  # where the pairs are judged
    *,
    available: AvailableTrials,
    spent: BoolArray,  # pairs that have used up their error under an earlier horizon
    futility: float | None,
    unknown_decide: BoolArray,
    as_graded: PairForecast | None,  # the forecast if the grades were known; None if they are
) -> NDArray[np.intp]:
    """Positions in VERDICTS: latched verdicts come first, then blocked pairs, then what the remaining trials allow.

    A pair is blocked by unknown grades if they could decide it, or if it would be open were they as they are today.
    """
    remaining = np.append(available.remaining, 0)
    set_aside = np.append(available.set_aside, False)
    first, second = pairs[:, 0], pairs[:, 1]
    has_ended = (
        spent[at] | (evidence.information[at] >= AT_HORIZON) | ((remaining[first] <= 0) & (remaining[second] <= 0))
    )
    over = has_ended | is_futile(ahead, at, futility)
    verdict = np.where(over, VERDICTS.index(Verdict.OUT_OF_REACH), VERDICTS.index(Verdict.OPEN))
    unknown = unknown_decide[at]
    if as_graded is not None:
        unknown = unknown | ~(has_ended | is_futile(as_graded, at, futility))
    blocked = set_aside[first] | set_aside[second] | (over & unknown)
    verdict = np.where(blocked, VERDICTS.index(Verdict.BLOCKED), verdict)
    verdict = np.where(memory.tie[at], VERDICTS.index(Verdict.TIED), verdict)
    return np.where(memory.call[at] != 0, VERDICTS.index(Verdict.RESOLVED), verdict)


def is_futile(ahead: PairForecast, at: IndexArray, futility: float | None) -> BoolArray:
    """Whether the pairs at these positions have too small a chance of being settled to go on."""
    power, information = ahead.power(at), ahead.evidence.information[at]
    min_power = 0.0 if futility is None else futility * np.maximum(1.0 - information / ahead.horizon[at], 0.0)
    return np.asarray((ahead.given_up[at] & (power <= 0.0)) | (power < min_power))


def likely_open(look: JudgedLook, seen_trials: NDArray[np.int64], issued: NDArray[np.int64], delta: float) -> BoolArray:
    """Open pairs that will probably still be open when all issued trials have arrived.

    `seen_trials` has the trials (L,) of each model that the look has seen, `issued` also those in flight, both
    including R0. A pair's information grows roughly in proportion to its trials.
    """
    pairs, evidence = look.open_pairs(), look.evidence
    at = evidence.positions(pairs)
    now, later = np.append(seen_trials, 0)[pairs].sum(axis=1), np.append(issued, 0)[pairs].sum(axis=1)
    reach = evidence.information.copy()
    grown = information_from(np.maximum(later / np.maximum(now, 1), np.finfo(float).tiny), look.fixed[at])
    reach[at] = np.minimum(reach[at] * grown, 1.0)
    return np.asarray(forecast_power(look.cautious, look.rule, delta, reach, at) <= 0.5)


def make_look(look: JudgedLook, available: AvailableTrials, index: int, questions: int) -> Look:
    """A look as plain values; `index` is its number."""
    return Look(
        index=index,
        trials=tuple(available.trials.tolist()),
        order=tuple(look.order.tolist()),
        tiers=tiers(look),
        scores=tuple(look.estimates.score.tolist()),
        sigmas=tuple(look.estimates.sigma().tolist()),
        comparisons=describe(look, look.pairs, look.verdicts, available, questions),
    )


def describe(
    look: JudgedLook, pairs: IndexArray, verdicts: NDArray[np.intp], available: AvailableTrials, questions: int
) -> tuple[PairVerdict, ...]:
    """Any pairs as plain values; z is positive where the first of a pair is ahead today."""
    evidence, ahead = look.evidence, look.forecast
    at = evidence.positions(pairs)
    sign = np.where(evidence.first[at] == pairs[:, 0], 1.0, -1.0)
    z = sign * evidence.z[at]
    trials = PairTrials.of(available, evidence.at_positions(at), look.balance[at])
    boundary = look.least_z()[at]
    call = sign * look.memory.call[at]
    with np.errstate(invalid="ignore"):  # before any trials there is no estimate of how many are needed
        times = trials_for(times_needed(ahead, look.cautious, look.rule)[at], look.fixed[at])
        needed = trials.needed_for(times) / questions
    mask = 1.0 if look.compares else np.nan
    columns = (
        pairs[:, 0].tolist(),
        pairs[:, 1].tolist(),
        verdicts.tolist(),
        (mask * z).tolist(),
        (mask * evidence.rho[at]).tolist(),
        (mask * boundary).tolist(),
        evidence.information[at].tolist(),
        ahead.power(at).tolist(),
        needed.tolist(),
        ((call != 0) & (np.sign(z) == -call)).tolist(),
    )
    return tuple(
        PairVerdict(first, None if second == evidence.models else second, VERDICTS[verdict], *values)
        for first, second, verdict, *values in zip(*columns, strict=True)
    )


def tiers(look: JudgedLook) -> tuple[int, ...]:
    """Each model's tier, from 1: a tier ends where neighbours are resolved in today's direction, and no unknown grades
    could place a model behind that above one before.

    Against a fixed value there are at most three tiers: resolved above it, not resolved, resolved below it. Margins are
    ignored. There is one tier if the objective compares nothing.
    """
    evidence, order, call = look.evidence, look.order, look.shown_different()
    if not look.compares:
        return (1,) * evidence.models
    if evidence.against_reference:
        stands = np.where(np.sign(evidence.z) == -call, 0, call)[: evidence.plain_pairs]
        return tuple((1 + np.unique(-stands, return_inverse=True)[1]).tolist())
    ends = _resolved_in_order(look, np.stack([order[:-1], order[1:]], axis=1))
    reversible = np.flatnonzero(look.reversible[: evidence.plain_pairs])
    places = np.argsort(order)[np.stack([evidence.first[reversible], evidence.second[reversible]])]
    for start, end in np.sort(places, axis=0).T.tolist():
        ends[start:end] = False
    tier = np.ones(len(order), dtype=np.intp)
    tier[order[1:]] = 1 + np.cumsum(ends)
    return tuple(tier.tolist())


def letters(look: JudgedLook) -> tuple[str, ...]:
    """Each model's letters; models that share one are not shown to differ, by all pairs. "" against a fixed value."""
    if look.evidence.against_reference:
        return ("",) * look.evidence.models
    order = look.order
    above, below = np.triu_indices(len(order), k=1)
    differ = np.zeros((len(order), len(order)), dtype=bool)
    differ[above, below] = _resolved_in_order(look, np.stack([order[above], order[below]], axis=1))
    by_position = letter_display(differ | differ.T)
    return tuple(by_position[position] for position in np.argsort(order).tolist())


def _resolved_in_order(look: JudgedLook, pairs: IndexArray) -> BoolArray:
    """Whether each of the pairs (n, 2) is resolved with the first one ahead, ignoring margins."""
    evidence = look.evidence
    at = evidence.plain_positions(pairs)
    sign = np.where(evidence.first[at] == pairs[:, 0], 1, -1)
    return np.asarray(sign * look.shown_different()[at] > 0)
