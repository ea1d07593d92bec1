"""The results of a run, as plain values."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.conclusions import deciding_horizons
from adaptive_eval.core.corrected import ScoreCorrection
from adaptive_eval.core.gates import rows_of_gates
from adaptive_eval.core.judge import DecidingLooks
from adaptive_eval.core.look import JudgedLook, describe, letters, tiers
from adaptive_eval.core.look_taker import LookTaker
from adaptive_eval.core.pair_trials import AvailableTrials
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.tally import ScoreBounds
from adaptive_eval.core.types import VERDICTS, Cost, PairVerdict, Reason, Verdict
from scorio.moments import FloatArray

UNDECIDED = [VERDICTS.index(verdict) for verdict in (Verdict.OPEN, Verdict.OUT_OF_REACH)]
TWO_SIDED_95 = float(ndtri(0.975))


class ModelResult(NamedTuple):
    """One model: its place, the score a with its 95% interval on these questions, and Bayes@N beside it."""

    model: int
    rank: int
    tier: int
    letters: str
    """Models that share a letter are not shown to differ, whatever their tiers; "" against a fixed value."""
    score: float
    sigma: float
    lo: float
    hi: float
    bayes: float
    bayes_sigma: float
    sampled_sigma: float
    """Uncertainty of the score if the questions are a sample of similar questions; never below `sigma`."""
    trials: int
    """Graded trials."""
    lowest: float
    """The score with every ungraded answer and every unsure one in the worst category."""
    highest: float
    """The score with all of these in the best category."""
    unsure: int = 0
    """Those of `trials`, or of a recorded model's outcomes, that could be in another category (`Plan.unsure`)."""


class ComparisonResult(NamedTuple):
    """One of the objective's comparisons: the verdict on these questions, and the z on similar questions."""

    verdict: PairVerdict
    difference: float
    sigma: float
    sampled_z: float
    certifiable_delta: float
    """The smallest delta within which the trials left could certify a tie."""
    deciding_max: float
    """The least `trials.max` that would probably decide it, once the run has ended; infinite before, or if no
    plausible one would."""
    by_trial: bool
    """Whether it is judged by the differences of trials with the same seeds."""
    variance_by_trial: float | None
    """Variance of these differences over that of independent models: about the share of their trials needed; None if
    the pair is not judged by trials."""
    called: "Called | None"
    """None if the pair is neither resolved nor tied."""


class Called(NamedTuple):
    """When a comparison got its call or its tie: the look that crossed the boundary, and |z| then."""

    look: int
    """Counted from 1."""
    z: float
    boundary: float


class GateResult(NamedTuple):
    """One part of a gate for a model: on all questions, or on a benchmark that has a gate of its own."""

    model: int
    part: int
    """0: all questions; p: the p-th of the benchmarks that have a gate."""
    call: int
    """1: passed; -1: failed; 0: neither."""
    z: float
    """With delta added to the model's score: positive is better than the baseline less delta."""


class AnswerCost(NamedTuple):
    """What a model's answers cost, and what that means for the choice of the cheapest."""

    model: int
    usd: float
    """The mean over its first round, without the cost of servers that wait; nan before that."""
    usd_sigma: float
    """Its standard error; nan if the costs of single answers are unknown."""
    part: Part
    behind: int | None
    """The model that rules it out."""


class Result(NamedTuple):
    """The result of a look, for people and other programs."""

    reason: Reason | None
    models: tuple[ModelResult, ...]
    """From best to worst."""
    comparisons: tuple[ComparisonResult, ...]
    reversals: tuple[PairVerdict, ...]
    """Comparisons that were called and whose difference has since changed sign."""
    trials: int
    fixed_trials: int
    """Trials of the same models with the maximum number for each."""
    spent: Cost
    gates: tuple[GateResult, ...]
    """For each model but the baseline, if benchmarks have gates of their own."""
    costs: tuple[AnswerCost, ...]
    """From the cheapest to the dearest, for the choice of the cheapest; empty under other objectives."""
    trials_to_go: float
    """Trials until every open comparison is called, if differences stay the same, or reaches the horizon or a cap."""


