"""The fixed design that a run is compared with, computed answer by answer; and when enough worlds were simulated."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from test_simulated import QUESTIONS, level, plan, scenario, served

from adaptive_eval.config.run import ServingGroup
from adaptive_eval.core import Bench, Best, Budget, Controller, Judging, Plan, Prior, Trials, Uniform, ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate import worlds as simulated_worlds
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_calls, fixed_seconds, fixed_with_as_many, smallest_fixed
from adaptive_eval.study.judged import judge_replay
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.simulated import SimulatedRun, simulate_run, tape_of_world
from adaptive_eval.study.simulations import chance_error, is_precise, simulate_all
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


@pytest.mark.parametrize("prior", ["self", "uniform"])
@pytest.mark.parametrize("name", ["coins", "exact_ties", "rubric"])
def test_the_fixed_design_calls_what_a_run_with_one_look_calls(name: str, prior: Prior) -> None:
    world = simulated_worlds.WORLDS[name]()
    models, questions, _ = world.p.shape
    plan = Plan(Bench(models, questions, world.w), rule=ZScore(), policy=Uniform(), prior=prior)
    plan = replace(plan, judging=Judging(futility=None))
    for seed in range(2):
        tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
        called, wrong = fixed_calls(tape, world.truth, questions, 30, prior=prior)
        for n in (4, 30):
            tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
            run = judge_replay(
                0, drive_rounds(Controller(replace(plan, trials=Trials(min=n, max=n))), tape), world.truth
            )
            assert (run.cost, run.looks) == (1.0, 1)
            assert (called[n - 1].sum(), wrong[n - 1].sum()) == (run.called, run.wrong)


def test_the_smallest_fixed_design_lies_where_the_curve_first_comes_up_to_it() -> None:
    curve = np.array([1.0, 2.0, 2.0, 4.0, 3.0])
    assert smallest_fixed(curve, 0.5) == 1.0
    assert smallest_fixed(curve, 1.25) == pytest.approx(1.25)
    assert smallest_fixed(curve, 2.0) == pytest.approx(2.0)
    assert smallest_fixed(curve, 3.5) == pytest.approx(3.75)
    assert smallest_fixed(curve, 4.5) is None


def simulated_run(trials: float, reached: bool = False) -> SimulatedRun:
    return SimulatedRun("settled" if reached else "out_of_reach", round(trials), 0.0, 0.0, 0.0, 100.0, (), ())


def test_the_interval_settles_when_its_ends_are_known_to_a_tenth_of_the_median() -> None:
    """The end's error is 1.71 sd / sqrt(n): with sd a third of the median, at about 32 runs."""
    rng = np.random.default_rng(0)
    runs = [simulated_run(trials) for trials in rng.normal(9000.0, 3000.0, 60)]
    assert not is_precise(runs[:20]) and is_precise(runs)
    quantiles = np.quantile(rng.normal(0.0, 1.0, (4000, 50)), 0.1, axis=1)
    assert quantiles.std() == pytest.approx(1.71 / np.sqrt(50), rel=0.06)


def test_an_even_chance_takes_more_worlds_than_a_certain_one() -> None:
    even = [simulated_run(1000.0, reached=bool(number % 2)) for number in range(60)]
    never = [simulated_run(1000.0)] * 60
    assert is_precise(never[:20]) and not is_precise(even[:40])
    assert chance_error(even[:20]) > chance_error(never[:20]) > 0.0


def test_worlds_are_added_until_they_are_enough() -> None:
    """Identical worlds with distant models need only the first look of each, and the fewest worlds."""
    states: list[str] = []
    worlds = [level(0.95, 0.05)] * 100
    simulated = simulate_all(scenario(), worlds, Budget(), lambda _, state: states.append(state))
    assert simulated.worlds == 20
    assert states[-1] == "20 simulated runs"


@pytest.mark.slow
def test_every_run_of_a_forecast_counts_what_was_asked_ahead() -> None:
    """With known and unknown answer times, in every world, with and without a cap."""
    timed_usage = AnswerUsage(*(np.array([[30.0, 20.0], [60.0, 45.0]]) for _ in range(3)), np.full(2, 0.5))
    untimed_usage = replace(timed_usage, seconds=np.full((2, 2), np.nan))
    worlds = [level(0.6, 0.5 - 0.002 * number) for number in range(30)]
    for usage in (timed_usage, untimed_usage):
        base = scenario(served=served(2, slots=32)._replace(usage=usage))
        trials = base.decisions.trials.model_copy(update={"optimize": "time"})
        soon = replace(base, decisions=base.decisions.model_copy(update={"trials": trials}))
        cap = Budget(trials=500)
        simulated = simulate_all(soon, worlds, cap, lambda *_, **__: None)
        assert set(simulated.runs) == {simulated.need, cap}
        for budget, runs in simulated.runs.items():
            plan = soon.plan(budget)
            tapes = [tape_of_world(plan, worlds[n], soon.served, (soon.seed, n)) for n in range(3)]
            seen = [drive_rounds(Controller(plan), tape).trials.sum() for tape in tapes]
            asked = [run.trials for run in runs[:3]]
            assert budget == cap or sum(asked) > sum(seen), "no look has seen as many"
            assert max(asked) <= (500 if budget == cap else 2 * QUESTIONS * 12)


# -- the fixed design -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 7, 64])
def test_the_fixed_design_takes_the_time_of_its_simulation(slots: int) -> None:
    """All trials at once with one look, on the same servers."""
    spread = AnswerUsage(*(np.array([[30.0, 20.0], [60.0, 45.0]]) for _ in range(3)), np.full(2, 0.5))
    base = scenario(served=served(2, slots=slots)._replace(usage=spread))
    chances = level(0.7, 0.4)
    fixed = plan(trials=Trials(min=40, max=40), rule=Sequential(0.95, 1.0))
    simulated = np.mean([simulate_run(fixed, chances, base.served, (seed,)).seconds for seed in range(4)])
    assert fixed_seconds(base, 40 * chances.sum(axis=1)) == pytest.approx(simulated, rel=0.1)


def test_models_in_turn_are_served_one_after_the_other_by_the_fixed_design_too() -> None:
    alone = scenario()
    turned = replace(alone, served=served(2)._replace(in_turn=[ServingGroup((0, 1), ("gpu0",))], swap_seconds=60.0))
    counts = 12 * level(0.5, 0.5).sum(axis=1)
    seconds = fixed_seconds(alone, counts)
    assert (
        seconds == pytest.approx(12 * QUESTIONS * 10.0 / 3) and fixed_seconds(turned, counts) == 2 * seconds + 2 * 60.0
    )


def test_unknown_times_are_not_compared() -> None:
    nothing = np.full((2, 2), np.nan)
    unknown = scenario(served=served(2)._replace(usage=AnswerUsage(nothing, nothing, nothing, np.zeros(2))))
    assert fixed_seconds(unknown, np.ones((2, 2))) is None
    begun = scenario(served=served(2, recorded=np.zeros((2, QUESTIONS, 1), dtype=np.int8)))
    assert fixed_seconds(begun, np.ones((2, 2))) is None
