"""Trials are allocated by price, to where they give the most information for their cost."""

import numpy as np
import pytest
from core_runs import Answers, never_called

from adaptive_eval.core import Bench, Budget, Controller, Cost, Outcome, Plan, Reason, Trials
from adaptive_eval.core.policies import UnresolvedPairs

DEAR, CHEAP = Cost(10, 0.016), Cost(10, 0.001)


def plan(budget: Budget, costs: tuple[Cost, ...], max_trials: int = 200) -> Plan:
    bench = Bench(len(costs), 10, np.array([0.0, 1.0]), costs)
    return never_called(bench, policy=UnresolvedPairs(), trials=Trials(min=4, max=max_trials), budget=budget)


def run(chosen: Plan) -> Controller:
    """A finished run with every trial at its price, and half of the answers right."""
    controller, answers = Controller(chosen), Answers(chosen, 5, skill=lambda model, question: 0.5)
    costs = chosen.bench.worst_cost
    while controller.finished is None:
        outcomes = answers.of(controller.ask(1000))
        controller.tell(outcome._replace(cost=costs[outcome.model]) for outcome in outcomes)
    return controller


@pytest.mark.parametrize(
    ("budget", "costs", "sizes"),
    [
        (Budget(), (DEAR, CHEAP), (10, 10)),
        (Budget(trials=10**6), (DEAR, CHEAP), (10, 10)),
        (Budget(tokens=10**6), (DEAR, CHEAP), (10, 10)),
        (Budget(usd=1e6), (DEAR, Cost(10, 0.004)), (10, 20)),
        (Budget(usd=1e6), (DEAR, Cost(10, 0.00001)), (10, 40)),
        (Budget(usd=1e6), (DEAR, Cost(10, 0.0)), (10, 40)),
        (Budget(usd=1e6), (Cost(), Cost()), (10, 10)),
        (Budget(gpu_seconds=1e6), (Cost(gpu_seconds=9.0), Cost(gpu_seconds=1.0)), (10, 30)),
        (Budget(tokens=10**6, usd=1e6), (Cost(1, 4.0), Cost(4, 1.0)), (10, 20)),
    ],
)
def test_a_round_follows_the_root_of_the_price(budget: Budget, costs: tuple[Cost, ...], sizes: tuple[int, int]) -> None:
    """In the capped currency, USD before GPU time before tokens; at most fourfold, and equal sizes without a cap."""
    controller = Controller(plan(budget, costs))
    controller.tell(Outcome(*ask[:3], ask.trial % 2, costs[ask.model]) for ask in controller.ask(1000))
    models = [ask.model for ask in controller.ask(1000)]
    assert (models.count(0), models.count(1)) == sizes


def test_prices_are_those_of_committed_trials_not_the_worst() -> None:
    costs = (Cost(0, 1.0), Cost(0, 1.0))
    controller = Controller(plan(Budget(usd=1e6), costs))
    used = (Cost(0, 0.9), Cost(0, 0.1))
    controller.tell(Outcome(*ask[:3], ask.trial % 2, used[ask.model]) for ask in controller.ask(1000))
    models = [ask.model for ask in controller.ask(1000)]
    assert (models.count(0), models.count(1)) == (10, 30)


def test_a_larger_share_ends_at_the_horizon_of_its_model() -> None:
    controller = run(plan(Budget(usd=1e6), (DEAR, CHEAP), max_trials=11))
    assert controller.trials.tolist() == [110, 110]
    assert [look.trials for look in controller.looks[:3]] == [(40, 40), (50, 80), (60, 110)]
    assert controller.finished is Reason.OUT_OF_REACH
