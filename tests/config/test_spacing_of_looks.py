"""How a run's looks lie, as its plan knows: no further apart than its rounds are large."""

import numpy as np
import pytest

from adaptive_eval.config.load import load_decisions
from adaptive_eval.config.planning import RunFacts, plan_on
from adaptive_eval.core import Ask, Bench, Controller, Optimal, Outcome, Pace, Plan, Trials
from adaptive_eval.core.sequential import Sequential

OPTIMAL = "stopping.rule=optimal"
BENCH = Bench(2, 10, np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    ("more", "spacing"),
    [
        ("trials.max=50 trials.optimize=cost", (0.0, 0.04, 0.01)),
        ("trials.max=50 trials.optimize=cost budget.usd=5", (0.0, 0.16, 0.01)),
        ("trials.max=50 trials.optimize=cost budget.tokens=500", (0.0, 0.16, 0.01)),
        ("trials.max=50 trials.optimize=time", (0.0, 0.04, 0.01)),
    ],
    ids=["round by round", "by price", "by tokens", "rounds of its own"],
)
def test_looks_are_as_far_apart_as_rounds_are_large(more: str, spacing: tuple[float, ...]) -> None:
    plan = plan_on(BENCH, load_decisions(None, [OPTIMAL, *more.split()], ["a", "b"]), ("a", "b"))
    assert plan.spacing == pytest.approx(spacing)
    rule = plan.deciding_rule
    assert isinstance(rule, Optimal) and rule.spacing == plan.spacing


def test_where_rounds_are_as_large_as_the_need_a_boundary_for_any_looks_decides() -> None:
    decisions = load_decisions(None, [OPTIMAL], ["a", "b"])
    plan = plan_on(BENCH, decisions, ("a", "b"), RunFacts(batched=True))
    assert plan.spacing is None and isinstance(plan.deciding_rule, Sequential)


@pytest.mark.parametrize("pace", [Pace(), Pace(lookahead=3), Pace(lookahead=3, dedicated_servers=True)], ids=str)
def test_no_model_has_more_than_a_round_between_two_looks(pace: Pace) -> None:
    """Whatever comes first: answers of one model are slow, and those that come are of no order."""
    bench, chances = Bench(4, 8, np.array([0.0, 1.0])), np.array([0.8, 0.5, 0.5, 0.2])
    controller = Controller(Plan(bench, trials=Trials(min=4, max=40), pace=pace))
    flight: list[Ask] = []
    held: list[tuple[int, ...]] = []
    rng = np.random.default_rng(4)
    while controller.finished is None:
        flight += controller.ask(1 << 10)
        order = np.argsort(rng.random(len(flight)) * [1.0 + 4.0 * (ask.model == 1) for ask in flight])
        come = set(order[: 1 + rng.integers(24)].tolist())
        outcomes = [Outcome(*flight[at][:3], int(rng.random() < chances[flight[at].model])) for at in come]
        flight = [ask for at, ask in enumerate(flight) if at not in come]
        held += [look.trials for look in controller.tell(outcomes)]
    assert len(held) > 5
    assert np.diff(held, axis=0).max() <= bench.questions
