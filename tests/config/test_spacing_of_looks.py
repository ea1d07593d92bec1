"""What the rule `optimal` is told of a run's looks: no more than its rounds keep to."""

from math import inf

import numpy as np
import pytest

from adaptive_eval.config.load import decisions_from_mapping
from adaptive_eval.config.planning import EarlierHorizon, plan_on
from adaptive_eval.core import Bench, Optimal

OPTIMAL = {"stopping": {"rule": "optimal"}}
BENCH = Bench(2, 10, np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("more", "stride", "step", "finest"),
    [
        ({"trials": {"max": 50, "favour": "answers"}}, 0.0, 0.04, 0.01),
        ({"trials": {"max": 50, "favour": "answers"}, "allocation": {"lookahead": 3}}, 0.0, 0.04, 0.01),
        ({"trials": {"max": 50, "favour": "answers"}, "budget": {"usd": 5}}, 0.0, 0.16, 0.01),
        ({"trials": {"max": 50, "favour": "time"}}, inf, 0.0, 0.0),
    ],
    ids=["round by round", "rounds ahead", "sizes by price", "rounds of its own"],
)
def test_looks_are_as_far_apart_as_rounds_are_large(
    more: dict[str, object], stride: float, step: float, finest: float
) -> None:
    rule = plan_on(BENCH, decisions_from_mapping({**OPTIMAL, **more}, ["a", "b"]), ("a", "b")).rule
    assert isinstance(rule, Optimal)
    assert (rule.stride, rule.step, rule.finest) == pytest.approx((stride, step, finest))


def test_the_first_horizon_is_what_its_error_is_shared_out_over() -> None:
    decisions = decisions_from_mapping({**OPTIMAL, "trials": {"max": 80, "favour": "answers"}}, ["a", "b"])
    rule = plan_on(BENCH, decisions, ("a", "b"), horizons=(EarlierHorizon(20, 3),)).rule
    assert isinstance(rule, Optimal) and rule.step == pytest.approx(0.1)
