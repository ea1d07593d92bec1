"""The smallest fixed design that calls as many pairs, compared with a computation answer by answer."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from test_simulated import QUESTIONS, level, plan, served

from adaptive_eval.core import Plan, Trials
from adaptive_eval.core.objectives import Best
from adaptive_eval.core.tape import Tape
from adaptive_eval.study.fixed import fixed_with_as_many
from adaptive_eval.study.simulated import SimulatedRun, simulate_run
from scorio.moments import FloatArray

MODELS, MOST, SEED = 3, 24, 7
WORLDS = [level(0.8, 0.65, 0.5), level(0.7, 0.62, 0.6), level(0.9, 0.5, 0.45)]


def ranking() -> Plan:
    return plan(MODELS, trials=Trials(min=4, max=MOST))


def runs_of(run_plan: Plan, worlds: list[FloatArray]) -> list[SimulatedRun]:
    return [simulate_run(run_plan, world, served(MODELS), (SEED, number)) for number, world in enumerate(worlds)]


def called_after(tape: Tape, trials: int) -> int:
    """Neighbours separated by 1.645, from single counts and Beta(k + 1, N - k + 1) variances."""
    scores = []
    for model in range(MODELS):
        mean = variance = 0.0
        for question in range(QUESTIONS):
            right = sum(tape.category(model, question, trial) for trial in range(trials))
            a, b = right + 1, trials - right + 1
            mean += right / trials / QUESTIONS
            variance += ((trials + 2) / trials / QUESTIONS) ** 2 * a * b / ((a + b) ** 2 * (a + b + 1))
        scores.append((mean, variance))
    scores.sort(key=lambda score: -score[0])
    return sum(
        (first[0] - second[0]) / sqrt(first[1] + second[1]) >= 1.6448536
        for first, second in zip(scores, scores[1:], strict=False)
    )


def test_the_equivalent_fixed_design_matches_counting_answer_by_answer() -> None:
    run_plan = replace(ranking(), prior="uniform")
    runs = runs_of(run_plan, WORLDS)
    fixed = fixed_with_as_many(run_plan, WORLDS, runs, served(MODELS), SEED, 0.95)
    assert fixed is not None and fixed.number is not None and fixed.worlds == 3
    called = np.mean([sum(pair.verdict == "resolved" for pair in run.comparisons) for run in runs])
    curve = [
        np.mean([
            called_after(
                Tape.from_chances(world, run_plan.bench.weights, np.random.default_rng([SEED, number, 0])), trials
            )
            for number, world in enumerate(WORLDS)
        ])
        for trials in range(1, MOST + 1)
    ]  # fmt: skip
    needed = next(number for number, mean in enumerate(curve, start=1) if mean >= called)
    assert needed - 1 < fixed.number <= needed
    assert fixed.called == called > 0
    spent = np.mean([run.trials for run in runs])
    assert fixed.cost == pytest.approx(spent / (MODELS * QUESTIONS * fixed.number))


def test_the_fixed_design_is_judged_with_the_prior_of_the_plan() -> None:
    """The prior of the plan sets the width of both intervals; those of the uniform prior are wider."""
    numbers = []
    for prior in ("self", "uniform"):
        judged = replace(ranking(), prior=prior)
        fixed = fixed_with_as_many(judged, WORLDS, runs_of(ranking(), WORLDS), served(MODELS), SEED, 0.95)
        assert fixed is not None and fixed.number is not None
        numbers.append(fixed.number)
    assert numbers[0] < numbers[1]


def test_a_run_that_calls_more_than_the_fixed_design_is_compared_with_all_of_it() -> None:
    """One look calls few equal models; here the run is made to have called all pairs."""
    run_plan, equal = ranking(), [level(0.5, 0.5, 0.5)]
    (run,) = runs_of(run_plan, equal)
    all_called = run._replace(comparisons=tuple(pair._replace(verdict="resolved") for pair in run.comparisons))
    fixed = fixed_with_as_many(run_plan, equal, [all_called], served(MODELS), SEED, 0.95)
    assert fixed is not None and fixed.number is None
    assert fixed.cost == run.trials / (MODELS * QUESTIONS * MOST)


def test_only_neighbour_comparisons_have_an_equivalent_fixed_design() -> None:
    run_plan = replace(ranking(), objective=Best())
    assert fixed_with_as_many(run_plan, WORLDS, runs_of(run_plan, WORLDS[:1]), served(MODELS), SEED, 0.95) is None
    large = replace(ranking(), trials=Trials(min=4, max=10**6))
    assert fixed_with_as_many(large, WORLDS, runs_of(ranking(), WORLDS[:1]), served(MODELS), SEED, 0.95) is None
