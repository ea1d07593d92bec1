"""Where servers are held, rounds of models in no open comparison are parked: nobody waits for them, nothing is lost."""

import numpy as np
import pytest

from adaptive_eval.core import Bench, Budget, Controller, Outcome, Pace, Plan, Trials
from adaptive_eval.core.types import Ask, Look

SKILLS, QUESTIONS = (0.95, 0.6, 0.55, 0.05), 8
DRAWN = np.random.default_rng(3).random((len(SKILLS), QUESTIONS, 90))
HELD = Pace(lookahead=3, held=True)


def controller(**choices: object) -> Controller:
    bench = Bench(len(SKILLS), QUESTIONS, np.array([0.0, 1.0]))
    return Controller(Plan(bench, pace=HELD, trials=Trials(4, 60), **choices))  # type: ignore[arg-type]


def answer(ask: Ask, seconds: float = 1.0) -> Outcome:
    return Outcome(*ask[:3], int(DRAWN[ask[:3]] < SKILLS[ask.model]), seconds=seconds)


def played(one: Controller, slots: int, *, wrong_take: float = 1.0, seed: int = 0) -> list[Look]:
    """Every model has so many slots; answers come as they are done, and wrong ones take longer."""
    rng, flying = np.random.default_rng(seed), list[tuple[float, Ask]]()
    now, looks = 0.0, list[Look]()
    while one.finished is None:
        for model in range(len(SKILLS)):
            room = slots - sum(ask.model == model for _, ask in flying)
            for ask in one.ask(room, model):
                right = DRAWN[ask[:3]] < SKILLS[ask.model]
                flying.append((now + rng.exponential() * (1.0 if right else wrong_take), ask))
        flying.sort(key=lambda one: one[0])
        now, ask = flying.pop(0)
        looks += one.tell([answer(ask)])
    one.tell(answer(ask) for _, ask in flying)
    return looks


@pytest.mark.parametrize(("slots", "wrong_take"), [(1, 1.0), (40, 1.0), (3, 10.0), (40, 10.0)])
def test_looks_depend_neither_on_slots_nor_on_how_long_wrong_answers_take(slots: int, wrong_take: float) -> None:
    reference = played(controller(), 7)
    one = controller()
    assert played(one, slots, wrong_take=wrong_take, seed=slots) == reference
    assert one.arrived.sum() == one.counts.sum() + one.parked.sum()


def test_a_model_in_no_open_comparison_is_paused_and_what_still_comes_is_kept() -> None:
    one = controller()
    looks: list[Look] = []
    waiting = one.ask(10**6)
    while not any(map(one.is_paused, range(len(SKILLS)))):
        looks += one.tell([answer(waiting.pop(0))])
        waiting += one.ask(10**6)
    (model, *_) = [model for model in range(len(SKILLS)) if one.is_paused(model)]
    assert one.finished is None and one.ask(10**6, model) == []
    late, before = [ask for ask in waiting if ask.model == model], one.trials[model]
    assert late and not one.tell(map(answer, late)), "no look waits for them"
    assert one.trials[model] == before and one.parked[model].sum() >= len(late)
    with pytest.raises(ValueError, match="told twice"):
        one.tell([answer(late[0])])


def test_under_a_cap_that_counts_answers_nothing_is_parked() -> None:
    """It reserves what may have been sent: the trials that are paid for are those that looks have seen."""
    one = controller(budget=Budget(trials=len(SKILLS) * QUESTIONS * 60))
    played(one, 40)
    assert not one.parked.any() and one.arrived.sum() == one.counts.sum()
