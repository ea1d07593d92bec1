"""Verdicts by corrected scores, if errors of the grader were measured.

A run decides by its grades. Human labels show how far the grader is off for each model. That shifts a score and adds to
its variance (`scorio.eval.corrected`). Then the latest look is judged once more by the corrected scores: the same rule,
at the same information, with a larger standard error. A comparison gets the verdict of its corrected difference. If
that has none, a call or a tie by the grades no longer stands: the labels leave it undecided.

If only one of the two scores is corrected, the grader's error with the other is unknown, and may be the same. Then a
verdict by the grades stands only if the corrected score supports it too, and nothing is decided anew. The same holds
for all comparisons of a run that an alarm has ended (`answer_alarms`).

A call by the grades stands if |z| of the corrected difference reaches a normal quantile, that of 1 - 0.4 (1 -
confidence): 2.05 at 0.95. That the run may have stopped at a look that suited the call was paid for by its own
boundary. A new call, or one in the other direction, needs the boundary of the rule at this look, as any call does.
Simulated for all amounts of bias of a grader and of normal noise of labels, at 6 and at 40 looks, a confidence of 0.95
then gives the wrong order in at most 4.6% of runs, and a call between equal models in at most 8.0%: both are within the
promise, which is 5% and 10% (`tests/core/test_core_result.py`). Where errors are so rare that labels may not show them,
and the scores themselves are exact, it is 3.1% for the order, and 5.5% against a fixed value. Labels should be given
once: looking at them again and again until something is decided causes more errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from adaptive_eval.core.evidence import Estimates, Evidence, IndexArray, cautious, counted_z
from adaptive_eval.core.gates import SeveralGates, deciding_parts
from adaptive_eval.core.judge import Criteria, DecidingLooks, LatchedVerdicts, judge
from adaptive_eval.core.look import (
    JudgedLook,
    VerdictsOf,
    models_in_order,
    reversed_by_unknown,
    with_comparisons,
    without_void,
)
from adaptive_eval.core.pair_trials import AvailableTrials
from adaptive_eval.core.rules import Correctable, Rule, calls, is_correctable, is_lenient
from adaptive_eval.core.tally import ScoreBounds
from adaptive_eval.core.types import VERDICTS, Verdict
from scorio.moments import FloatArray
from scorio.sinf.compare import tied

MIN_VARIANCE_SHARE = 0.1
"""A corrected variance is at least this share of the variance by the grades."""

CONFIRMING_SHARE = 0.4
"""Share of the error of the rule at which a call by the grades is confirmed."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCorrection:
    """Corrections of scores for errors of the grader: arrays (L, 1 + P), nan where a score is not corrected.

    Column 0 is the score on all questions, column p that on the p-th benchmark that has a gate of its own.
    """

    shift: FloatArray
    """Added to the score."""
    variance: FloatArray
    """Added to the variance of the score; it may be negative."""

    def estimates(self, graded: Estimates) -> Estimates:
        """The estimates with corrected scores."""
        shift, added = np.nan_to_num(self.shift), np.nan_to_num(self.variance)
        parts = graded.parts.copy()
        parts[:, :, 0] += shift[:, 1:]
        parts[:, :, 1] = _sum_of_variances(parts[:, :, 1], added[:, 1:])
        return replace(
            graded,
            score=graded.score + shift[:, 0],
            var=_sum_of_variances(graded.var, added[:, 0]),
            bayes=graded.bayes + shift[:, 0],
            bayes_var=_sum_of_variances(graded.bayes_var, added[:, 0]),
            parts=parts,
        )

    def bounds(self, graded: ScoreBounds) -> ScoreBounds:
        """The bounds of corrected scores."""
        return ScoreBounds(self.estimates(graded.lowest), self.estimates(graded.highest))

    def evidence(self, graded: Evidence) -> Evidence:
        """The evidence on corrected scores."""
        shift, added = (np.nan_to_num(self._of_sides(values, graded)) for values in (self.shift, self.variance))
        sigma = np.sqrt(_sum_of_variances(graded.sigma**2, added.sum(axis=0)))
        is_known = np.isfinite(sigma)
        difference = np.where(is_known, graded.difference + shift[0] - shift[1], 0.0)
        z = counted_z(difference, sigma, graded.skew)
        return replace(graded, difference=difference, sigma=sigma, z=z)

    def differences(self, pairs: IndexArray) -> FloatArray:
        """The amount added to the difference of each pair (n, 2) of models."""
        shift = np.append(np.nan_to_num(self.shift[:, 0]), 0.0)
        return np.asarray(shift[pairs[:, 0]] - shift[pairs[:, 1]])

    def corrected_sides(self, evidence: Evidence) -> NDArray[np.intp]:
        """How many of the two scores of each pair are corrected; a fixed value needs no correction."""
        corrected = np.isfinite(self._of_sides(self.shift, evidence)).sum(axis=0)
        return np.asarray(2 * corrected if evidence.against_reference else corrected)

    def _of_sides(self, values: FloatArray, evidence: Evidence) -> FloatArray:
        """(2, n): the values of the first and the second of each pair, on the pair's part of the gate."""
        part = np.zeros(len(evidence.z), np.intp) if evidence.gate is None else np.maximum(evidence.gate, 0)
        padded = np.append(values, np.full((1, values.shape[1]), np.nan), axis=0)  # the reference
        return np.stack([padded[evidence.first, part], padded[evidence.second, part]])