def conclude(
    looks: LookTaker,
    look: JudgedLook,
    available: AvailableTrials,
    reason: Reason | None,
    spent: Cost,
    correction: ScoreCorrection | None = None,
) -> Result:
    """The result as of the latest look, or by scores with a correction for errors of the grader."""
    plan, bounds, decided = looks.plan, looks.tally.bounds(), looks.decided
    if correction is not None:
        look, decided = looks.correct(look, available, correction, anew=reason is not Reason.ALARM)
        bounds = None if bounds is None else correction.bounds(bounds)
    counts: NDArray[np.integer] = looks.tally.counts
    bench = plan.bench
    outcomes = counts if bench.prior_counts is None else counts + bench.prior_counts
    means = question_means(outcomes, bench.weights)
    compared = means if plan.estimator == "average" else question_means(outcomes + 1, bench.weights)
    comparisons = _comparisons(looks, look, decided, available, compared, correction, has_ended=reason is not None)
    return Result(
        reason=reason,
        models=_models(plan, look, available, means, bounds, looks.tally.unsure_answers),
        comparisons=comparisons,
        reversals=_reversals(plan, look, available),
        trials=int(available.trials.sum()),
        fixed_trials=int(bench.asked.sum()) * bench.questions * plan.trials.max,
        spent=spent,
        gates=() if look.evidence.gate is None else _gates(look),
        costs=_costs(look, available),
        trials_to_go=min(
            _trials_to_go(plan, [comparison.verdict for comparison in comparisons], available),
            available.affordable + float(available.reserved[~available.set_aside].sum()),
        ),
    )


def _costs(look: JudgedLook, available: AvailableTrials) -> tuple[AnswerCost, ...]:
    if (choice := look.choice) is None or available.costs is None:
        return ()
    (usd, sigma), ruler = available.costs.T.tolist(), choice.ruled_out_by.tolist()
    by_cost = np.argsort(np.nan_to_num(available.costs[:, 0], nan=np.inf), kind="stable").tolist()
    return tuple(
        AnswerCost(model, usd[model], sigma[model], choice.part_of(model), None if ruler[model] < 0 else ruler[model])
        for model in by_cost
    )


def _trials_to_go(plan: Plan, pairs: Sequence[PairVerdict], available: AvailableTrials) -> float:
    target = np.zeros(plan.bench.models + 1)
    open_pairs = [(pair.first, pair.second, pair.trials_needed) for pair in pairs if pair.verdict is Verdict.OPEN]
    if open_pairs:
        first, second, needed = zip(*open_pairs, strict=True)
        # needed is nan before there is a difference: then it counts as trials.max
        trials = np.fmin(np.array(needed), plan.trials.max) * plan.bench.questions
        np.maximum.at(target, np.array(first), trials)
        np.maximum.at(target, np.array([plan.bench.models if model is None else model for model in second]), trials)
    return float(np.maximum(target[:-1] - available.trials, 0.0)[plan.bench.asked].sum())


def question_means(counts: NDArray[np.integer], weights: FloatArray) -> FloatArray:
    """Each model's mean value on each question (L, M); nan without a trial."""
    trials = counts.sum(axis=-1)
    return np.where(trials > 0, counts @ weights / np.maximum(trials, 1), math.nan)


def _models(
    plan: Plan,
    look: JudgedLook,
    available: AvailableTrials,
    means: FloatArray,
    bounds: ScoreBounds | None,
    unsure: NDArray[np.integer],
) -> tuple[ModelResult, ...]:
    estimates, sigma = look.estimates, look.estimates.sigma()
    sampled = np.sqrt(_similar_question_variance(estimates.var, plan.source.sampled_variance(means, plan.bench)))
    bayes_sigma = np.sqrt(estimates.bayes_var)
    tier, ends = tiers(look), (estimates, estimates) if bounds is None else (bounds.lowest, bounds.highest)
    model_letters = letters(look)
    return tuple(
        ModelResult(
            model=model,
            rank=place + 1,
            tier=tier[model],
            letters=model_letters[model],
            score=float(estimates.score[model]),
            sigma=float(sigma[model]),
            lo=float(estimates.score[model] - TWO_SIDED_95 * sigma[model]),
            hi=float(estimates.score[model] + TWO_SIDED_95 * sigma[model]),
            bayes=float(estimates.bayes[model]),
            bayes_sigma=float(bayes_sigma[model]),
            sampled_sigma=float(sampled[model]),
            trials=int(available.trials[model]),
            lowest=float(ends[0].score[model]),
            highest=float(ends[1].score[model]),
            unsure=int(unsure[model]),
        )
        for place, model in enumerate(look.order.tolist())
    )


