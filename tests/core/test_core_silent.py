"""Time-outs are answers only beside as many real ones, in every round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.core import Bench, Controller, Outcome, Plan
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.settings import Pace, Trials
from adaptive_eval.core.types import Ask, Cause, Look, Lost, Reason, Verdict

QUESTIONS = 6


def controller(lookahead: int = 0) -> Controller:
    bench = Bench(2, QUESTIONS, np.array([0.0, 1.0]))
    return Controller(Plan(bench, trials=Trials(min=2, max=12), pace=Pace(lookahead=lookahead)))


def told(ask: Ask, timed_out: bool) -> Outcome:
    right = not timed_out and (ask.model == 0 or ask.trial % 2 == 0)
    return Outcome(*ask[:3], int(right), kinds=AnswerKind.TIMED_OUT * timed_out)


def test_a_model_that_never_answers_has_no_score_and_no_verdict() -> None:
    run = controller()
    run.tell(told(ask, ask.model == 1) for ask in run.ask(100))
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
    run.tell(told(ask, ask in mine[:late]) for ask in requested)
    assert (1 in run.set_aside) == aside
    assert run.timed_out[1].sum() == (0 if aside else late)


def test_answers_of_earlier_rounds_do_not_vouch_for_a_server_that_hangs() -> None:
    run = controller()
    run.tell(told(ask, False) for ask in run.ask(100))
    scores = run.looks[-1].scores
    run.tell(told(ask, ask.model == 1) for ask in run.ask(100))
    assert 1 in run.set_aside
    assert run.looks[-1].scores[1] == scores[1], "what was answered stands"


@pytest.mark.slow
@given(data=st.data(), lookahead=st.integers(0, 2))
def test_the_order_of_arrival_does_not_matter(data: st.DataObject, lookahead: int) -> None:
    """The same answers, some of which time out, in another order and in other batches."""
    share = data.draw(st.sampled_from([0.1, 0.4, 0.6]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    late = rng.random((2, QUESTIONS, 40)) < share

    def run(shuffled: bool) -> tuple[list[Look], dict[int, Lost]]:
        shell, pending = controller(lookahead), []
        while shell.finished is None:
            pending += shell.ask(int(rng.integers(1, 30)) if shuffled else 1000)
            if shuffled:
                rng.shuffle(pending)
            now, pending = pending[: max(1, len(pending) // 2)], pending[max(1, len(pending) // 2) :]
            shell.tell(told(Ask(*map(int, ask)), bool(late[tuple(ask[:3])])) for ask in now)
        return shell.looks, shell.set_aside

    plain, other = run(False), run(True)
    assert repr(plain) == repr(other)  # nan is not equal to itself
