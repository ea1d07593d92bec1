"""How far scores are off in the mean because looks end a run, and what that is for a run that has ended.

A run asks a model no more when a difference looks large, or too small to be decided. So the mean of a score over many
runs is not the truth: of the losers of a search for the best it is up to a point too low. How far it is off depends on
the models and the questions, and can be found where these are known, by playing the run again many times. Here the
models answer as the posterior means of the run's own trials say, by the self-centred prior; the mean error of a score
over these replays is what the run's own score is corrected by: the parametric bootstrap, Whitehead's (1986) bias
correction with its first step alone.

The mean of so few replays is uncertain itself. Part of each error was there at the first look, and has the mean 0
whatever came later: a control variate, which takes half of that uncertainty away.

Verdicts and intervals are of the score, as it is: a corrected one spreads a little more, and was not what the looks
have seen. How far either is off, and how often intervals hold the truth: benchmarks/bias.md.
"""

import math
import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.plan import NOTHING_SPENT, Plan
from adaptive_eval.core.result import question_means
from adaptive_eval.core.settings import Bench, Budget
from adaptive_eval.core.side_by_side import can_stand_side_by_side
from adaptive_eval.core.stack import RunStack, StackMember, SummedTapes
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Reason
from scorio.moments import FloatArray, IntArray
from scorio.sinf.prior import fitted_by_group, self_centred_prior

REPLAYS = 32
MOST_TRIALS = 200_000
"""Of a run at its horizon: replays of 12 models on 30 questions, 28,800 trials at most, take half a second, or two
where they cannot stand side by side."""
AT_CAPS = (Reason.BUDGET, Reason.WALL_TIME, Reason.GPU_TIME)


class EarlyStop(NamedTuple):
    """How far the scores of runs like one that has ended are off in the mean."""

    shift: FloatArray
    """(L,): what such a score has too much; nan of recorded models, which are not asked."""
    spread: float
    """What (score - truth)/sigma spreads by about 0, over all models: below 1, intervals are wider than they say."""
    replays: int


