"""What counts as a wrong call, and what a study counts."""

import numpy as np
import pytest

from adaptive_eval.core import Bench, Controller, PairVerdict, Plan, Trials, Verdict
from adaptive_eval.core.objectives import Threshold
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import World, binary, coins
from adaptive_eval.study.drive import drive
from adaptive_eval.study.judged import is_wrong, judge_replay

TRUTH = np.array([0.5, 0.3, 0.3 + 1e-15])


def call(better: int, worse: int | None, z: float = 3.0) -> PairVerdict:
    return PairVerdict(better, worse, Verdict.RESOLVED, z, 0.99, 2.0, 0.5, 0.9, 10.0, False)


@pytest.mark.parametrize(
    ("pair", "reference", "wrong"),
    [
        (call(0, 1), None, False),
        (call(1, 0), None, True),
        (call(1, 2), None, True),
        (call(2, 1), None, True),
        (call(0, None), 0.4, False),
        (call(0, None, -3.0), 0.4, True),
        (call(1, None, -3.0), 0.4, False),
        (call(1, None), 0.3, True),
    ],
)
def test_a_call_for_a_worse_or_equal_model_is_wrong(pair: PairVerdict, reference: float | None, wrong: bool) -> None:
    assert is_wrong(pair, TRUTH, reference) is wrong


@pytest.mark.slow
def test_a_replay_is_judged_by_its_last_look() -> None:
    world = coins()
    controller = drive(
        Controller(Plan(Bench(11, 30, world.w))), Tape.from_chances(world.p, world.w, np.random.default_rng(1))
    )
    judged, look = judge_replay(1, controller, world.truth), controller.looks[-1]
    assert judged.trials == sum(look.trials) and judged.cost == judged.trials / 26_400
    assert judged.called + judged.tied + judged.out_of_reach == len(look.comparisons) == 10
    assert judged.wrong == sum(
        world.truth[pair.first] <= world.truth[pair.second] + 1e-9
        for pair in look.comparisons
        if pair.verdict is Verdict.RESOLVED and pair.second is not None
    )
    inside = np.abs(np.array(look.scores) - world.truth) <= 1.96 * np.array(look.sigmas)
    assert judged.covered == pytest.approx(inside.mean())
    assert judge_replay(1, controller, world.truth + 0.5).covered == 0.0
    assert 0.8 < judged.tau_b <= 1.0


def test_a_call_against_a_value_is_judged_by_that_value() -> None:
    world = World("w", binary(np.array([[0.9] * 20, [0.2] * 20])))
    plan = Plan(Bench(2, 20, world.w), objective=Threshold(0.5), trials=Trials(min=4, max=40))
    controller = drive(Controller(plan), Tape.from_chances(world.p, world.w, np.random.default_rng(0)))
    judged = judge_replay(0, controller, world.truth)
    assert (judged.called, judged.tied, judged.out_of_reach, judged.wrong) == (2, 0, 0, 0)
    assert judge_replay(0, controller, 1.0 - world.truth).wrong == 2


def test_before_a_look_there_is_nothing_to_judge() -> None:
    with pytest.raises(ValueError, match="after its first look"):
        judge_replay(0, Controller(Plan(Bench(2, 3, np.array([0.0, 1.0])))), np.zeros(2))
