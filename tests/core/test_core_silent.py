"""Time-outs count as answers only if at least as many real answers come in each round."""

import numpy as np
import pytest

from adaptive_eval.core import Bench, Controller, Outcome, Plan
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.settings import Pace, Trials
from adaptive_eval.core.types import Ask, Cause, Reason, Verdict

QUESTIONS = 6


def controller(lookahead: int = 0) -> Controller:
    bench = Bench(2, QUESTIONS, np.array([0.0, 1.0]))
    return Controller(Plan(bench, trials=Trials(min=2, max=12), pace=Pace(lookahead=lookahead)))


def outcome_of(ask: Ask, timed_out: bool) -> Outcome:
    right = not timed_out and (ask.model == 0 or ask.trial % 2 == 0)
    return Outcome(*ask[:3], int(right), kinds=AnswerKind.TIMED_OUT * timed_out)


def test_a_model_that_never_answers_has_no_score_and_no_verdict() -> None:
    run = controller()
    run.tell(outcome_of(ask, ask.model == 1) for ask in run.ask(100))
    assert run.finished is Reason.BLOCKED
    assert run.set_aside[1].cause is Cause.SERVER and "12 of the 12 requests" in run.set_aside[1].reason
    assert not run.counts[1].any() and not run.arrived[1].any() and run.counts[0].any()
    (look,) = run.looks
    assert np.isnan(look.scores[1]) and look.count(Verdict.BLOCKED) == 1


@pytest.mark.parametrize(("late", "aside"), [(0, False), (1, False), (6, False), (7, True), (12, True)])
def test_half_of_a_round_must_be_real_answers(late: int, aside: bool) -> None:
    run = controller()
    requested = run.ask(100)
    mine = [ask for ask in requested if ask.model == 1]
    run.tell(outcome_of(ask, ask in mine[:late]) for ask in requested)
    assert (1 in run.set_aside) == aside
    assert run.timed_out[1].sum() == (0 if aside else late)


def test_answers_of_earlier_rounds_do_not_vouch_for_a_server_that_hangs() -> None:
    run = controller()
    run.tell(outcome_of(ask, False) for ask in run.ask(100))
    scores = run.looks[-1].scores
    run.tell(outcome_of(ask, ask.model == 1) for ask in run.ask(100))
    assert 1 in run.set_aside
    assert run.looks[-1].scores[1] == scores[1], "what was answered stands"
