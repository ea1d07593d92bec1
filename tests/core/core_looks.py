"""A look taken on given counts, without a run, and evidence on pairs built by hand."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from adaptive_eval.core import Bench, Objective, PairVerdict, Plan, Ranking, Rule
from adaptive_eval.core.evidence import Estimates, Evidence, Prior, update
from adaptive_eval.core.judge import Criteria, Judging, LatchedVerdicts
from adaptive_eval.core.look import JudgedLook, describe, evidence_readings, judge_look
from adaptive_eval.core.pair_trials import AvailableTrials
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.testing.decisions import made_evidence

BINARY = (0.0, 1.0)


class Looker:
    """Take looks one after another at ragged counts (L, M, K), keeping latched verdicts."""

    def __init__(
        self,
        objective: Objective | None = None,
        rule: Rule | None = None,
        judging: Judging | None = None,
        *,
        weights: Sequence[float] = BINARY,
        prior: Prior = "uniform",
        horizon: int = 80,
    ) -> None:
        self.objective = objective or Ranking()
        self.rule = rule or Sequential()
        self.judging = judging or Judging(futility=None)
        self.weights = np.array(weights)
        self.prior: Prior = prior
        self.horizon = horizon
        self.memory: LatchedVerdicts | None = None

    def look(
        self, counts: Sequence[object], *, affordable: float = math.inf, set_aside: Collection[int] = ()
    ) -> tuple[JudgedLook, dict[tuple[int, int | None], PairVerdict]]:
        """The standing, and the comparisons by their models."""
        tally = np.array(counts, dtype=np.int32)
        models, questions, _ = tally.shape
        if self.memory is None:
            pairs = models if self.objective.reference is not None else models * (models - 1) // 2
            self.memory = LatchedVerdicts.blank(pairs)
        bench = Bench(models, questions, self.weights)
        rule = Plan(bench, objective=self.objective, rule=self.rule, judging=self.judging).deciding_rule
        with_trials = np.flatnonzero(tally.sum(axis=(1, 2)) > 0)
        estimates = update(Estimates.nothing(bench), with_trials, tally, bench, self.prior, self.horizon)
        trials = tally.sum(axis=(1, 2), dtype=np.int64)
        aside = np.isin(np.arange(models), list(set_aside))
        before, recorded = np.zeros_like(trials), np.zeros(len(trials), dtype=bool)
        remaining = self.horizon * questions - trials
        available = AvailableTrials(
            trials, remaining, affordable, aside, before, recorded, np.zeros_like(trials), np.zeros_like(aside)
        )
        criteria = Criteria(self.objective, rule, self.judging)
        ways = evidence_readings(estimates, criteria)
        standing = judge_look(estimates, ways, self.memory, criteria, available)
        self.memory = standing.memory
        comparisons = {
            (pair.first, pair.second): pair
            for pair in describe(standing, standing.pairs, standing.verdicts, available, questions)
        }
        return standing, comparisons


def binary(right: Sequence[int], trials: int) -> list[list[int]]:
    """One model's counts: how many of `trials` were right, question by question."""
    return [[trials - count, count] for count in right]


def evidence(
    models: int, z: list[float], information: list[float], sigmas: list[float] | None = None, reference: bool = False
) -> Evidence:
    """The pairs of `models` models, or each against a fixed value, with these z and information."""
    values = (np.array(numbers, dtype=float) for numbers in (z, information, sigmas or [0.03] * models))
    return made_evidence(models, reference, *values)
