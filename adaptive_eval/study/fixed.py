"""The fixed design for comparison: N trials of every question by every model, and one look at the end.

*Time.* All its trials are there from the start, so every slot is busy until none is waiting. Its time is therefore work
divided by slots, except for the last few answers of every slot; only those are simulated. Places that models share all
work to the end, the last of them as further replicas.

*Calls.* At its look, neighbours in the order of the scores differ if z is at least 1.645 (paper, section 2.9), with
the standard errors that a run itself would use: its prior, not the uniform one, whose intervals are wider than they
need be. They are computed for every N at once, so that a run that stops by itself can be compared with the smallest N
that calls as many pairs. The maximum of trials for every model calls more pairs than a run that gives up on some, so a
share of its cost says little. That smallest N is not known beforehand.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from adaptive_eval.core import Plan, Verdict
from adaptive_eval.core.evidence import Prior, estimate
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.tape import Tape, TrialArrays
from adaptive_eval.study.judged import EQUAL
from adaptive_eval.study.scenario import Scenario, ServiceCosts
from adaptive_eval.study.servers import SimulatedHost, TrialLoad
from adaptive_eval.study.simulated import SimulatedRun, tape_of_world
from adaptive_eval.study.types import FixedWithAsMany
from scorio.moments import FloatArray, IntArray
from scorio.sinf.compare import compare

TAIL_ANSWERS = 8
"""Last answers of each slot, which are simulated."""


def fixed_seconds(scenario: Scenario, counts: FloatArray) -> float | None:
    """Seconds for `counts` (L, K) answers of each model and category; None if unknown, or if some are stored."""
    served = scenario.served
    if not served.usage.knows_seconds or served.recorded is not None:
        return None
    seconds_alone = _seconds_alone(scenario, counts)
    taking_turns = {model for group in served.in_turn for model in group.models}
    unshared = [seconds for model, seconds in enumerate(seconds_alone) if model not in taking_turns]
    shared = (sum(seconds_alone[model] for model in group.models) / len(group.places) for group in served.in_turn)
    return max([*unshared, *shared])


def fixed_held(scenario: Scenario, counts: FloatArray) -> float:
    """GPU seconds for which the run's servers are held for `counts` (L, K); 0 if times are unknown."""
    launched = scenario.served.launched
    if not launched or not scenario.served.usage.knows_seconds:
        return 0.0
    seconds_alone = _seconds_alone(scenario, counts)
    return float(sum(gpus * seconds_alone[model] for model, gpus in launched.items()))


def _seconds_alone(scenario: Scenario, counts: FloatArray) -> list[float]:
    """Seconds that a server of each model would take, with its start if the run starts it."""
    served, rng = scenario.served, np.random.default_rng([scenario.seed, 2])
    seconds_alone = [
        _model_seconds(scenario, model, model_counts, rng) if model_counts.any() else 0.0
        for model, model_counts in enumerate(counts)
    ]
    started = {*served.launched, *(model for group in served.in_turn for model in group.models)}
    return [
        seconds + served.swap_seconds * (model in started and seconds > 0.0)
        for model, seconds in enumerate(seconds_alone)
    ]


def _model_seconds(scenario: Scenario, model: int, counts: FloatArray, rng: np.random.Generator) -> float:
    """Seconds from a model's first answer to its last."""
    usage, slots, trials = scenario.served.usage, scenario.served.slots[model], float(counts.sum())
    last = min(TAIL_ANSWERS * slots, round(trials))
    spread = usage.log_spread[model]
    means = usage.seconds[model][rng.choice(len(counts), last, p=counts / trials)]
    load = TrialLoad(model, means * np.exp(spread * rng.standard_normal(last) - spread**2 / 2.0))
    SimulatedHost((model,), slots).issue(load, 0.0)
    return float(counts @ usage.seconds[model]) * (1.0 - last / trials) / slots + load.end


Z_95 = 1.645