def _sum_of_variances(variance: FloatArray, added: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(variance + added, MIN_VARIANCE_SHARE * variance))


def corrected_look(
    graded_look: JudgedLook,
    readings: Sequence[Evidence],
    criteria: Criteria,
    available: AvailableTrials,
    correction: ScoreCorrection,
    decided: DecidingLooks,
    *,
    anew: bool = True,
) -> JudgedLook:
    """The look judged by corrected scores; forecasts stay those of the grades, but not how many trials a pair needs,
    none of which lowers the variance of labels.

    `readings` are those of the evidence by the grades, `decided` the looks that called or tied each pair. Unless
    `anew`, a verdict by the grades stands only if corrected scores support it too, and nothing is decided anew.
    """
    corrected_readings = [correction.evidence(reading) for reading in readings]
    evidence = replace(corrected_readings[0], deciding=None)
    sides, grades = correction.corrected_sides(evidence), graded_look.memory
    corrected, rule, boundary = judge_corrected(grades, corrected_readings, criteria, decided)
    memory = _merge(grades, corrected, sides if anew else np.minimum(sides, 1))
    reversible = reversed_by_unknown(corrected_readings, memory)
    memory = without_void(memory, evidence, available.void)
    if evidence.gate is not None:
        evidence = replace(evidence, deciding=deciding_parts(evidence, memory, graded_look.forecast))
    estimates = correction.estimates(graded_look.estimates)
    with np.errstate(invalid="ignore"):
        sampled_share = (1.0 - graded_look.fixed) * graded_look.evidence.sigma**2 / evidence.sigma**2
    look = replace(
        graded_look,
        estimates=estimates,
        evidence=evidence,
        cautious=cautious(corrected_readings),
        by_grades=graded_look.cautious,
        fixed=np.clip(1.0 - np.nan_to_num(sampled_share, nan=1.0), 0.0, 1.0),
        memory=memory,
        rule=rule,
        boundary=np.where(sides > 0, boundary, rule.boundary(evidence)),
        order=models_in_order(estimates.on(criteria.estimator), available.void),
        verdicts_of=partial(_verdicts, graded_look.verdicts_of, memory),
        reversible=reversible,
        choice=None,
    )
    return with_comparisons(look, criteria.objective, available)


