"""Caps reserve a prompt by what prompts of its model took, once some have come."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from core_runs import Answers, Shell, exact, plans, straight, unit
from hypothesis import event, given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Ask, Bench, Budget, Controller, Cost, Outcome, Plan, Reason, Trials
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import Uniform
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.types import PROMPT_MARGIN, MeasuredPrompts, PromptReserve

seeds = st.integers(0, 2**20)
LONGEST, TEMPLATE, MOST, PRICE = 30, 200, 20, 0.001
WORST = LONGEST + TEMPLATE + MOST


class Prompted(Answers):
    """Each model has a template of its own, each question a prompt; both have tokens of which nobody knows before."""

    def prompt(self, model: int, question: int) -> int:
        return 1 + int(TEMPLATE * unit(self.seed, "template", model) ** 3) + int(LONGEST * unit(self.seed, question))

    def of(self, asks: Iterable[Ask]) -> list[Outcome]:
        return [self._prompted(outcome) for outcome in super().of(asks)]

    def _prompted(self, outcome: Outcome) -> Outcome:
        prompt = self.prompt(outcome.model, outcome.question)
        tokens = prompt + int(MOST * unit(self.seed, *outcome[:3], 7))
        return outcome._replace(cost=Cost(tokens, tokens * PRICE), prompt_tokens=prompt)


def with_prompts(plan: Plan, budget: Budget) -> Plan:
    """The plan with prompts that are measured, and these caps."""
    models, questions = plan.bench.models, plan.bench.questions
    worst = (Cost(WORST, WORST * PRICE),) * models
    prompts = (PromptReserve(LONGEST + TEMPLATE, LONGEST, PRICE, questions),) * models
    return replace(plan, bench=replace(plan.bench, worst_cost=worst, prompts=prompts), budget=budget)


@st.composite
def measured(draw: st.DrawFn) -> Plan:
    """Caps that bear a few answers of each model, or many."""
    plan = draw(plans())
    of_each = draw(st.floats(1.0, 12.0)) * plan.bench.models * WORST
    budget = draw(st.sampled_from([Budget(tokens=int(of_each)), Budget(usd=of_each * PRICE)]))
    return with_prompts(plan, budget)


def used(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.cost.tokens for outcome in outcomes)


def cap_of(plan: Plan) -> float:
    return plan.budget.tokens if plan.budget.tokens is not None else (plan.budget.usd or 0.0) / PRICE


@settings(max_examples=examples(150), deadline=None)
@given(measured(), seeds)
def test_no_order_and_no_kill_changes_a_look_and_no_cap_is_exceeded(plan: Plan, seed: int) -> None:
    answers = Prompted(plan, seed)
    expected = straight(plan, answers)
    shell = Shell(plan, answers, np.random.default_rng(seed), restarts=0.05)
    while shell.controller.finished is None:
        shell.step()
        assert used(shell.told) + used(answers.of(shell.flying)) <= cap_of(plan) * (1.0 + 1e-12)
    found = shell.controller
    event(f"{expected.finished}, looks: {bool(expected.looks)}")
    assert exact(found.looks) == exact(expected.looks) and found.finished is expected.finished


@settings(max_examples=examples(100), deadline=None)
@given(measured(), seeds)
def test_what_is_lost_at_what_was_reserved_exceeds_no_cap(plan: Plan, seed: int) -> None:
    """Each loss counts as what is reserved at that moment, and is asked for again as long as the run goes on."""
    answers, chance, lost = Prompted(plan, seed), np.random.default_rng(seed), 0
    controller, flying, told = Controller(plan), [], []
    while controller.finished is None:
        flying += controller.ask(int(chance.integers(1, 9)))
        at = int(chance.integers(len(flying)))
        if chance.random() < 0.1:
            cost = plan.bench.worst_cost[flying[at].model].plus(controller.saving(flying[at].model).times(-1))
            assert used(answers.of([flying[at]])) <= cost.tokens
            lost += cost.tokens
            controller.lose(flying[at].model, cost)
        else:
            told += answers.of([flying.pop(at)])
            controller.tell(told[-1:])
        again = 0 if controller.finished is not None else used(answers.of(flying))
        assert lost + used(told) + again <= cap_of(plan) * (1.0 + 1e-12)


def never_called(budget: Budget, models: int = 4) -> Plan:
    parts = (Ranking(), ZScore(99.0), Uniform(), Judging(futility=None), "uniform", Trials(2, 50))
    return with_prompts(Plan(Bench(models, 5, np.array([0.0, 1.0])), *parts), budget)


@pytest.mark.parametrize("cap", [2_500, 20_000])
def test_a_cap_is_used(cap: int) -> None:
    """In a first round that is asked in parts, and in the rounds after a whole one."""
    plan = never_called(Budget(tokens=cap))
    answers = Prompted(plan, 3)
    answers.prompt = lambda model, question: 10 + question  # type: ignore[method-assign]
    with_measure, without = (
        straight(plan, answers),
        straight(replace(plan, bench=replace(plan.bench, prompts=())), answers),
    )
    spent = [int(one.arrived.sum()) for one in (with_measure, without)]
    assert with_measure.finished is without.finished is Reason.BUDGET
    assert spent[0] > 1.2 * spent[1]


def test_longer_prompts_than_were_reserved_end_the_run_where_nothing_is_left() -> None:
    """As behind another server, whose template is longer."""
    controller = Controller(never_called(Budget(tokens=3_000)))

    def tell(asks: list[Ask], prompt: int) -> None:
        controller.tell([Outcome(*ask[:3], 0, Cost(prompt), prompt_tokens=prompt) for ask in asks])

    while int(controller.trials.sum()) * 12 < 1_600:
        tell(controller.ask(999), 12)
    asks = controller.ask(999)
    assert len(asks) == 20 and controller.saving(0).tokens == LONGEST + TEMPLATE - 12 - PROMPT_MARGIN
    tell(asks[:1], 12 + PROMPT_MARGIN)
    assert controller.finished is None
    tell(asks[1:2], 200)
    assert controller.finished is Reason.BUDGET and controller.ask(1) == []


def test_what_is_saved_follows_from_the_shortest_and_in_the_end_from_the_longest_prompt() -> None:
    prompt = PromptReserve(512 + 100, 100, 0.5, questions=3)
    assert prompt.saving(MeasuredPrompts()) == Cost(0, 0.0)
    assert prompt.saving(MeasuredPrompts(1, 40, 60)).tokens == 512 - 40 - PROMPT_MARGIN
    assert prompt.saving(MeasuredPrompts(2, 40, 300)).tokens == 612 - 300 - PROMPT_MARGIN, "longer than was expected"
    assert prompt.saving(MeasuredPrompts(3, 40, 60)) == Cost(612 - 60 - PROMPT_MARGIN, 0.5 * (612 - 60 - PROMPT_MARGIN))
    assert prompt.saving(MeasuredPrompts(3, 40, 9_999)) == Cost(0, 0.0), "never more than the most that it may be"
