"""Looks are the same to the last bit in any order of arrival, any batches, and after any restarts."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from core_runs import Answers, Faulty, Shell, exact, plans, restore, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Controller, Cost, Judging, Outcome, Plan
from adaptive_eval.core.answer_kinds import AnswerKind, UnsureGrades
from adaptive_eval.core.early_outcomes import EarlyOutcomes
from adaptive_eval.core.rounds import PER_UNIT, UNGRADED, Batch, exact_sum, trillionths

seeds = st.integers(0, 2**20)


@settings(max_examples=examples(80), deadline=None)
@given(plans(), seeds, st.sampled_from([0.0, 0.05, 0.3]))
def test_order_batches_slots_and_restarts_change_no_look(plan: Plan, seed: int, restarts: float) -> None:
    answers = Answers(plan, seed)
    expected = straight(plan, answers)
    shell = Shell(plan, answers, np.random.default_rng(seed), restarts)
    shuffled = shell.run()
    assert exact(shuffled.looks) == exact(expected.looks)
    assert shuffled.finished == expected.finished
    assert np.array_equal(shuffled.counts, expected.counts)
    assert repr(shuffled.result()) == repr(expected.result())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, AnswerKind.TRUNCATED, AnswerKind.TIMED_OUT])
@settings(max_examples=examples(120), deadline=None)
@given(plans(), seeds, st.sampled_from([0.0, 0.02, 0.3]), st.booleans())
def test_nor_do_they_where_answers_have_faults(
    fault: AnswerKind | None, plan: Plan, seed: int, share: float, stops: bool
) -> None:
    """Alarms, for which runs are long enough, and models that are set aside are the same, too."""
    trials = replace(plan.trials, max=plan.trials.max + 16)
    plan = replace(plan, trials=trials, unsure=UnsureGrades(int(AnswerKind.TRUNCATED), 1), stops_on_alarm=stops)
    answers = Faulty(plan, seed, fault, share)
    plain = straight(plan, answers)
    shuffled = Shell(plan, answers, np.random.default_rng(seed), restarts=0.05).run()
    assert exact(shuffled.looks) == exact(plain.looks)
    assert shuffled.alarms == plain.alarms and shuffled.set_aside == plain.set_aside
    assert shuffled.finished is plain.finished
    plain.result()


@pytest.mark.slow
@settings(max_examples=examples(35), deadline=None)
@given(plans(), plans(capped=False), seeds)
def test_other_plans_reuse_stored_outcomes(plan: Plan, other: Plan, seed: int) -> None:
    """A run resumed with other rules, budgets or paces continues as if run so from the start, asking nothing twice."""
    kept = {name: getattr(other, name) for name in ("rule", "policy", "prior", "trials", "pace")}
    other = Plan(plan.bench, objective=plan.objective, judging=Judging(), **kept)
    answers = Answers(plan, seed)
    shell = Shell(plan, answers, np.random.default_rng(seed))
    shell.run()
    stored = {outcome[:3] for outcome in shell.outcomes}
    expected = straight(other, answers)
    resumed = Controller(other)
    restore(resumed, shell.outcomes)
    while resumed.finished is None:
        requested = resumed.ask(50)
        assert not stored & {ask[:3] for ask in requested}
        resumed.tell(answers.of(requested))
    assert exact(resumed.looks) == exact(expected.looks)


MODELS, QUESTIONS = 3, 5


def outcomes(rng: random.Random) -> Iterator[Outcome]:
    places = [
        (model, question, trial) for model in range(MODELS) for question in range(QUESTIONS) for trial in range(9)
    ]
    rng.shuffle(places)
    for place in places[:100]:
        cost = Cost(rng.randrange(2**40), rng.random(), 1e3 * rng.random())
        yield Outcome(*place, rng.choice([0, 1, None]), cost, rng.choice([0, 0, 16, 32]), rng.random())


def test_a_batch_takes_the_early_outcomes_that_belong_to_it() -> None:
    rng = random.Random(4)
    early_outcomes, remaining = EarlyOutcomes(), {}
    for outcome in outcomes(rng):
        early_outcomes.keep(outcome)
        remaining[outcome[:3]] = outcome
    issued = np.zeros((MODELS, QUESTIONS), np.int32)
    while remaining:
        model = rng.randrange(MODELS)
        extra = np.array([rng.randrange(3) for _ in range(QUESTIONS)])
        batch = Batch(model, 0, issued[model].copy(), extra)
        issued[model] += extra.astype(np.int32)
        expected = {
            place: remaining.pop(place)
            for question in range(QUESTIONS)
            for trial in range(int(batch.slots.first[question]), int(batch.slots.first[question] + extra[question]))
            if (place := (model, question, trial)) in remaining
        }
        part = early_outcomes.take(batch)
        assert len(early_outcomes) == len(remaining) and early_outcomes.kept_outcomes(model) == sum(
            place[0] == model for place in remaining
        )
        if part is None:
            assert not expected
            continue
        in_order = [expected[place] for place in sorted(expected, key=lambda place: batch.slots.slot(*place[1:]) or 0)]
        triples = list(zip(part.questions.tolist(), part.trials.tolist(), part.categories.tolist(), strict=True))
        assert triples == [
            (item.question, item.trial, UNGRADED if item.category is None else item.category) for item in in_order
        ]
        assert part.kinds.tolist() == [item.kinds for item in in_order]
        assert part.spent.tokens == sum(item.cost.tokens for item in expected.values())
        assert part.spent.usd == sum(round(item.cost.usd * PER_UNIT) for item in expected.values())
        assert part.spent.seconds == sum(round(item.seconds * PER_UNIT) for item in expected.values())
        assert batch.store_part(part) and batch.missing == batch.size - len(expected)
        assert not batch.store_part(part), "the same trials were told twice"
        remaining_cost = sum(round(item.cost.gpu_seconds * PER_UNIT) for item in remaining.values())
        assert early_outcomes.cost.gpu_seconds == remaining_cost / PER_UNIT
    assert not early_outcomes and early_outcomes.cost == Cost()


def test_sums_are_exact_however_large() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.random(1000), rng.random(1000) * 1e9, np.array([2.0**53, -1.0, 0.5, 1e-12]), np.empty(0)):
        assert trillionths(values) == sum(round(value * PER_UNIT) for value in values.tolist())
    numbers = np.array([2**62, 2**62, 2**62, -5], dtype=np.int64)
    assert exact_sum(numbers) == 3 * 2**62 - 5
    assert math.isclose(trillionths(np.array([0.1] * 10)), Fraction(PER_UNIT))
