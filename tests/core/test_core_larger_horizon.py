"""The horizon that a run needs once its pairs are out of reach: with it the run asks for more, whatever its rule."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from core_runs import after, play
from numpy.typing import NDArray

from adaptive_eval.core import Bench, Budget, Controller, Pace, Plan, Reason, Trials, Verdict
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.larger_horizon import larger_horizons
from adaptive_eval.core.near_best import NearBest
from adaptive_eval.core.objectives import Best, Gate, Threshold
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Margin
from scorio.moments import FloatArray

QUESTIONS, MAX_TRIALS = 12, 12
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


def with_larger_horizon(run: Controller) -> Plan:
    """The plan with the horizon that the pairs of a run need."""
    horizon = max(number for number in run.larger_horizons.values() if number is not None)
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
    plans = [with_larger_horizon(run) for run in ended if any(run.larger_horizons.values())]
    assert len(plans) >= 2 and all(Controller(longer).ask(1) for longer in plans), "the pairs are given up at once"


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"coupled": True}, {"objective": Best(), "rule": NearBest(0.02, start=0.3)}])
def test_a_second_raise_goes_by_the_error_that_is_left(settings: dict[str, object]) -> None:
    plans, plan = list[Plan](), plan_of(trials=Trials(min=4, max=6), **settings)
    for seed in range(4):
        once = life(plan, seed)
        twice = life(after(once, replace(plan, trials=Trials(min=4, max=9))), seed)
        if twice.finished is Reason.OUT_OF_REACH and any(twice.larger_horizons.values()):
            plans.append(with_larger_horizon(twice))
    assert plans and all(Controller(longer).ask(1) for longer in plans)


@pytest.mark.slow
def test_a_model_that_joins_has_a_rule_of_its_own() -> None:
    two, plan = plan_of(bench=Bench(2, QUESTIONS, np.array([0.0, 1.0]))), plan_of()
    for seed in range(4):
        joined = life(after(life(two, seed), plan, (0, 1, None)), seed)
        if joined.finished is Reason.OUT_OF_REACH:
            assert Controller(with_larger_horizon(joined)).ask(1)


def test_a_cap_that_alone_stands_in_the_way_leaves_the_horizon() -> None:
    plan = plan_of(trials=Trials(min=4, max=100), budget=Budget(trials=250))
    ended = [run for seed in range(10) if (run := life(plan, seed)).finished is Reason.OUT_OF_REACH]
    assert ended and any(100 in run.larger_horizons.values() for run in ended)
    for run in ended:
        look, nothing_left = run.last_look, np.zeros_like(run.available.remaining)
        assert look is not None
        horizons = larger_horizons(run.taker, look, replace(run.available, remaining=nothing_left))
        assert 100 not in horizons.values(), "no cap stands in the way of trials that are not there"


def test_pairs_that_can_never_be_decided_have_no_horizon() -> None:
    """All error is spent by a single look at a finished design."""
    plan = replace(plan_of(rule=Sequential(start=1.0)), trials=Trials(min=8, max=8))
    for seed in range(4):
        run = life(plan, seed)
        look = run.looks[-1]
        assert set(run.larger_horizons.values()) == ({None} if look.count(Verdict.OUT_OF_REACH) else set())


@dataclass(frozen=True)
class Steps:
    """A rule of a user's own, which says nothing of pairs: z must reach more the later it is."""

    heights: NDArray[np.float64] = field(default_factory=lambda: np.array([2.2, 2.4]))
    half: float = field(init=False, default=0.5)

    def boundary(self, evidence: Evidence) -> FloatArray:
        return self.heights[(evidence.information > self.half).astype(int)]


class StepsByPair(Steps):
    """The same, declaring that it judges each pair by itself."""

    by_pair = True


def test_a_rule_of_a_users_own_gives_the_same_horizons_whatever_it_declares() -> None:
    plans = [plan_of(bench=Bench(4, QUESTIONS, np.array([0.0, 1.0])), rule=rule) for rule in (Steps(), StepsByPair())]
    found = [run.larger_horizons for seed in range(4) if (run := life(plans[0], seed)).finished is Reason.OUT_OF_REACH]
    sliced = [run.larger_horizons for seed in range(4) if (run := life(plans[1], seed)).finished is Reason.OUT_OF_REACH]
    assert found == sliced and any(any(horizons.values()) for horizons in found)
