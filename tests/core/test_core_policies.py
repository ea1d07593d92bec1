"""How trials are allocated to models, by price too, and spread over the questions of a model."""

from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from core_runs import never_called, play
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Bench, Budget, Controller, Cost, Outcome, Plan, Reason, Trials
from adaptive_eval.core.policies import Uniform, UnresolvedPairs, View, Weighted, question_weights, spread


def by_largest_remainder(issued: list[int], weights: list[float], size: int) -> list[int]:
    """The rule of `spread` for one model, question by question, in exact fractions."""
    exact = [Fraction(value) for value in weights]
    target = [value / sum(exact) * (sum(issued) + size) for value in exact]
    missing = [max(to - count, Fraction(0)) for to, count in zip(target, issued, strict=True)]
    shares = [value * size / sum(missing) for value in missing]
    given = [floor(value) for value in shares]
    first = sorted(range(len(given)), key=lambda at: (given[at] - shares[at], at))
    return [value + (at in first[: size - sum(given)]) for at, value in enumerate(given)]


def test_many_models_are_spread_at_once_each_by_largest_remainders() -> None:
    rng = np.random.default_rng(7)
    for questions in (1, 2, 8):
        issued = rng.integers(0, 4, (40, questions))
        weights = rng.uniform(0.5, 4.0, (40, questions))
        sizes = rng.integers(1, 2 * questions + 1, 40)
        alone = [
            by_largest_remainder(*case) for case in zip(issued.tolist(), weights.tolist(), sizes.tolist(), strict=True)
        ]
        assert spread(issued, weights, sizes).tolist() == alone
    equal = spread(np.zeros((3, 8), dtype=np.int32), np.ones((3, 8)), np.array([3, 8, 11]))
    assert equal.tolist() == [[1] * 3 + [0] * 5, [1] * 8, [2] * 3 + [1] * 5]


def leave_one_out(trial_var: list[list[float]]) -> list[list[float]]:
    """The formula of the docstring, by loops."""
    weights = []
    for left_out in range(len(trial_var)):
        others = [row for model, row in enumerate(trial_var) if model != left_out]
        sd = [(sum(column) / len(others)) ** 0.5 for column in zip(*others, strict=True)]
        mean = sum(sd) / len(sd)
        tempered = [0.75 * value / mean + 0.25 for value in sd]
        weights.append([value * len(sd) / sum(tempered) for value in tempered])
    return weights


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(2, 9), st.integers(1, 9), st.integers(0, 10**6))
def test_weights_are_the_root_mean_variance_of_the_others(models: int, questions: int, seed: int) -> None:
    """They do not depend on the model's own outcomes by a rounding error, whatever its size."""
    rng = np.random.default_rng(seed)
    trial_var = rng.exponential(0.1, (models, questions))
    weights = question_weights(trial_var)
    np.testing.assert_allclose(weights, leave_one_out(trial_var.tolist()), rtol=1e-13)
    for left_out in range(models):
        other = trial_var.copy()
        other[left_out] = rng.exponential(1.0, questions) * 10.0 ** rng.integers(-9, 9)
        assert np.array_equal(question_weights(other)[left_out], weights[left_out])


VIEW = View(
    open_pairs=np.array([[0, 2], [2, 3]]),
    power=np.array([0.9, 0.4]),
    order=np.array([0, 2, 3, 1]),
    in_play=np.array([True, True, True, True]),
    issued=np.full((4, 3), 4, dtype=np.int32),
    trial_var=np.array([[0.25, 0.25, 0.01], [0.25, 0.25, 0.01], [0.25, 0.25, 0.01], [0.01, 0.25, 0.25]]),
    sizes=np.array([3, 3, 3, 6]),
)


