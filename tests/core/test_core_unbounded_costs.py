"""Caps with unbounded trial costs: reservations follow from the largest cost of a model so far."""

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from core_runs import BINARY, Answers, Shell, exact, never_called, plans, seeds, straight
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from thoroughness import examples, first_of

from adaptive_eval.core import Ask, Bench, Budget, Controller, Cost, Outcome, Plan, Reason, SetAside, Trials
from adaptive_eval.core.account import RESERVE_FACTOR


class Varied(Answers):
    """Answers that cost at least a share of the worst cost of their model."""

    def __init__(self, plan: Plan, seed: int, smallest_share: float) -> None:
        super().__init__(plan, seed)
        self._smallest_share = smallest_share

    def _outcome(self, ask: Ask) -> Outcome:
        outcome, least = super()._outcome(ask), self._smallest_share
        worst = self.plan.bench.worst_cost[ask.model]
        tokens, usd, gpu_seconds = (
            least * most + (1.0 - least) * used for most, used in zip(worst, outcome.cost, strict=True)
        )
        return outcome._replace(cost=Cost(math.ceil(tokens), usd, gpu_seconds))


@st.composite
def unbounded(draw: st.DrawFn) -> tuple[Plan, Plan]:
    """A capped plan with unbounded trial costs of some models, and the same plan with their true worst costs."""
    plan = draw(plans())
    costs = tuple(cost._replace(tokens=10 + cost.tokens) for cost in plan.bench.worst_cost)
    plan = replace(plan, bench=replace(plan.bench, worst_cost=costs))
    assume(plan.budget.tokens is not None or plan.budget.usd is not None)
    unpriced = draw(st.sets(st.integers(0, plan.bench.models - 1), min_size=1))
    unknown = tuple(Cost(0, math.inf, worst.gpu_seconds) if at in unpriced else worst for at, worst in enumerate(costs))
    return replace(plan, bench=replace(plan.bench, worst_cost=unknown)), plan


def used(outcomes: Iterable[Outcome]) -> list[float]:
    """Total usage of these outcomes."""
    costs = [outcome.cost for outcome in outcomes]
    return [math.fsum(cost.tokens for cost in costs), math.fsum(cost.usd for cost in costs)]


def caps_of(plan: Plan) -> list[float]:
    return [math.inf if cap is None else cap for cap in (plan.budget.tokens, plan.budget.usd)]


def exceeds(spent: list[float], plan: Plan) -> bool:
    return any(amount > cap * (1.0 + 1e-12) for amount, cap in zip(spent, caps_of(plan), strict=True))


@settings(max_examples=examples(80), deadline=None)
@given(unbounded(), seeds)
def test_within_the_margin_only_first_answers_may_exceed_a_cap(both: tuple[Plan, Plan], seed: int) -> None:
    """Answers of a model differ by less than the margin: requested trials never exceed the caps."""
    plan, truth = both
    answers = Varied(truth, seed, 0.7)
    shell = Shell(plan, answers, np.random.default_rng(seed), restarts=0.02)
    while shell.controller.finished is None:
        shell.step()
        asked = shell.outcomes + answers.of(shell.flying)
        firsts = len({outcome.model for outcome in asked}) == len(asked)
        assert firsts or not exceeds(used(asked), plan)


@settings(max_examples=examples(80), deadline=None)
@given(unbounded(), seeds, st.booleans())
def test_nothing_is_asked_once_a_cap_is_exceeded(both: tuple[Plan, Plan], seed: int, one_is_lost: bool) -> None:
    plan, truth = both
    shell = Shell(plan, Answers(truth, seed), np.random.default_rng(seed))
    for step in count():
        if shell.controller.finished is not None:
            break
        if one_is_lost and step == 9:
            shell.controller.tell([SetAside(0, "gone")])
        shell.step()
        assert shell.controller.finished is not None or not exceeds(used(shell.outcomes), plan)
    assert shell.controller.ask(10) == []


@settings(max_examples=examples(80), deadline=None)
@given(unbounded(), seeds)
def test_no_order_of_arrival_and_no_kill_changes_a_look(both: tuple[Plan, Plan], seed: int) -> None:
    """If a cap is exceeded within a round, only the number of looks may depend on the order of arrival."""
    plan, truth = both
    answers = Answers(truth, seed)
    expected = straight(plan, answers)
    shell = Shell(plan, answers, np.random.default_rng(seed), restarts=0.05)
    shuffled = shell.run()
    looks, others = exact(expected.looks), exact(shuffled.looks)
    both_looks = min(len(looks), len(others))
    assert looks[:both_looks] == others[:both_looks]
    if not exceeds(used(shell.outcomes), plan):
        assert looks == others and shuffled.finished is expected.finished


