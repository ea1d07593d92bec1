"""When enough worlds were simulated, and how long the fixed design takes."""

from dataclasses import replace

import numpy as np
import pytest
from test_simulated import QUESTIONS, level, plan, scenario, served

from adaptive_eval.config.decisions import ObjectiveConfig, StoppingConfig
from adaptive_eval.config.run import ServingGroup
from adaptive_eval.core import Budget, Controller, Trials
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_seconds
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.simulated import SimulatedRun, simulate_run, tape_of_world
from adaptive_eval.study.simulations import chance_error, is_precise, simulate_all


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


@pytest.mark.parametrize("begun", [False, True])
def test_only_a_new_gate_is_simulated_with_an_equal_build(begun: bool) -> None:
    """One that has answers has verdicts already, of the builds that gave them."""
    gate = ObjectiveConfig.model_validate({"kind": "baseline", "baseline": "a", "gate": True})
    recorded = np.zeros((2, QUESTIONS, 4), dtype=np.int8) if begun else None
    base = scenario(served=served(2, recorded=recorded))
    gated = replace(
        base, decisions=base.decisions.model_copy(update={"objective": gate, "stopping": StoppingConfig(delta=0.1)})
    )
    simulated = simulate_all(gated, [level(0.6, 0.5)] * 20, Budget(), lambda *_, **__: None)
    assert len(simulated.equal) == (0 if begun else 20)


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