def test_policies_serve_all_alike_open_pairs_or_uncertain_questions() -> None:
    assert Uniform().allocate(VIEW).tolist() == [[1, 1, 1]] * 3 + [[2, 2, 2]]
    aside = replace(VIEW, in_play=np.array([True, False, True, True]), sizes=np.array([3, 0, 3, 0]))
    assert Uniform().allocate(aside).tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert UnresolvedPairs().allocate(VIEW).tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1], [2, 2, 2]]
    reference = replace(VIEW, open_pairs=np.array([[1, 4]]), power=np.array([0.5]))
    assert UnresolvedPairs().allocate(reference).sum(axis=1).tolist() == [0, 3, 0, 0]
    given = Weighted().allocate(replace(VIEW, sizes=np.array([30, 30, 30, 30])))
    assert given[1].sum() == 0
    assert given[3, 2] < 10  # all others are sure of question 2, and the model itself, which is not, has no say
    assert given[3, 0] == given[3, 1] > 10
    assert given[0, 1] > given[0, 0] > given[0, 2] > 0


@pytest.mark.parametrize("cells", [1, 9])
def test_subsets_of_models_get_the_same_sizes_as_all_at_once(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(cells)
    view = replace(VIEW, issued=rng.integers(0, 9, VIEW.issued.shape), trial_var=rng.random(VIEW.trial_var.shape))
    policies = (Uniform(), UnresolvedPairs(), Weighted())
    together = [policy.allocate(view) for policy in policies]
    monkeypatch.setattr("adaptive_eval.core.policies.CHUNK_CELLS", cells)
    for policy, plan in zip(policies, together, strict=True):
        np.testing.assert_array_equal(policy.allocate(view), plan)


DEAR, CHEAP = Cost(10, 0.016), Cost(10, 0.001)


def plan_with_prices(budget: Budget, costs: tuple[Cost, ...], max_trials: int = 200) -> Plan:
    bench = Bench(len(costs), 10, np.array([0.0, 1.0]), costs)
    return never_called(bench, policy=UnresolvedPairs(), trials=Trials(min=4, max=max_trials), budget=budget)


@pytest.mark.parametrize(
    ("budget", "costs", "used", "sizes"),
    [
        (Budget(), (DEAR, CHEAP), None, (10, 10)),
        (Budget(trials=10**6), (DEAR, CHEAP), None, (10, 10)),
        (Budget(tokens=10**6), (DEAR, CHEAP), None, (10, 10)),
        (Budget(usd=1e6), (DEAR, Cost(10, 0.004)), None, (10, 20)),
        (Budget(usd=1e6), (DEAR, Cost(10, 0.00001)), None, (10, 40)),
        (Budget(usd=1e6), (DEAR, Cost(10, 0.0)), None, (10, 40)),
        (Budget(usd=1e6), (Cost(), Cost()), None, (10, 10)),
        (Budget(usd=1e6), (Cost(0, 1.0), Cost(0, 1.0)), (Cost(0, 0.9), Cost(0, 0.1)), (10, 30)),
        (Budget(gpu_seconds=1e6), (Cost(gpu_seconds=9.0), Cost(gpu_seconds=1.0)), None, (10, 30)),
        (Budget(tokens=10**6, usd=1e6), (Cost(1, 4.0), Cost(4, 1.0)), None, (10, 20)),
    ],
)
def test_a_round_follows_the_root_of_the_price_of_committed_trials(
    budget: Budget, costs: tuple[Cost, ...], used: tuple[Cost, ...] | None, sizes: tuple[int, int]
) -> None:
    """In the capped currency, USD before GPU time before tokens; at most fourfold, and equal sizes without a cap.
    The worst cost is used, if nothing else is given."""
    controller = Controller(plan_with_prices(budget, costs))
    controller.tell(Outcome(*ask[:3], ask.trial % 2, (used or costs)[ask.model]) for ask in controller.ask(1000))
    models = [ask.model for ask in controller.ask(1000)]
    assert (models.count(0), models.count(1)) == sizes


def test_a_larger_share_ends_at_the_horizon_of_its_model() -> None:
    chosen = plan_with_prices(Budget(usd=1e6), (DEAR, CHEAP), max_trials=11)
    controller = play(
        Controller(chosen), lambda ask: ask.trial % 2, cost=lambda ask: chosen.bench.worst_cost[ask.model]
    )
    assert controller.trials.tolist() == [110, 110]
    assert [look.trials for look in controller.looks[:3]] == [(40, 40), (50, 80), (60, 110)]
    assert controller.finished is Reason.OUT_OF_REACH
