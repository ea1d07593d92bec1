"""What is likely to be wanted next: what idle slots may be asked before a round does."""

import numpy as np
import pytest

from adaptive_eval.core import Ask, Bench, Budget, Controller, Outcome, Pace, Plan, Trials
from adaptive_eval.core.ahead import NO_ROUND, in_turn

QUESTIONS, SKILLS = 10, (0.9, 0.55, 0.5, 0.1)
DRAWN = np.random.default_rng(5).random((len(SKILLS), QUESTIONS, 200))
PACE = Pace(ahead=1.0, ahead_opening=9)


def controller(pace: Pace = PACE, **choices: object) -> Controller:
    bench = Bench(len(SKILLS), QUESTIONS, np.array([0.0, 1.0]))
    return Controller(Plan(bench, pace=pace, trials=Trials(4, 40), **choices))  # type: ignore[arg-type]


def category(ask: Ask) -> int:
    return int(DRAWN[ask[:3]] < SKILLS[ask.model])


def step(one: Controller) -> set[tuple[int, int, int]]:
    """Ask for what there is, and tell it; gives what was asked for."""
    asks = one.ask(1 << 20)
    one.tell(Outcome(*ask[:3], category(ask)) for ask in asks)
    return {ask[:3] for ask in asks}


def likely(one: Controller) -> set[tuple[int, int, int]]:
    found = [ask[:3] for model, trials in enumerate(one.likely_next()) for ask in trials.asks(model)]
    assert len(set(found)) == len(found)
    return set(found)


def test_before_the_first_look_the_opening_is_likely() -> None:
    expected = {(m, q, t) for m in range(len(SKILLS)) for q in range(QUESTIONS) for t in range(4, 9)}
    assert likely(controller()) == expected


def test_what_an_earlier_start_has_stored_is_not_asked_ahead() -> None:
    """Before a model came back the others may have had more than the first round: that is there, and paid for."""
    one = controller()
    there = {(1, q, t) for q in range(QUESTIONS) for t in (5, 8)}
    one.restore([Outcome(*place, category=0) for place in there])
    expected = {(m, q, t) for m in range(len(SKILLS)) for q in range(QUESTIONS) for t in range(4, 9)} - there
    assert likely(one) == expected


def test_after_a_look_it_is_trials_of_open_models_that_no_round_has_asked_for() -> None:
    """And what rounds come to ask for next is among it, mostly."""
    one, seen = controller(), set[tuple[int, int, int]]()
    before = ahead = set[tuple[int, int, int]]()
    foreseen = later = 0
    while one.finished is None:
        asked = step(one)
        seen |= asked
        foreseen, later = foreseen + len(asked & before), later + len(asked) * bool(before)
        before, ahead = ahead, likely(one)
        assert not ahead & seen
        wanted = one.still_wanted()
        assert all(wanted[model] for model, _, _ in ahead)
        assert np.bincount([model for model, _, _ in ahead | seen]).max() <= 40 * QUESTIONS
    assert foreseen > 0.8 * later > 0


def test_models_apart_are_not_asked_ahead() -> None:
    one = controller()
    while one.still_wanted()[3] and one.finished is None:
        step(one)
    assert one.finished is None
    models = {model for model, _, _ in likely(one)}
    assert 3 not in models and {1, 2} <= models


@pytest.mark.parametrize("budget", [Budget(trials=300), Budget(tokens=9000), Budget(usd=4.0), Budget(gpu_seconds=9.0)])
def test_where_caps_count_it_nothing_is_likely(budget: Budget) -> None:
    assert not likely(controller(budget=budget))
    assert likely(controller(budget=Budget(wall_seconds=60.0)))


def test_without_a_share_nothing_is_asked_ahead_and_the_end_wants_nothing() -> None:
    one = controller(Pace())
    assert not likely(one)
    ahead = controller()
    while ahead.finished is None:
        step(ahead)
    assert not likely(ahead)


def test_asking_what_is_likely_changes_no_look() -> None:
    one, other = controller(), controller(Pace())
    while one.finished is None:
        one.likely_next()
        step(one)
    while other.finished is None:
        step(other)
    assert one.looks == other.looks and np.array_equal(one.counts, other.counts)


def test_every_question_is_as_far_on_its_way() -> None:
    found = list(in_turn(np.array([5, 7, 0]), np.array([2, 0, 4])).asks(1))
    assert [(ask.question, ask.trial) for ask in found] == [(2, 0), (0, 5), (2, 1), (2, 2), (0, 6), (2, 3)]
    assert {(ask.model, ask.round) for ask in found} == {(1, NO_ROUND)}


def test_a_share_must_not_be_negative() -> None:
    for wrong in ({"ahead": -0.1}, {"ahead_opening": -1}):
        with pytest.raises(ValueError, match="must not be negative"):
            Pace(**wrong)  # type: ignore[arg-type]
