"""Whom nothing can want again is never asked again, whatever comes of the others; and some are settled early."""

import numpy as np
import pytest
from core_plugins import OneByOne, OneByOneOnly

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, Ranking, TopK
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.settings import Bench, Pace, Trials
from adaptive_eval.core.types import Outcome

SKILLS = np.array([0.9, 0.72, 0.68, 0.5, 0.47, 0.2])
PACES = (Pace(), Pace(lookahead=2), Pace(share=0.5))


def looks_wanted(plan: Plan, seed: int) -> list[np.ndarray]:
    """Who is wanted after each look; nobody is asked who was not."""
    controller, rng, wanted = Controller(plan), np.random.default_rng(seed), []
    not_wanted: set[int] = set()
    while controller.finished is None:
        asks = controller.ask(64)
        assert not {ask.model for ask in asks} & not_wanted
        outcomes = [Outcome(a.model, a.question, a.trial, int(rng.random() < SKILLS[a.model])) for a in asks]
        if controller.tell(outcomes) and controller.finished is None:
            wanted.append(controller.still_wanted())
            not_wanted = set(np.flatnonzero(~wanted[-1]).tolist())
    return wanted


@pytest.mark.parametrize(
    "objective", [Ranking(), Best(), TopK(2), Baseline(2), Pairs(((0, 1), (1, 2), (4, 5)))], ids=repr
)
@pytest.mark.parametrize("pace", PACES, ids=["rounds", "lookahead", "need"])
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.slow)], ids=["one", "more"])
def test_nobody_is_wanted_again_who_was_not(objective: Objective, pace: Pace, seeds: range) -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    plan = Plan(bench, objective=objective, trials=Trials(min=4, max=40), pace=pace)
    for seed in seeds:
        wanted = looks_wanted(plan, seed)
        for before, after in zip(wanted, wanted[1:], strict=False):
            assert not (after & ~before).any(), "settled is for good"


def test_far_ones_are_settled_early_and_who_may_be_asked_anyway_never_is() -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    plan = Plan(bench, trials=Trials(min=4, max=40), policy=UnresolvedPairs())
    wanted = looks_wanted(plan, 1)
    half = wanted[len(wanted) // 2]
    assert not half[-1], "the last one is far from all others"
    assert half.any()
    for changed in (
        Plan(bench, trials=Trials(min=4, max=40), policy=Uniform()),
        Plan(bench, trials=Trials(min=4, max=40), judging=Judging(latch=False, futility=None)),
    ):
        assert all(one.all() for one in looks_wanted(changed, 1))


def test_a_policy_of_ones_own_lets_models_go_when_it_says_that_it_asks_no_others() -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    silent, said = (
        looks_wanted(Plan(bench, trials=Trials(min=4, max=40), policy=policy), 1)
        for policy in (OneByOne(), OneByOneOnly())
    )
    assert all(one.all() for one in silent), "who does not say so may ask anybody"
    assert not said[-1].all(), "and who does is believed, as a built-in is"