def judge_corrected(
    grades: LatchedVerdicts, corrected_readings: Sequence[Evidence], criteria: Criteria, decided: DecidingLooks
) -> tuple[LatchedVerdicts, Rule, FloatArray]:
    """The verdicts of corrected evidence, the rule at the error level that they have reached, and what |z| must reach
    for a call.

    After a change of the horizon the rule's boundary is for pairs that are still open; a pair that was called needs no
    more for a call in the other direction than that call did.
    """
    corrected, rule = judge(LatchedVerdicts.blank(len(grades.call)), corrected_readings, criteria)
    # a lenient boundary depends on the standard error, which is larger now
    called = (grades.call != 0) & (not is_lenient(rule))
    at_call = np.where(called, np.nan_to_num(decided.boundary, nan=np.inf), np.inf)
    confirming = [_confirming_boundary(rule, scenario) for scenario in corrected_readings]
    bounds = [
        np.where(np.sign(scenario.z) == grades.call, confirming_z, np.minimum(at_call, rule.boundary(scenario)))
        for scenario, confirming_z in zip(corrected_readings, confirming, strict=True)
    ]
    ties = [
        tied(scenario.difference, scenario.sigma, confirming_z, criteria.judging.delta)
        for scenario, confirming_z in zip(corrected_readings, confirming, strict=True)
    ]
    tie = corrected.tie | (grades.tie & (corrected.call == 0) & np.all(ties, axis=0))
    call = np.where((corrected.call == 0) & ~tie, calls(rule, corrected_readings, bounds), corrected.call).astype(
        np.int8
    )
    return replace(corrected, call=call, tie=tie), rule, bounds[0]


def _confirming_boundary(rule: Rule, evidence: Evidence) -> FloatArray:
    """The |z| at which a call by the grades stands; for a rule without a confidence, its boundary."""
    boundary, level = rule.boundary(evidence), getattr(rule, "ties", rule)
    if not is_correctable(level):
        return boundary
    quantile = np.full(len(evidence.z), _quantile(level))
    if evidence.gate is not None and isinstance(rule, SeveralGates):  # a FAIL shares the error among all gates
        fails = (evidence.gate >= 0) & (evidence.z < 0.0)
        quantile[fails] = _quantile(rule.failing)
    return np.asarray(np.minimum(quantile, boundary))


def _quantile(rule: Correctable) -> float:
    return float(ndtri(1.0 - CONFIRMING_SHARE * (1.0 - rule.confidence)))


def _merge(grades: LatchedVerdicts, corrected: LatchedVerdicts, sides: NDArray[np.intp]) -> LatchedVerdicts:
    """The verdicts by the grades where no score is corrected, by corrected scores where both are, and else those on
    which both agree."""
    both = LatchedVerdicts(
        call=np.where(corrected.call == grades.call, corrected.call, 0).astype(np.int8),
        tie=corrected.tie & grades.tie,
        given_up=grades.given_up,
        p_first=np.maximum(corrected.p_first, grades.p_first),
        p_second=np.maximum(corrected.p_second, grades.p_second),
    )
    merged = {
        name: np.choose(sides, [getattr(verdicts, name) for verdicts in (grades, both, corrected)])
        for name in ("call", "tie", "p_first", "p_second")
    }
    return replace(grades, **merged)


def _verdicts(
    verdicts_by_grades: VerdictsOf, memory: LatchedVerdicts, pairs: IndexArray, at: IndexArray
) -> NDArray[np.intp]:
    """Positions in VERDICTS: a call or a tie by the grades that corrected scores do not support is undecided."""
    by_grades = verdicts_by_grades(pairs, at)
    lapsed = np.isin(by_grades, [VERDICTS.index(Verdict.RESOLVED), VERDICTS.index(Verdict.TIED)])
    verdict = np.where(lapsed, VERDICTS.index(Verdict.UNDECIDED_BY_LABELS), by_grades)
    verdict = np.where(memory.tie[at], VERDICTS.index(Verdict.TIED), verdict)
    return np.where(memory.call[at] != 0, VERDICTS.index(Verdict.RESOLVED), verdict)
