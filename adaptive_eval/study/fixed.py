"""The fixed design for comparison: N trials of every question by every model, and one look at the end.

*Time.* All its trials are there from the start, so every slot is busy until none is waiting. Its time is therefore work
divided by slots, except for the last few answers of every slot; only those are simulated. Places that models share all
work to the end, the last of them as further replicas.

*Calls.* At its look, neighbours in the order of the scores differ if z is at least 1.645 (paper, section 2.9), with
the standard errors that a run itself would use: its prior, not the uniform one, whose intervals are wider than they
need be. They are computed for every N at once, so that a run that stops by itself can be compared with the smallest N
that calls as many pairs. The maximum of trials for every model calls more pairs than a run that gives up on some, so a
share of its cost says little. Nobody knows that smallest N beforehand.
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

LAST = 8
"""Last answers of each slot, which are simulated."""


def fixed_seconds(scenario: Scenario, counts: FloatArray) -> float | None:
    """Seconds for `counts` (L, K) answers of each model and category; None if unknown, or if some are stored."""
    served = scenario.served
    if not served.usage.knows_seconds or served.recorded is not None:
        return None
    alone = _seconds_alone(scenario, counts)
    turned = {model for group in served.in_turn for model in group.models}
    own = [seconds for model, seconds in enumerate(alone) if model not in turned]
    shared = (sum(alone[model] for model in group.models) / len(group.places) for group in served.in_turn)
    answers = float(counts.sum())
    return served.verdicts.last_verdict(max([*own, *shared]), float(np.min(served.usage.seconds)), answers)


def fixed_held(scenario: Scenario, counts: FloatArray) -> float:
    """GPU seconds for which the run's servers are held for `counts` (L, K); 0 if times are unknown."""
    launched, known = scenario.served.launched, scenario.served.usage.knows_seconds
    alone = _seconds_alone(scenario, counts) if launched and known else ()
    return float(sum(gpus * alone[model] for model, gpus in launched.items() if alone))


def _seconds_alone(scenario: Scenario, counts: FloatArray) -> list[float]:
    """Seconds that a server of each model would take, with its start if the run starts it."""
    served, rng = scenario.served, np.random.default_rng([scenario.seed, 2])
    alone = [_model_seconds(scenario, model, own, rng) if own.any() else 0.0 for model, own in enumerate(counts)]
    started = {*served.launched, *(model for group in served.in_turn for model in group.models)}
    return [s + served.swap_seconds * (model in started and s > 0.0) for model, s in enumerate(alone)]


def _model_seconds(scenario: Scenario, model: int, counts: FloatArray, rng: np.random.Generator) -> float:
    """Seconds from a model's first answer to its last."""
    usage, slots, trials = scenario.served.usage, scenario.served.slots[model], float(counts.sum())
    last = min(LAST * slots, round(trials))
    spread = usage.log_spread[model]
    means = usage.seconds[model][rng.choice(len(counts), last, p=counts / trials)]
    load = TrialLoad(model, means * np.exp(spread * rng.standard_normal(last) - spread**2 / 2.0))
    SimulatedHost((model,), slots).issue(load, 0.0)
    return float(counts @ usage.seconds[model]) * (1.0 - last / trials) / slots + load.end


Z = 1.645


def fixed_calls(
    tape: Tape,
    truth: FloatArray,
    questions: int,
    most: int,
    z: float = Z,
    g: FloatArray | None = None,
    prior: Prior = "self",
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The neighbours (N, L - 1) that the fixed design tells apart after each of its first `most` trials, and which of
    these calls are for a model that is truly worse or equal; a call takes `z`, questions weigh `g`."""
    score, variance = _estimates(first_outcomes(tape, len(truth), questions, most), tape.weights, g, prior)
    order = np.argsort(-score, axis=1, kind="stable")
    ranked, spread, true = (np.take_along_axis(one, order, axis=1) for one in (score, variance, truth + 0.0 * score))
    called = compare(ranked[:, :-1], spread[:, :-1], ranked[:, 1:], spread[:, 1:]).z >= z
    return called, called & (true[:, :-1] - true[:, 1:] <= EQUAL)


def calls_by_trials(plan: Plan, tape: Tape, chances: FloatArray, confidence: float) -> FloatArray:
    """(N,): how many neighbours the fixed design tells apart after 1, 2 ... trials, in a world of these chances."""
    bench, z = plan.bench, float(ndtri(confidence))
    truth = bench.mean(chances @ bench.weights)
    called, _ = fixed_calls(tape, truth, bench.questions, plan.trials.max, z, bench.question_weights, plan.prior)
    return np.asarray(called.sum(axis=1))


def first_outcomes(tape: Tape, models: int, questions: int, most: int) -> IntArray:
    """The categories of the first `most` trials of every model and question: (L, M, N)."""
    shape = (models, questions)
    trials = TrialArrays.from_round(np.zeros(shape, dtype=np.int64), np.full(shape, most))
    return tape.categories(trials).astype(np.int64).reshape(*shape, most)


def _estimates(
    outcomes: IntArray, weights: FloatArray, g: FloatArray | None, prior: Prior
) -> tuple[FloatArray, FloatArray]:
    """Score and variance of every model (N, L), after each trial."""
    models, questions, most = outcomes.shape
    counts = (outcomes[..., None] == np.arange(len(weights))).cumsum(axis=2)
    cells = np.moveaxis(counts, 2, 0).reshape(most * models, questions, len(weights))
    found = estimate(cells, weights, prior, cells.sum(axis=-1), g=g)
    return found.score.reshape(most, models), found.var.reshape(most, models)


def smallest_fixed(curve: FloatArray, wanted: float) -> float | None:
    """The N, possibly fractional, at which a curve over N = 1, 2 ... first reaches `wanted`; None if it never does."""
    reached = np.flatnonzero(curve >= wanted)
    if not reached.size:
        return None
    after = int(reached[0])
    if after == 0:
        return 1.0
    before = curve[after - 1]
    return float(after + (wanted - before) / (curve[after] - before))


MOST_WORLDS = 20
MOST_TRIALS = 2_000_000
"""Trials of all these worlds together; the fixed design is evaluated after each of its trials."""


def fixed_with_as_many(
    plan: Plan,
    worlds: Sequence[FloatArray],
    runs: Sequence[SimulatedRun],
    served: ServiceCosts,
    seed: int,
    confidence: float,
) -> FixedWithAsMany | None:
    """The smallest fixed design, and the runs' cost relative to it; None if the objective does not compare neighbours,
    outcomes are known beforehand, or it would take too long."""
    bench, most = plan.bench, plan.trials.max
    few = min(len(runs), MOST_WORLDS, MOST_TRIALS // (bench.models * bench.questions * most))
    begun = plan.drawn or plan.first is not None or bench.prior_counts is not None
    if not isinstance(plan.objective, Ranking) or bench.models < 2 or begun or few == 0:
        return None
    tapes = [tape_of_world(plan, world, served, (seed, number)) for number, world in enumerate(worlds[:few])]
    curves = [calls_by_trials(plan, *drawn, confidence) for drawn in zip(tapes, worlds, strict=False)]
    called = float(np.mean([sum(one.verdict == Verdict.RESOLVED for one in run.comparisons) for run in runs[:few]]))
    trials = float(np.mean([run.trials for run in runs[:few]]))
    number = smallest_fixed(np.mean(curves, axis=0), called)
    cost = bench.models * bench.questions * (most if number is None else number)
    return FixedWithAsMany(number, called, trials / cost, few)
