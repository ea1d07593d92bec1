"""When worlds are enough, which runs need no simulation, and how long the fixed design takes."""

from dataclasses import replace

import numpy as np
import pytest
from test_simulated import QUESTIONS, level, plan, scenario, served

from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.run import ServingGroup
from adaptive_eval.core import Budget, Controller, Trials
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_seconds, times_as_long
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.simulated import SimulatedRun, simulate_run, tape_of_world
from adaptive_eval.study.simulations import chance_error, figures_settled, simulate_all
from adaptive_eval.study.summary import ratio_estimate, share_beside


def ended(trials: float, reached: bool = False) -> SimulatedRun:
    return SimulatedRun("settled" if reached else "out_of_reach", round(trials), 0.0, 0.0, 0.0, 100.0, 0.0, ())


def test_the_interval_settles_when_its_ends_are_known_to_a_tenth_of_the_median() -> None:
    """The end's error is 1.71 sd / sqrt(n): with sd a third of the median, at about 32 runs."""
    rng = np.random.default_rng(0)
    runs = [ended(trials) for trials in rng.normal(9000.0, 3000.0, 60)]
    assert not figures_settled(runs[:20]) and figures_settled(runs)
    quantiles = np.quantile(rng.normal(0.0, 1.0, (4000, 50)), 0.1, axis=1)
    assert quantiles.std() == pytest.approx(1.71 / np.sqrt(50), rel=0.06)


def test_an_even_chance_takes_more_worlds_than_a_certain_one() -> None:
    even = [ended(1000.0, reached=bool(number % 2)) for number in range(60)]
    never = [ended(1000.0)] * 60
    assert figures_settled(never[:20]) and not figures_settled(even[:40])
    assert chance_error(even[:20]) > chance_error(never[:20]) > 0.0


def test_worlds_are_added_until_they_are_enough() -> None:
    """Worlds that are all alike and far apart need no more than the first look of each, and the fewest worlds."""
    told: list[str] = []
    worlds = [level(0.95, 0.05)] * 100
    found = simulate_all(scenario(), worlds, Budget(), 12, lambda _, state, at_once=False: told.append(state))
    assert found.worlds == 20 and found.table_worlds == 10
    trials = 2 * QUESTIONS * (4 + scenario().plan(found.need).pace.lookahead)
    first = next(number for number, state in enumerate(told) if f"trials {trials} ({trials} .. {trials})" in state)
    assert "in 3 worlds" in told[first] and first <= 3, "the first figures come at once"
    assert all(len(found.runs[one]) >= 10 for one in found.table.values())


@pytest.mark.slow
def test_cells_whose_cap_hinders_nothing_are_those_of_a_simulation() -> None:
    """Every cell as it would be, were each simulated by itself."""
    one = scenario(decisions=Decisions.model_validate({"trials": {"max": 40}}))
    worlds = [level(0.3 + gap, 0.3) for gap in (0.05, 0.5, 0.4, 0.6, 0.2, 0.5, 0.4, 0.6, 0.5, 0.1) * 3]
    found = simulate_all(one, worlds, Budget(), 40, lambda *_, at_once=False: None)
    spared = 0
    for variant in set(found.table.values()):
        for number, run in enumerate(found.runs[variant][: found.table_worlds]):
            alone = simulate_run(one.plan(variant), worlds[number], one.served, (one.seed, number))
            assert (run.reason, run.trials) == (alone.reason, alone.trials)
            for mine, its in zip(run.comparisons, alone.comparisons, strict=True):
                # the prior of many runs is fitted together, which may round otherwise
                assert mine.trials_needed == pytest.approx(its.trials_needed, rel=1e-9)
                assert mine._replace(trials_needed=0.0) == its._replace(trials_needed=0.0)
            spared += variant != found.need and run in found.runs[found.need]
    assert spared


@pytest.mark.parametrize(
    ("few", "own", "told"),
    [("0000", "00001111", 0.0), ("0001", "00111111", 0.375), ("0111", "00111111", 0.875), ("00111111",) * 2 + (0.75,)],
)
def test_a_share_is_known_by_what_it_is_in_the_same_worlds(few: str, own: str, told: float) -> None:
    """Nothing that never happened is told as possible, and the run beside itself has its own share."""
    two, all_own = ([ended(1.0, reached=one == "1") for one in worlds] for worlds in (few, own))
    assert share_beside(two, all_own, lambda run: float(run.reached)) == pytest.approx(told)