def fixed_calls(
    tape: Tape,
    truth: FloatArray,
    questions: int,
    max_trials: int,
    z: float = Z_95,
    g: FloatArray | None = None,
    prior: Prior = "self",
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The neighbours (N, L - 1) that the fixed design tells apart after each of its first `max_trials` trials, and the
    wrong calls among these: for a model that is truly worse or equal. A call takes `z`; questions have weights `g`."""
    score, variance = _estimates(first_outcomes(tape, len(truth), questions, max_trials), tape.weights, g, prior)
    order = np.argsort(-score, axis=1, kind="stable")
    ranked, spread, true_scores = (
        np.take_along_axis(values, order, axis=1) for values in (score, variance, truth + 0.0 * score)
    )
    called = compare(ranked[:, :-1], spread[:, :-1], ranked[:, 1:], spread[:, 1:]).z >= z
    return called, called & (true_scores[:, :-1] - true_scores[:, 1:] <= EQUAL)


def first_outcomes(tape: Tape, models: int, questions: int, trials_each: int) -> IntArray:
    """The categories of the first `trials_each` trials of every model and question: (L, M, N)."""
    trials = TrialArrays(*np.indices((models, questions, trials_each)))
    return tape.look_up(trials).astype(np.int64)


def _estimates(
    outcomes: IntArray, weights: FloatArray, g: FloatArray | None, prior: Prior
) -> tuple[FloatArray, FloatArray]:
    """Score and variance of every model (N, L), after each trial."""
    models, questions, max_trials = outcomes.shape
    counts = (outcomes[..., None] == np.arange(len(weights))).cumsum(axis=2)
    cells = np.moveaxis(counts, 2, 0).reshape(max_trials * models, questions, len(weights))
    estimates = estimate(cells, weights, prior, cells.sum(axis=-1), g=g)
    return estimates.score.reshape(max_trials, models), estimates.var.reshape(max_trials, models)


def smallest_fixed(curve: FloatArray, target: float) -> float | None:
    """The N, possibly fractional, at which a curve over N = 1, 2 ... first reaches `target`; None if it never does."""
    reached = np.flatnonzero(curve >= target)
    if not reached.size:
        return None
    index = int(reached[0])
    if index == 0:
        return 1.0
    before = curve[index - 1]
    return float(index + (target - before) / (curve[index] - before))


MAX_WORLDS = 20
MAX_TRIALS = 2_000_000
"""Trials of all these worlds together; the fixed design is evaluated after each of its trials."""


def fixed_with_as_many(
    plan: Plan,
    worlds: Sequence[FloatArray],
    runs: Sequence[SimulatedRun],
    served: ServiceCosts,
    seed: int,
    confidence: float,
) -> FixedWithAsMany | None:
    """The smallest fixed design, and the runs' cost relative to it; None if they call nothing, the objective does not
    compare neighbours, outcomes are known beforehand, or it would take too long."""
    bench, max_trials = plan.bench, plan.trials.max
    sample = min(len(runs), MAX_WORLDS, MAX_TRIALS // (bench.models * bench.questions * max_trials))
    has_outcomes = plan.source.by_question or plan.first is not None or bench.prior_counts is not None
    if not isinstance(plan.objective, Ranking) or bench.models < 2 or has_outcomes or sample == 0:
        return None
    z, curves = float(ndtri(confidence)), []
    for number, world in enumerate(worlds[:sample]):
        tape, truth = tape_of_world(plan, world, served, (seed, number)), bench.mean(world @ bench.weights)
        calls, _ = fixed_calls(tape, truth, bench.questions, max_trials, z, bench.question_weights, plan.prior)
        curves.append(calls.sum(axis=1))
    called = float(
        np.mean(
            [sum(comparison.verdict == Verdict.RESOLVED for comparison in run.comparisons) for run in runs[:sample]]
        )
    )
    if called == 0.0:
        return None
    trials = float(np.mean([run.trials for run in runs[:sample]]))
    trials_each = smallest_fixed(np.mean(curves, axis=0), called)
    cost = bench.models * bench.questions * (max_trials if trials_each is None else trials_each)
    return FixedWithAsMany(trials_each, called, trials / cost, sample)
