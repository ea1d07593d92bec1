"""With twice the trials that pairs out of reach need, a run asks for more, whatever its rule: reports advise it."""

from dataclasses import replace
from math import ceil, isfinite

import numpy as np
import pytest
from core_runs import after, play

from adaptive_eval.core import Bench, Controller, Pace, Plan, Reason, Trials, Verdict
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.near_best import NearBest
from adaptive_eval.core.objectives import Best, Gate, Threshold
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin

QUESTIONS, MAX_TRIALS, MAX_PLAUSIBLE = 12, 12, 1000
PLANS = {
    "plain": {},
    "ties": {"judging": Judging(delta=0.05)},
    "any looks": {"rule": Sequential(start=0.3)},
    "shared error": {"judging": Judging(familywise=True), "rule": Sequential(start=0.3)},
    "near best": {"objective": Best(), "rule": NearBest(0.02, start=0.3)},
    "gate": {"objective": Gate(Margin(2, 0.02))},
    "value": {"objective": Threshold(0.55)},
    "ahead of looks": {"pace": Pace(lookahead=3, dedicated_servers=True)},
    "same seeds": {"coupled": True},
}


def life(plan: Plan, seed: int) -> Controller:
    """The run until it has nothing to ask."""
    rng, models = np.random.default_rng(seed), plan.bench.models
    chances = np.clip(rng.random(QUESTIONS) + rng.normal(0.0, 0.05, (models, 1)), 0.02, 0.98)
    right = rng.random((400, models, QUESTIONS)) < chances
    return play(Controller(plan), np.moveaxis(right, 0, -1))


def plan_of(**settings: object) -> Plan:
    usual = {"bench": Bench(3, QUESTIONS, np.array([0.0, 1.0])), "trials": Trials(min=4, max=MAX_TRIALS)}
    return Plan(**(usual | settings))  # type: ignore[arg-type]


RESERVE = 2


def with_larger_horizon(run: Controller) -> Plan | None:
    """The plan with the horizon that is advised; None if no plausible one is."""
    look = run.latest_look()
    assert look is not None
    needed = [pair.trials_needed for pair in look.comparisons if pair.verdict is Verdict.OUT_OF_REACH]
    plausible = [trials for trials in needed if isfinite(trials) and RESERVE * trials <= MAX_PLAUSIBLE]
    if not plausible:
        return None
    horizon = ceil(RESERVE * max(run.plan.trials.max, *plausible))
    return after(run, replace(run.plan, trials=replace(run.plan.trials, max=horizon)))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=pytest.mark.slow if name != "ties" else ())
        for name, settings in PLANS.items()
    ],
)
def test_a_run_asks_for_more_with_the_horizon_that_it_needs(settings: dict[str, object]) -> None:
    plan = plan_of(**settings)
    ended = [run for seed in range(5) if (run := life(plan, seed)).finished is Reason.OUT_OF_REACH]
    plans = [longer for run in ended if (longer := with_larger_horizon(run)) is not None]
    assert len(plans) >= 2 and all(Controller(longer).ask(1) for longer in plans), "the pairs are given up at once"


@pytest.mark.slow
def test_a_model_that_joins_has_a_rule_of_its_own() -> None:
    two, plan = plan_of(bench=Bench(2, QUESTIONS, np.array([0.0, 1.0]))), plan_of()
    for seed in range(4):
        joined = life(after(life(two, seed), plan, (0, 1, None)), seed)
        if joined.finished is Reason.OUT_OF_REACH and (longer := with_larger_horizon(joined)) is not None:
            assert Controller(longer).ask(1)