def test_a_cell_is_known_by_its_ratio_in_the_same_worlds() -> None:
    """Worlds that differ by a factor of ten, and a cell that always takes a tenth more."""
    own = [1000.0 * 10.0 ** (number / 20) for number in range(20)]
    few = [1.1 * trials for trials in own[:2]]
    assert ratio_estimate(few, own) == pytest.approx(1.1 * np.median(own))
    assert ratio_estimate(own[:1], own) == np.median(own)
    assert ratio_estimate(few, [*own[:2], *[np.nan] * 18]) == pytest.approx(1.1 * np.median(own[:2]))
    assert ratio_estimate([3.0, 5.0], [0.0, 5.0, 9.0]) == 4.0, "nothing to compare with"


def test_every_run_of_a_forecast_counts_what_was_asked_ahead() -> None:
    """Whether it is known how long answers take or not, in every world and in every cell of the table."""
    known = AnswerUsage(*(np.array([[30.0, 20.0], [60.0, 45.0]]) for _ in range(3)), np.full(2, 0.5))
    unknown = replace(known, seconds=np.full((2, 2), np.nan))
    worlds = [level(0.6, 0.5 - 0.002 * number) for number in range(30)]
    for usage in (known, unknown):
        whole = scenario(served=served(2, slots=32)._replace(usage=usage))
        trials = whole.decisions.trials.model_copy(update={"favour": "time"})
        soon = replace(whole, decisions=whole.decisions.model_copy(update={"trials": trials}))
        found = simulate_all(soon, worlds, Budget(), 12, lambda *_, **__: None)
        for variant, runs in found.runs.items():
            plan = soon.plan(variant)
            tapes = [tape_of_world(plan, worlds[n], soon.served, (soon.seed, n)) for n in range(3)]
            seen = [drive_rounds(Controller(plan), tape).trials.sum() for tape in tapes]
            asked = [run.trials for run in runs[:3]]
            assert variant.budget.trials or sum(asked) > sum(seen), "no look has seen as many"
            assert max(asked) <= min(variant.budget.trials or soon.most_trials, soon.most_trials)
        assert len({variant.budget.trials for variant in found.runs}) > 1


# -- the fixed design -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 7, 64])
def test_the_fixed_design_takes_the_time_of_its_simulation(slots: int) -> None:
    """All trials at once and a single look, on the same servers."""
    spread = AnswerUsage(*(np.array([[30.0, 20.0], [60.0, 45.0]]) for _ in range(3)), np.full(2, 0.5))
    one = scenario(served=served(2, slots=slots)._replace(usage=spread))
    chances = level(0.7, 0.4)
    whole = plan(trials=Trials(40, 40), rule=Sequential(0.95, 1.0))
    simulated = np.mean([simulate_run(whole, chances, one.served, (seed,)).seconds for seed in range(4)])
    assert fixed_seconds(one, 40 * chances.sum(axis=1)) == pytest.approx(simulated, rel=0.1)


def test_models_in_turn_are_served_one_after_the_other_by_the_fixed_design_too() -> None:
    alone = scenario()
    turned = replace(alone, served=served(2)._replace(in_turn=[ServingGroup((0, 1), ("gpu0",))], swap_seconds=60.0))
    counts = 12 * level(0.5, 0.5).sum(axis=1)
    one = fixed_seconds(alone, counts)
    assert one == pytest.approx(12 * QUESTIONS * 10.0 / 3) and fixed_seconds(turned, counts) == 2 * one + 2 * 60.0


def test_what_nobody_knows_is_not_compared() -> None:
    nothing = np.full((2, 2), np.nan)
    unknown = scenario(served=served(2)._replace(usage=AnswerUsage(nothing, nothing, nothing, np.zeros(2))))
    assert fixed_seconds(unknown, np.ones((2, 2))) is None
    begun = scenario(served=served(2, recorded=np.zeros((2, QUESTIONS, 1), dtype=np.int8)))
    assert fixed_seconds(begun, np.ones((2, 2))) is None
    assert times_as_long([ended(1.0)], None) is None and times_as_long([ended(1.0)], 50.0) == 2.0