@pytest.mark.parametrize("seed", first_of(range(8), 2))
def test_parts_of_a_first_round_are_the_same_after_a_kill(seed: int) -> None:
    """A start that finds answers of later parts reserves each part by those before it alone, as the start did that
    asked for them: whether all of the round is asked depends on nothing else."""
    bench = Bench(2, 6, BINARY, (Cost(0, math.inf),) * 2)
    truth = Plan(replace(bench, worst_cost=(Cost(1000), Cost(400))), trials=Trials(min=2, max=2))
    answers = Varied(truth, seed, 0.02)
    every = used(answers.of(Ask(m, q, trial, 0) for m in (0, 1) for q in range(6) for trial in (0, 1)))[0]
    plan = replace(truth, bench=bench, budget=Budget(tokens=int(every * (1.0 + 0.02 * (seed % 15)))))
    expected = straight(plan, answers)
    for number in range(6):
        shuffled = Shell(plan, answers, np.random.default_rng((seed, number)), restarts=0.3).run()
        assert exact(shuffled.looks) == exact(expected.looks)
        assert shuffled.finished is expected.finished


def two_models(budget: Budget, worst: Cost = Cost(0, math.inf)) -> Controller:  # noqa: B008
    """Nothing is ever called or given up."""
    return Controller(never_called(Bench(2, 5, BINARY, (worst, worst)), trials=Trials(min=2, max=50), budget=budget))


def tell(controller: Controller, trials: Iterable[Ask], tokens: int) -> None:
    controller.tell([Outcome(*ask[:3], 0, Cost(tokens)) for ask in trials])


def test_one_answer_of_each_model_is_measured_and_the_next_are_reserved_by_it() -> None:
    controller = two_models(Budget(tokens=2_000))
    first = controller.ask(99)
    assert [ask.model for ask in first] == [0, 1], "nobody knows what more would cost"
    tell(controller, first[:1], 20)
    assert controller.ask(99) == [], "the other one is not known yet"
    tell(controller, first[1:], 40)
    second = controller.ask(99)
    assert len(second) == 18, "60 are spent, and twice 9 * (30 + 60) are reserved"
    tell(controller, second, 70)
    assert controller.ask(99) == [] and controller.finished is Reason.BUDGET, "1,320 are spent, and a round is 1,050"


def test_a_first_round_continues_in_parts_while_caps_cover_it_twice() -> None:
    controller = two_models(Budget(tokens=500))
    tell(controller, controller.ask(99), 40)
    second = controller.ask(99)
    assert len(second) == 2, "80 are spent, and each of one more is reserved at 60: twice 240, and of two more 480"
    tell(controller, second, 10)
    assert len(controller.ask(99)) == 2
    assert RESERVE_FACTOR == 1.5
    controller = two_models(Budget(tokens=1_000))
    tell(controller, controller.ask(99), 0)
    assert len(controller.ask(99)) == 2, "one more of each"


@pytest.mark.parametrize("cap", [{"trials": 60}, {"gpu_seconds": 60.0}])
def test_caps_on_bounded_costs_work_as_usual(cap: dict[str, float]) -> None:
    """Caps on trials or GPU time need no measured costs."""
    open_, priced = two_models(Budget(**cap), Cost(0, math.inf, 1.0)), two_models(Budget(**cap), Cost(0, 0.0, 1.0))  # type: ignore[arg-type]
    for run in (open_, priced):
        while run.finished is None:
            tell(run, run.ask(99), 7)
    assert exact(open_.looks) == exact(priced.looks) and open_.finished is priced.finished


def test_answers_that_cost_no_tokens_are_measured_by_their_usd() -> None:
    """Such as those of commands, which may report nothing else."""
    bench = Bench(models=2, questions=5, weights=BINARY, worst_cost=(Cost(0, math.inf), Cost(0, math.inf)))
    controller = Controller(Plan(bench, trials=Trials(min=2, max=2), budget=Budget(usd=100.0)))
    rounds = 0
    while controller.finished is None:
        asks = controller.ask(slots=64)
        controller.tell([Outcome(*ask[:3], category=0, cost=Cost(0, 0.5)) for ask in asks])
        rounds += 1
    assert controller.counts.sum() == 20 and rounds < 6


def test_a_run_short_before_its_first_look_names_a_cap_for_the_whole_round() -> None:
    bench = Bench(2, 5, BINARY, worst_cost=(Cost(0, math.inf, 0.0),) * 2)
    controller = Controller(Plan(bench, trials=Trials(min=4, max=8), budget=Budget(tokens=100)))
    first, *_ = controller.ask(slots=64)
    controller.tell([Outcome(first.model, first.question, first.trial, 1, Cost(150, 0.0, 0.0))])
    assert controller.finished is Reason.BUDGET
    assert controller.short_caps == {"tokens": 2 * 5 * 4 * RESERVE_FACTOR * 150}
