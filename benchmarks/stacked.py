"""Many replays of one plan side by side, by the same decisions as one controller each, in a hundredth of the time."""

from typing import Any, NamedTuple

import numpy as np
from scenarios import Scenario

from adaptive_eval.core import Controller, Plan
from adaptive_eval.core.evidence import estimate
from adaptive_eval.core.stack import MAX_CELLS, RunStack, StackedEnd, SummedTapes, can_stand_side_by_side
from adaptive_eval.core.types import Verdict
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.judged import EQUAL
from scorio.moments import FloatArray, IntArray

NORMAL = 1.959964
"""Standard errors of a 95% interval, either way."""


class Played(NamedTuple):
    """One replay: how it ended, and the counts (L, M, K) of its first look."""

    end: StackedEnd
    opened: IntArray


class Ended(NamedTuple):
    """How the replays of a plan ended."""

    cost: float
    """Mean share of the fixed design's trials."""
    called: float
    """Mean number of neighbours that were told apart."""
    wrong: float
    """Share of runs in which a neighbour was called in the wrong order, or told apart from an equal one."""
    ties_called: float
    """Share of exactly equal neighbours that were told apart."""
    coverage: float
    """Share of 95% intervals that contain the truth."""
    bias: float
    """The largest mean error of a score over the models, in points."""


def replay_stacked(scenario: Scenario, runs: int, **choices: Any) -> Ended:
    """Seeded replays of the scenario with the plan's defaults but for the choices."""
    plan, truth = scenario.plan(**{"trials": scenario.trials, **choices}), scenario.world.truth
    ends = [run.end for run in play_stacked(scenario, plan, runs)]
    counts = np.stack([end.counts for end in ends])
    estimates = estimate(counts.reshape(-1, *counts.shape[2:]), plan.bench.weights, plan.prior, np.array(scenario.cap))
    errors = estimates.score.reshape(len(ends), -1) - truth
    called, wrong, equal, equal_called = np.array([_calls(end, truth) for end in ends]).T
    return Ended(
        cost=float(counts.sum()) / (counts[..., 0].size * scenario.cap),
        called=float(called.mean()),
        wrong=float(wrong.mean()),
        ties_called=float(equal_called.sum() / max(equal.sum(), 1)),
        coverage=float((np.abs(errors) <= NORMAL * estimates.sigma().reshape(errors.shape)).mean()),
        bias=100.0 * float(np.abs(errors.mean(axis=0)).max()),
    )


def _calls(end: StackedEnd, truth: FloatArray) -> tuple[int, bool, int, int]:
    """Calls of a run, whether any is wrong, its neighbours that are exactly equal, and those of them with a winner."""
    pairs = [
        (pair, float(truth[pair.first] - truth[pair.second])) for pair in end.comparisons if pair.second is not None
    ]
    resolved = [(pair, lead) for pair, lead in pairs if pair.verdict is Verdict.RESOLVED]
    called = [lead for pair, lead in resolved if not pair.reversed]
    equal, equal_called = (sum(abs(lead) <= EQUAL for _, lead in of) for of in (pairs, resolved))
    return len(called), any(lead <= EQUAL for lead in called), equal, equal_called


def play_stacked(scenario: Scenario, plan: Plan, runs: int) -> list[Played]:
    """Seeded replays of a plan; one that cannot stand side by side takes a controller for each, and much longer."""
    bench, played = plan.bench, list[Played]()
    at_once = max(MAX_CELLS // (bench.models * bench.questions), 1)
    for begin in range(0, runs, at_once):
        seeds = range(begin, min(begin + at_once, runs))
        tapes = SummedTapes([scenario.tape(seed) for seed in seeds], bench.categories)
        if can_stand_side_by_side(plan):
            ends = RunStack(plan, tapes, len(seeds)).ends()
        else:
            alone = [drive_rounds(Controller(plan), scenario.tape(seed)) for seed in seeds]
            ends = [StackedEnd(run.finished, run.counts, run.looks[-1].comparisons) for run in alone if run.finished]
        opened = tapes.counts(np.arange(len(seeds) * bench.models), np.tile(plan.opening, (len(seeds), 1)))
        played += map(Played, ends, opened.reshape(len(seeds), bench.models, bench.questions, bench.categories))
    return played
