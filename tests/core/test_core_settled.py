"""Models that can no longer be needed are never asked again, and some are settled early."""

import numpy as np
import pytest
from core_plugins import OneByOne, OneByOneOnly

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, Ranking, TopK
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.policies import Uniform, UnresolvedPairs
from adaptive_eval.core.settings import Bench, Pace, Trials
from adaptive_eval.core.types import Ask, Outcome

SKILLS = np.array([0.9, 0.72, 0.68, 0.5, 0.47, 0.2])
PACES = (Pace(), Pace(lookahead=2), Pace(share=0.5))


def looks_wanted(plan: Plan, seed: int) -> list[np.ndarray]:
    """The models needed after each look; no other model is asked."""
    controller, rng, needed = Controller(plan), np.random.default_rng(seed), []
    not_wanted: set[int] = set()
    while controller.finished is None:
        requested = controller.ask(64)
        assert not {ask.model for ask in requested} & not_wanted
        outcomes = [Outcome(a.model, a.question, a.trial, int(rng.random() < SKILLS[a.model])) for a in requested]
        if controller.tell(outcomes) and controller.finished is None:
            needed.append(controller.needed_models())
            not_wanted = set(np.flatnonzero(~needed[-1]).tolist())
    return needed


@pytest.mark.parametrize(
    ("objective", "pace"),
    [
        *((Ranking(), pace) for pace in PACES),
        (Best(), PACES[2]),
        (TopK(2), PACES[0]),
        (Baseline(2), PACES[1]),
        (Pairs(((0, 1), (1, 2), (4, 5))), PACES[2]),
    ],
)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.release)], ids=["one", "more"])
def test_a_model_no_longer_needed_is_never_needed_again(objective: Objective, pace: Pace, seeds: range) -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    plan = Plan(bench, objective=objective, trials=Trials(min=4, max=40), pace=pace)
    for seed in seeds:
        needed = looks_wanted(plan, seed)
        for before, after in zip(needed, needed[1:], strict=False):
            assert not (after & ~before).any(), "settled is for good"


def test_distant_models_settle_early_unless_the_policy_may_still_ask_them() -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    plan = Plan(bench, trials=Trials(min=4, max=40), policy=UnresolvedPairs())
    needed = looks_wanted(plan, 1)
    half = needed[len(needed) // 2]
    assert not half[-1], "the last one is far from all others"
    assert half.any()
    for changed in (
        Plan(bench, trials=Trials(min=4, max=40), policy=Uniform()),
        Plan(bench, trials=Trials(min=4, max=40), judging=Judging(latch=False, futility=None)),
    ):
        assert all(mask.all() for mask in looks_wanted(changed, 1))


@pytest.mark.slow
def test_a_custom_policy_releases_models_only_if_it_declares_only_open() -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    silent, declared = (
        looks_wanted(Plan(bench, trials=Trials(min=4, max=40), policy=policy), 1)
        for policy in (OneByOne(), OneByOneOnly())
    )
    assert all(mask.all() for mask in silent), "who does not say so may ask anybody"
    assert not declared[-1].all(), "and who does is believed, as a built-in is"


HELD = Pace(lookahead=1, dedicated_servers=True)


def rests_of(plan: Plan, seed: int) -> list[np.ndarray]:
    """The models that rest after each look; the look asks nothing of them."""
    controller, rng, rests = Controller(plan), np.random.default_rng(seed), list[np.ndarray]()
    waiting = controller.ask(10**6)
    while controller.finished is None:
        ask = waiting.pop(0)
        right = int(rng.random() < SKILLS[ask.model])
        if controller.tell([Outcome(ask.model, ask.question, ask.trial, right, seconds=1.0)]):
            assert controller.last_look is not None
            rests.append(~controller.last_look.in_open_pairs())
            fresh = controller.ask(10**6)
            assert not {ask.model for ask in fresh} & set(np.flatnonzero(rests[-1]).tolist())
            waiting += fresh
    return rests


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_models_without_open_comparisons_rest_when_servers_are_held(seed: int) -> None:
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    trials = Trials(min=4, max=40)
    rests = rests_of(Plan(bench, trials=trials, pace=HELD), seed)
    assert any(0 < resting.sum() < len(SKILLS) for resting in rests), "some rest while others go on"


@pytest.mark.parametrize("pace", [*PACES, HELD, Pace(share=0.7, opening=6)], ids=str)
def test_no_look_is_taken_before_awaited_outcomes_arrive(pace: Pace) -> None:
    """One awaited model answers late, as from a batch service: no look is taken before its outcomes arrive."""
    bench = Bench(models=len(SKILLS), questions=6, weights=np.array([0.0, 1.0]))
    controller, rng = Controller(Plan(bench, trials=Trials(min=4, max=40), pace=pace)), np.random.default_rng(0)
    held_back, late = list[Ask](), -1
    while controller.finished is None:
        requested = controller.ask(64)
        if not requested:
            assert controller.awaited() == [late], "all others have come"
            requested, held_back, late = held_back, [], -1
        elif late < 0:
            late = int(rng.choice(controller.awaited()))
        awaited = late in controller.awaited()
        held_back += [ask for ask in requested if ask.model == late]
        answered = [ask for ask in requested if ask.model != late]
        right = rng.random(len(answered)) < SKILLS[[ask.model for ask in answered]]
        looks = controller.tell(
            Outcome(*ask[:3], category) for ask, category in zip(answered, right.tolist(), strict=True)
        )
        assert not (awaited and looks)
