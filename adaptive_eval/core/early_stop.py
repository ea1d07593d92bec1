"""The mean bias of scores because looks end a run, estimated for a run that has ended.

A run stops asking a model when a difference looks large, or too small to be decided. So the mean of a score over many
runs is not the true score: models that lose a search for the best score up to a point too low. The bias depends on the
models and the questions. If these are known, many replays of the run measure it. Here the models answer by the
posterior means of the run's own trials under the self-centred prior, and the mean error over these replays corrects the
run's own score. This parametric bootstrap is the first step of Whitehead's (1986) correction.

The mean of so few replays is itself uncertain. The part of each error that was there at the first look has the mean 0
whatever came later: as a control variate it removes half of that uncertainty.

Verdicts and intervals use the uncorrected score: a corrected one varies a little more, and was not what the looks saw.
How large both biases are, and how often intervals contain the true score: benchmarks/bias.md.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.result import question_means
from adaptive_eval.core.settings import Bench, Budget
from adaptive_eval.core.stack import RunStack, SummedTapes, can_stand_side_by_side
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cost, Reason
from scorio.moments import FloatArray, IntArray
from scorio.sinf.prior import fitted_by_group, self_centred_prior

REPLAYS = 32
MAX_HORIZON_TRIALS = 200_000
"""Trials of a run at its horizon. Replays of 12 models on 30 questions, at most 28,800 trials, take half a second, or
two seconds if they cannot run side by side."""
CUT_OFF = (Reason.WALL_TIME, Reason.GPU_TIME)
"""Reasons that end a run with rounds in flight."""


class EarlyStop(NamedTuple):
    """The mean bias of scores of runs like one that has ended."""

    shift: FloatArray
    """(L,): mean excess of the score; nan for recorded models, which are not asked."""
    spread: float
    """Root mean square of (score - truth)/sigma over all models: below 1, intervals are wider than they need be."""
    replays: int


@dataclass(frozen=True, slots=True, eq=False)
class EndedRun:
    """All that is needed to replay a run that looks may have ended."""

    plan: Plan
    counts: IntArray
    """(L, M, K): trials of complete rounds."""
    reason: Reason
    affordable: float
    """Further trials that caps would have paid for."""
    set_aside: bool
    """Whether it went on without some of its models."""
    judged: FloatArray
    """(L,): the share of each model's trials that looks have seen; only these were chosen by what looks showed."""
    parked: int = 0
    """Trials asked ahead of looks that none has seen: a cap on trials counts them."""
    usd: tuple[float, ...] = ()
    """Cost of an answer of each model, if the objective compares costs."""

    @classmethod
    def from_controller(cls, controller: Controller) -> "EndedRun | None":
        """The run of a controller; None if it has not ended, or had all its trials before its first look."""
        reason, plan = controller.finished, controller.plan
        if reason is None or controller.last_look is None or plan.fixed:
            return None
        counts = controller.counts - controller.overrun
        judged = counts.sum(axis=(1, 2)) / np.maximum(controller.trials, 1)
        available = controller.available
        unseen = (
            0 if plan.budget.bought or reason in CUT_OFF else int(available.reserved.sum() + controller.overrun.sum())
        )
        usd = () if available.costs is None else tuple(np.nan_to_num(available.costs[:, 0]).tolist())
        return cls(plan, counts, reason, float(available.affordable), bool(controller.set_aside), judged, unseen, usd)

    @property
    def why_not(self) -> str | None:
        """The reason why the run cannot be replayed; None if it can."""
        plan, bench, trials = self.plan, self.plan.bench, self._horizon_trials()
        asked = bench.prior_counts is not None and bool(bench.prior_counts[bench.asked].any())
        reasons = {
            "questions were drawn (trials.draw)": plan.drawn > 0,
            "models shared the seeds of their trials": plan.coupled,
            "outcomes of an earlier run count, too (R0)": asked,
            "settings were changed after a look": plan.before is not None,
            "a model was set aside": self.set_aside,
            f"it could have had {trials:,} trials, more than {MAX_HORIZON_TRIALS:,}": trials > MAX_HORIZON_TRIALS,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def replay(self, replays: int) -> EarlyStop:
        """Simulate `replays` runs like it, the same ones at each call; `why_not` must be None."""
        bench, plan, chances = self.plan.bench, self._replay_plan(), self._chances()
        rng = np.random.default_rng(zlib.crc32(self.counts.astype("<i8").tobytes()))
        side_by_side = (
            can_stand_side_by_side(plan) and self._horizon_trials() * (bench.categories - 1) <= MAX_HORIZON_TRIALS
        )
        if side_by_side:
            opened, ended = _side_by_side(plan, chances, replays, rng)
        else:
            opened, ended = _simulate_singly(plan, chances, replays, rng, self.usd)
        truth = bench.mean(chances @ bench.weights)
        errors = _scores(ended, bench) - truth
        shift = _mean_by_control(errors, _scores(opened, bench) - truth)
        standardised = errors[:, bench.asked] / self._sigmas(ended[:, bench.asked])
        spread = float(np.sqrt(np.square(standardised).mean()))
        return EarlyStop(np.where(bench.asked, shift * self.judged, math.nan), spread, replays)

    def _sigmas(self, counts: IntArray) -> FloatArray:
        """(n, L): sigmas of the scores, as the run would compute them."""
        bench, horizon = self.plan.bench, np.array(self.plan.trials.max)
        cells = counts.reshape(-1, *counts.shape[2:])
        g, groups = bench.question_weights, bench.benchmark_of
        estimates = estimate(cells, bench.weights, self.plan.prior, horizon, bayes=False, g=g, groups=groups)
        return estimates.sigma().reshape(counts.shape[:2])

    def _horizon_trials(self) -> int:
        """Trials at the horizon."""
        return int(self.plan.bench.asked.sum()) * self.plan.bench.questions * self.plan.trials.max

    def _chances(self) -> FloatArray:
        """(L, M, K): posterior mean probability of each category."""
        bench = self.plan.bench
        nu = self.counts + fitted_by_group(
            partial(self_centred_prior, w=bench.weights), self.counts, bench.benchmark_of
        )
        return np.asarray(nu / nu.sum(axis=-1, keepdims=True))

    def _replay_plan(self) -> Plan:
        """The plan with caps turned into trials at the mean price, since the cost of a replayed trial is unknown."""
        affordable = 0.0 if self.reason in (Reason.BUDGET, *CUT_OFF) else self.affordable
        trials = max(int(self.counts.sum()) + self.parked, int(self.plan.opening.sum()))
        budget = Budget(trials=trials + int(affordable)) if math.isfinite(affordable) else Budget()
        return replace(self.plan, budget=budget)


_Counts = tuple[IntArray, IntArray]
"""Counts (n, L, M, K) of n simulated runs at the first look, before anything was decided, and at their ends."""


def _side_by_side(plan: Plan, chances: FloatArray, runs: int, rng: np.random.Generator) -> _Counts:
    tapes = [Tape.from_chances(chances, plan.bench.weights, stream) for stream in rng.spawn(runs)]
    summed = SummedTapes(tapes, plan.bench.categories)
    ends = RunStack(plan, summed, runs).ends()
    rows = np.arange(runs * plan.bench.models)
    opened = summed.counts(rows, np.tile(plan.opening, (runs, 1)))
    return opened.reshape(runs, *chances.shape), np.array([end.counts for end in ends])


def _simulate_singly(
    plan: Plan, chances: FloatArray, runs: int, rng: np.random.Generator, usd: Sequence[float] = ()
) -> _Counts:
    costs = [[Cost(usd=price)] * plan.bench.categories for price in usd] or None
    opened, ended = zip(*(_simulate_run(plan, chances, rng, costs) for _ in range(runs)), strict=True)
    return np.array(opened), np.array(ended)


def _simulate_run(
    plan: Plan, chances: FloatArray, rng: np.random.Generator, costs: Sequence[Sequence[Cost]] | None
) -> tuple[IntArray, IntArray]:
    """The counts of one run at its first look, and at its end."""
    controller = Controller(plan, keep_looks=False)
    opened: IntArray | None = None
    while controller.finished is None:
        for asked in controller.ask_rounds():
            controller.tell_round(asked, rng.multinomial(asked.extra, chances), costs)
        if opened is None and controller.last_look is not None:
            opened = controller.counts.copy()
    assert opened is not None
    return opened, controller.counts


def _scores(counts: IntArray, bench: Bench) -> FloatArray:
    """(n, L): scores; nan for models that were not asked."""
    return bench.mean(question_means(counts, bench.weights))


def _mean_by_control(values: FloatArray, control: FloatArray) -> FloatArray:
    """The means of columns (n, L), each with a control variate of mean 0."""
    centred = control - control.mean(axis=0)
    square = np.square(centred).sum(axis=0)
    slope = np.divide((values * centred).sum(axis=0), square, out=np.zeros_like(square), where=square > 0.0)
    return np.asarray(values.mean(axis=0) - slope * control.mean(axis=0))
