"""The fixed design with one look, compared with the controller's and with a computation by hand."""

from dataclasses import replace

import numpy as np
import pytest

from adaptive_eval.core import Bench, Controller, Plan
from adaptive_eval.core.evidence import Prior
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.settings import Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.simulate.worlds import WORLDS
from adaptive_eval.study.drive import drive_rounds
from adaptive_eval.study.fixed import fixed_calls, smallest_fixed
from adaptive_eval.study.judged import judge_replay


@pytest.mark.parametrize("prior", ["self", "uniform"])
@pytest.mark.parametrize("name", ["coins", "exact_ties", "rubric"])
def test_the_fixed_design_calls_what_a_run_with_one_look_calls(name: str, prior: Prior) -> None:
    world = WORLDS[name]()
    models, questions, _ = world.p.shape
    plan = Plan(Bench(models, questions, world.w), rule=ZScore(), policy=Uniform(), prior=prior)
    plan = replace(plan, judging=Judging(futility=None))
    for seed in range(2):
        tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
        called, wrong = fixed_calls(tape, world.truth, questions, 30, prior=prior)
        for n in (4, 30):
            tape = Tape.from_chances(world.p, world.w, np.random.default_rng(seed))
            run = judge_replay(
                0, drive_rounds(Controller(replace(plan, trials=Trials(min=n, max=n))), tape), world.truth
            )
            assert (run.cost, run.looks) == (1.0, 1)
            assert (called[n - 1].sum(), wrong[n - 1].sum()) == (run.called, run.wrong)


def test_the_smallest_fixed_design_lies_where_the_curve_first_comes_up_to_it() -> None:
    curve = np.array([1.0, 2.0, 2.0, 4.0, 3.0])
    assert smallest_fixed(curve, 0.5) == 1.0
    assert smallest_fixed(curve, 1.25) == pytest.approx(1.25)
    assert smallest_fixed(curve, 2.0) == pytest.approx(2.0)
    assert smallest_fixed(curve, 3.5) == pytest.approx(3.75)
    assert smallest_fixed(curve, 4.5) is None