@dataclass(frozen=True, slots=True, eq=False)
class EndedRun:
    """A run that its looks may have ended, as it ended: what it takes to play it again."""

    plan: Plan
    counts: IntArray
    """(L, M, K): of complete rounds."""
    reason: Reason
    affordable: float
    """Further trials that caps would have paid for."""
    set_aside: bool
    """It went on without some of its models."""
    judged: FloatArray
    """(L,): the share of each model's trials that looks have seen: no others were asked for what they showed."""

    @classmethod
    def from_controller(cls, controller: Controller) -> "EndedRun | None":
        """The run of a controller; None if it goes on, or had all of its trials before its first look."""
        reason, plan = controller.finished, controller.plan
        if reason is None or controller.standing is None or plan.fixed:
            return None
        counts = controller.counts - controller.overrun
        judged = counts.sum(axis=(1, 2)) / np.maximum(controller.trials, 1)
        return cls(plan, counts, reason, float(controller.available.affordable), bool(controller.set_aside), judged)

    @property
    def why_not(self) -> str | None:
        """The reason why it is not simulated; None if it can be."""
        plan, bench, trials = self.plan, self.plan.bench, self._most()
        asked = bench.prior_counts is not None and bool(bench.prior_counts[bench.asked].any())
        reasons = {
            "questions were drawn, and of most a model had one trial at most": plan.drawn > 0,
            "models shared the seeds of their trials": plan.coupled,
            "outcomes of an earlier run count too (R0)": asked,
            "its horizon was changed": bool(plan.earlier),
            "it went on without a model": self.set_aside,
            f"it may have had {trials:,} trials, more than {MOST_TRIALS:,}": trials > MOST_TRIALS,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def replay(self, replays: int) -> EarlyStop:
        """Simulate so many runs like it, the same ones at each call; `why_not` must be None."""
        bench, plan, chances = self.plan.bench, self._plan(), self._chances()
        rng = np.random.default_rng(zlib.crc32(self.counts.astype("<i8").tobytes()))
        together = can_stand_side_by_side(plan) and self._most() * (bench.categories - 1) <= MOST_TRIALS
        opened, ended = (_side_by_side if together else _simulate_singly)(plan, chances, replays, rng)
        truth = bench.mean(chances @ bench.weights)
        errors = _scores(ended, bench) - truth
        shift = _mean_by_control(errors, _scores(opened, bench) - truth)
        standardised = errors[:, bench.asked] / self._sigmas(ended[:, bench.asked])
        spread = float(np.sqrt(np.square(standardised).mean()))
        return EarlyStop(np.where(bench.asked, shift * self.judged, math.nan), spread, replays)

    def _sigmas(self, counts: IntArray) -> FloatArray:
        """(n, L): of the scores, as the run takes them to be."""
        bench, horizon = self.plan.bench, np.array(self.plan.trials.max)
        cells = counts.reshape(-1, *counts.shape[2:])
        g, groups = bench.question_weights, bench.benchmark_of
        found = estimate(cells, bench.weights, self.plan.prior, horizon, bayes=False, g=g, groups=groups)
        return found.sigma().reshape(counts.shape[:2])

    def _most(self) -> int:
        """Trials at the horizon."""
        return int(self.plan.bench.asked.sum()) * self.plan.bench.questions * self.plan.trials.max

    def _chances(self) -> FloatArray:
        """(L, M, K): of each category, the posterior means."""
        bench = self.plan.bench
        nu = self.counts + fitted_by_group(
            partial(self_centred_prior, w=bench.weights), self.counts, bench.benchmark_of
        )
        return np.asarray(nu / nu.sum(axis=-1, keepdims=True))

    def _plan(self) -> Plan:
        """The plan with what its caps came to in trials, at the mean price: what a replay costs nobody knows."""
        left = 0.0 if self.reason in AT_CAPS else self.affordable
        trials = max(int(self.counts.sum()), int(self.plan.opening.sum()))
        budget = Budget(trials=trials + int(left)) if math.isfinite(left) else Budget()
        return replace(self.plan, budget=budget, spent_first=NOTHING_SPENT)


class _Counts(NamedTuple):
    """(n, L, M, K) each, of so many runs."""

    opened: IntArray
    """Of trials that nothing was decided by yet."""
    ended: IntArray


def _side_by_side(plan: Plan, chances: FloatArray, runs: int, rng: np.random.Generator) -> _Counts:
    tapes = [Tape.from_chances(chances, plan.bench.weights, own) for own in rng.spawn(runs)]
    summed = SummedTapes(tapes, plan.bench.categories, plan.trials.max)
    members = [StackMember(at, plan.budget.trials) for at in range(runs)]
    ends = RunStack(plan, summed, members).ends()
    every = np.arange(runs * plan.bench.models)
    opened = summed.counts(every, np.tile(plan.opening, (runs, 1)))
    return _Counts(opened.reshape(runs, *chances.shape), np.array([end.counts for end in ends]))


def _simulate_singly(plan: Plan, chances: FloatArray, runs: int, rng: np.random.Generator) -> _Counts:
    return _Counts(*map(np.array, zip(*(_simulate_run(plan, chances, rng) for _ in range(runs)), strict=True)))


def _simulate_run(plan: Plan, chances: FloatArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """The counts of one run at its first look, and at its end."""
    controller = Controller(plan, keep_looks=False)
    opened: IntArray | None = None
    while controller.finished is None:
        for asked in controller.ask_rounds():
            controller.tell_round(asked, rng.multinomial(asked.extra, chances))
        if opened is None and controller.standing is not None:
            opened = controller.counts.copy()
    assert opened is not None
    return opened, controller.counts


def _scores(counts: IntArray, bench: Bench) -> FloatArray:
    """(n, L): nan of models that were not asked."""
    return bench.mean(question_means(counts, bench.weights))


def _mean_by_control(of: FloatArray, control: FloatArray) -> FloatArray:
    """The means of columns (n, L), with a control beside each whose mean is 0."""
    rest = control - control.mean(axis=0)
    square = np.square(rest).sum(axis=0)
    slope = np.divide((of * rest).sum(axis=0), square, out=np.zeros_like(square), where=square > 0.0)
    return np.asarray(of.mean(axis=0) - slope * control.mean(axis=0))
