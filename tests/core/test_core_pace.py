"""When rounds are composed, how large they are, and what is in flight meanwhile."""

import numpy as np
import pytest
from core_runs import Answers, straight

from adaptive_eval.core import Ask, Bench, Controller, Outcome, Pace, Plan, Reason, Trials
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import UnresolvedPairs
from adaptive_eval.core.rules import ZScore


def plan(pace: Pace, trials: Trials, models: int = 2, questions: int = 3, threshold: float = 99.0) -> Plan:
    """Two models, by default never told apart."""
    bench = Bench(models, questions, np.array([0.0, 1.0]))
    return Plan(
        bench,
        objective=Ranking(),
        rule=ZScore(threshold),
        policy=UnresolvedPairs(),
        judging=Judging(futility=None),
        trials=trials,
        pace=pace,
    )


def half_right(trials: list[Ask]) -> list[Outcome]:
    return [Outcome(*ask[:3], ask.trial % 2) for ask in trials]


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_rounds_in_flight_are_one_more_than_the_lookahead(lookahead: int) -> None:
    controller = Controller(plan(Pace(lookahead=lookahead), Trials(min=2, max=30)))
    in_flight = controller.ask(1000)
    assert {ask.round for ask in in_flight} == set(range(1 + lookahead))
    for look in range(5):
        now = [ask for ask in in_flight if ask.round == look]
        later = [ask for ask in in_flight if ask.round != look]
        assert controller.tell(half_right(now[:-1])) == []
        assert controller.ask(1000) == []  # nothing useful to issue until the round is complete
        assert len(controller.tell(half_right(now[-1:]))) == 1
        composed = controller.ask(1000)
        assert {ask.round for ask in composed} == {look + lookahead + 1}
        in_flight = later + composed


def test_rounds_ahead_may_come_before_those_they_run_ahead_of() -> None:
    controller = Controller(plan(Pace(lookahead=2), Trials(min=2, max=30)))
    requested = controller.ask(1000)
    assert controller.tell(half_right([ask for ask in requested if ask.round > 0])) == []
    looks = controller.tell(half_right([ask for ask in requested if ask.round == 0]))
    assert [sum(look.trials) for look in looks] == [12, 18, 24]


def test_at_the_stop_what_is_in_flight_is_drained_and_counted() -> None:
    chosen = plan(Pace(lookahead=2), Trials(min=4, max=30), threshold=2.0)
    answers = Answers(chosen, 0, skill=lambda model, question: float(model))
    controller = Controller(chosen)
    requested = controller.ask(1000)
    (look,) = controller.tell(answers.of(ask for ask in requested if ask.round == 0))
    assert controller.finished is None
    assert controller.ask(1000) == []
    looks = controller.tell(answers.of(ask for ask in requested if ask.round > 0))
    assert len(looks) == 2
    assert controller.finished is Reason.SETTLED
    assert sum(looks[-1].trials) == sum(look.trials) + 12


def test_with_min_equal_to_max_there_is_one_look() -> None:
    for lookahead in (0, 3):
        chosen = plan(Pace(lookahead), Trials(min=5, max=5))
        controller = straight(chosen, Answers(chosen, 2))
        assert len(controller.looks) == 1
        assert controller.looks[0].comparisons[0].information == pytest.approx(1.0)
        assert controller.finished is Reason.OUT_OF_REACH
