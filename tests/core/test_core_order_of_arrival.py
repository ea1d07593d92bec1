"""Looks are the same to the last bit in any order of arrival, any batches, and after any restarts."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from core_runs import Answers, Faulty, Shell, exact, plans, restore, seeds, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Controller, Cost, Judging, Outcome, Plan
from adaptive_eval.core.answer_kinds import AnswerKind, UnsureGrades
from adaptive_eval.core.early_outcomes import EarlyOutcomes
from adaptive_eval.core.rounds import PER_UNIT, Batch, exact_sum, trillionths


@settings(max_examples=examples(80), deadline=None)
@given(plans(), seeds, st.sampled_from([0.0, 0.05, 0.3]))
def test_order_batches_slots_and_restarts_change_no_look(plan: Plan, seed: int, restarts: float) -> None:
    answers = Answers(plan, seed)
    expected = straight(plan, answers)
    shuffled = Shell(plan, answers, np.random.default_rng(seed), restarts).run()
    assert exact(shuffled.looks) == exact(expected.looks)
    assert shuffled.finished == expected.finished
    assert np.array_equal(shuffled.counts, expected.counts)
    assert repr(shuffled.result()) == repr(expected.result())


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, AnswerKind.TRUNCATED, AnswerKind.TIMED_OUT])
@settings(max_examples=examples(120), deadline=None)
@given(plans(), seeds, st.sampled_from([0.0, 0.02, 0.3]), st.booleans())
def test_nor_if_answers_have_faults(fault: AnswerKind | None, plan: Plan, seed: int, share: float, stops: bool) -> None:
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


def test_sums_are_exact_however_large() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.random(1000), rng.random(1000) * 1e9, np.array([2.0**53, -1.0, 0.5, 1e-12]), np.empty(0)):
        assert trillionths(values) == sum(round(value * PER_UNIT) for value in values.tolist())
    assert exact_sum(np.array([2**62, 2**62, 2**62, -5], dtype=np.int64)) == 3 * 2**62 - 5
    assert math.isclose(trillionths(np.array([0.1] * 10)), Fraction(PER_UNIT))


def test_early_outcomes_are_taken_once_and_the_others_cost_what_they_cost() -> None:
    early = EarlyOutcomes()
    for model, trial in ((0, 0), (0, 1), (1, 0), (0, 1)):
        early.keep(Outcome(model, 0, trial, 1, Cost(10 + trial, 0.1, 0.3), seconds=2.0))
    assert early.kept_outcomes(0) == 3 and early.cost == Cost(31, 0.3, 0.9) and len(early) == 3, "one was told twice"
    first, second = (Batch(0, 0, np.array([trial]), np.array([1])) for trial in (0, 1))
    part = early.take(second)
    assert part is not None and part.spent.tokens == 11 and part.trials.tolist() == [1]
    assert second.store_part(part) and not second.store_part(part)
    assert early.take(second) is None and early.cost == Cost(20, 0.2, 0.6) and early.kept_outcomes(0) == 1
    assert early.take(first) is not None and early.cost == Cost(10, 0.1, 0.3) and len(early) == early.graded == 1


def test_a_batch_has_of_early_outcomes_what_it_has_of_others() -> None:
    """Grades and their lack, kinds of answers and seconds, in any order."""
    told = [
        Outcome(0, at, 0, grade, Cost(at), kinds, 2.0 * at)
        for at, grade, kinds in ((2, 1, 0), (1, None, 16), (0, 0, 32))
    ]
    early, batch, other = EarlyOutcomes(), *(Batch(0, 0, np.zeros(3, int), np.ones(3, int)) for _ in range(2))
    for outcome in told:
        early.keep(outcome)
        other.place(outcome)
    assert early.graded == 2
    part = early.take(batch)
    assert part is not None and batch.store_part(part) and not early and early.cost == Cost()
    assert batch.kinds.tolist() == other.kinds.tolist() == [32, 16, 0]
    assert batch.ungraded().tolist() == other.ungraded().tolist() == [0, 1, 0]
    assert batch.categories(2).tolist() == other.categories(2).tolist()
    assert (batch.seconds, batch.total_cost()) == (other.seconds, other.total_cost()) == (2.0, Cost(3))