def _similar_question_variance(fixed: FloatArray, sampled: FloatArray) -> FloatArray:
    """The variance on similar questions: as the questions' means show it, but no less than on these questions alone.

    The true variance is the sum of both parts. If all answers are wrong, or few questions happen to agree, the means
    show no variance, though the posterior allows for some.
    """
    return np.maximum(fixed, sampled)


def _comparisons(
    looks: LookTaker,
    look: JudgedLook,
    decided: DecidingLooks,
    available: AvailableTrials,
    means: FloatArray,
    correction: ScoreCorrection | None,
    *,
    has_ended: bool,
) -> tuple[ComparisonResult, ...]:
    plan, evidence, pairs = looks.plan, look.evidence, look.pairs
    source, tally, reference = plan.source, looks.tally, plan.objective.reference
    at, margin = evidence.positions(pairs), evidence.margin
    over_all = replace(evidence, deciding=None).positions(pairs)
    with_reference = np.append(means, np.full((1, means.shape[1]), reference or 0.0), axis=0)
    corrections = None if correction is None else correction.differences(pairs)
    difference, sampled = source.differences(tally, evidence, pairs, with_reference, corrections)
    sigma = evidence.sigma[over_all]
    spread = np.sqrt(_similar_question_variance(sigma**2, sampled))
    lead = np.zeros(len(pairs))
    if margin is not None:
        lead = np.where(evidence.first[at] == pairs[:, 0], margin.delta, -margin.delta)
    judged = difference + lead
    z = np.divide(judged, spread, out=np.zeros_like(spread), where=spread > 0.0)
    mask = 1.0 if look.compares else math.nan
    deciding = np.full(len(pairs), math.inf)
    if has_ended:
        (undecided,) = np.nonzero(np.isin(look.verdicts, UNDECIDED))
        goes_on_from = (looks.look_at_rounds if correction is None else None) or look
        deciding[undecided] = deciding_horizons(looks, goes_on_from, at[undecided])
    columns = (
        describe(look, pairs, look.verdicts, available, plan.bench.questions),
        (mask * np.where(np.isfinite(sigma), difference, math.nan)).tolist(),
        sigma.tolist(),
        (mask * z).tolist(),
        (mask * look.forecast.certifiable[over_all]).tolist(),
        deciding.tolist(),
        source.judged_by_trial(evidence, pairs).tolist(),
        [None if math.isnan(variance) else variance for variance in source.variances_by_trial(tally, pairs).tolist()],
        [
            Called(number, z, boundary) if latched else None
            for latched, number, z, boundary in zip(
                decided.latched[at].tolist(),
                decided.look[at].tolist(),
                (mask * decided.z[at]).tolist(),
                (mask * decided.boundary[at]).tolist(),
                strict=True,
            )
        ],
    )
    return tuple(map(ComparisonResult, *columns))


def _gates(look: JudgedLook) -> tuple[GateResult, ...]:
    evidence = look.evidence
    return tuple(
        GateResult(model, part, int(look.memory.call[at]), float(evidence.z[at]))
        for part, rows in enumerate(rows_of_gates(evidence))
        for at, model in zip(rows.tolist(), evidence.first[rows].tolist(), strict=True)
    )


def _reversals(plan: Plan, look: JudgedLook, available: AvailableTrials) -> tuple[PairVerdict, ...]:
    """Called pairs, among all judged ones, whose difference has the opposite sign today."""
    evidence, call = look.evidence, look.memory.call
    reversed_at = np.flatnonzero((call != 0) & (np.sign(evidence.z) == -call))
    # under a gate, pairs with the baseline or value are judged by the difference with its margin
    at = reversed_at[
        evidence.positions(np.stack([evidence.first, evidence.second], axis=1)[reversed_at]) == reversed_at
    ]
    ahead = (evidence.z[at] >= 0.0) | evidence.against_reference
    first, second = evidence.first[at], evidence.second[at]
    pairs = np.stack([np.where(ahead, first, second), np.where(ahead, second, first)], axis=1)
    resolved = np.full(len(at), VERDICTS.index(Verdict.RESOLVED))
    return describe(look, pairs, resolved, available, plan.bench.questions)
