"""Ungraded answers: rounds and looks continue, and no call is made that these answers could reverse."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from core_runs import Answers, Faulty, after, plans, play, straight
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from adaptive_eval.core import Bench, Controller, Outcome, Pace, Plan, Reason, Trials, Verdict
from adaptive_eval.core.evidence import Estimates, update
from adaptive_eval.core.judge import Criteria, Judging, LatchedVerdicts, judge
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.rules import Rule, ZScore
from adaptive_eval.core.sequential import ContinuedSequential, Sequential
from adaptive_eval.core.tally import UnknownGrades, score_bounds, why_unjudgeable

seeds = st.integers(0, 2**20)
Table = Sequence[Sequence[Sequence[int | None]]]


def run_to_end(plan: Plan, table: Table) -> Controller:
    """A controller told all its trials, by model and question."""
    return play(Controller(plan), lambda ask: table[ask.model][ask.question][ask.trial])


def one_look(questions: int, trials: int, bound: float, delta: float = 0.0) -> Plan:
    bench = Bench(3, questions, np.array([0.0, 1.0]))
    judging = Judging(delta=delta, futility=None)
    return Plan(bench, rule=ZScore(bound), trials=Trials(min=trials, max=trials), judging=judging, prior="uniform")


def filled(table: Table, values: Sequence[int]) -> Table:
    """Every ungraded answer of each model with this grade."""
    return [
        [[value if category is None else category for category in cells] for cells in rows]
        for rows, value in zip(table, values, strict=True)
    ]


def test_outcomes_of_a_model_set_aside_do_not_depend_on_order() -> None:
    """Its next round is in flight, and may be told before or after the round that sets it aside."""
    plan = replace(one_look(questions=2, trials=4, bound=99.0), trials=Trials(min=4, max=8), pace=Pace(lookahead=1))

    def told_in(pieces: int) -> Controller:
        controller = Controller(plan)
        requested = controller.ask(1 << 20)
        assert {ask.round for ask in requested} == {0, 1}
        outcomes = [Outcome(*ask[:3], None if ask.model == 0 and ask.trial < 4 else 1) for ask in requested]
        for piece in np.array_split(np.arange(len(outcomes)), pieces):
            controller.tell(outcomes[place] for place in piece)
        return controller

    first, *others = [told_in(pieces) for pieces in (1, 2, 7, 30)]
    assert first.set_aside.keys() == {0} and first.arrived[0].sum() == 0 < first.arrived[1].sum()
    assert all(np.array_equal(first.arrived, other.arrived) for other in others)


@settings(max_examples=examples(30), deadline=None)
@given(plans(), seeds)
def test_the_run_ends_though_no_answer_has_a_grade(plan: Plan, seed: int) -> None:
    controller = straight(plan, Faulty(plan, seed, None, 1.1))
    assert controller.counts.sum() == 0
    assert controller.finished is not None
    controller.result()


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.3, 0.6]))
def test_decisions_hold_under_the_best_and_worst_grades(data: st.DataObject, bound: float, delta: float) -> None:
    grades = st.lists(st.sampled_from([0, 1, 1, 1, 0, None]), min_size=4, max_size=4)
    row = grades.filter(lambda row: any(category is not None for category in row))
    table = [[data.draw(row) for _ in range(2)] for _ in range(3)]
    plan = one_look(questions=2, trials=4, bound=bound, delta=delta)
    run = run_to_end(plan, table)
    assert run.last_look is not None
    memory = run.last_look.memory
    ways = {values: run_to_end(plan, filled(table, values)).last_look for values in product((0, 1), repeat=3)}
    for pair, (first, second) in enumerate(((0, 1), (0, 2), (1, 2))):
        for values, look in ways.items():
            if values[first] == values[second]:
                continue  # not an extreme: one up, the other down
            assert look is not None
            if memory.call[pair]:
                assert look.memory.call[pair] == memory.call[pair]
            if memory.tie[pair]:
                assert look.memory.tie[pair] or look.memory.call[pair]  # a call comes before a tie


def test_a_comparison_that_depends_on_missing_grades_is_blocked() -> None:
    """Called at best and not at worst: it is reported as undecided, while clear comparisons are called."""
    plan = one_look(questions=1, trials=40, bound=1.645)
    table = [[[1] * 29 + [0] * 9 + [None] * 2], [[1] * 22 + [0] * 18], [[0] * 40]]
    run = run_to_end(plan, table)
    verdicts = {(pair.first, pair.second): pair.verdict for pair in run.looks[-1].comparisons}
    assert verdicts == {(0, 1): Verdict.BLOCKED, (1, 2): Verdict.RESOLVED}
    assert run.finished is Reason.BLOCKED
    assert run.set_aside == {}
    result = run.result()
    assert result is not None
    assert (result.models[0].lowest, result.models[0].highest) == (29 / 40, 31 / 40)
    assert result.models[0].score == 29 / 38
    assert run_to_end(plan, filled(table, (0, 0, 0))).looks[-1].comparisons[0].verdict is Verdict.OUT_OF_REACH
    assert run_to_end(plan, filled(table, (1, 0, 0))).looks[-1].comparisons[0].verdict is Verdict.RESOLVED


@pytest.mark.parametrize("rule", [Optimal(start=0.2), Sequential(start=0.2)])
@pytest.mark.parametrize("lost", [None, 0, 1])
def test_a_first_look_may_call_though_an_answer_has_no_grade(rule: Rule, lost: int | None) -> None:
    """Information counts requested trials, so that the first look is not before the first allowed."""
    plan = Plan(Bench(2, 10, np.array([0.0, 1.0])), rule=rule, trials=Trials(min=4, max=20), judging=Judging())
    table: list[list[list[int | None]]] = [[[1, 1, 1, 0]] * 10, [[0, 0, 1, 0]] * 10]
    if lost is not None:
        table[lost] = [[None, *table[lost][0][1:]], *table[lost][1:]]
    run = run_to_end(plan, table)
    (only,) = run.looks
    assert run.ungraded.sum() == (lost is not None) and only.comparisons[0].information == pytest.approx(0.2)
    assert only.comparisons[0].verdict is Verdict.RESOLVED and run.finished is Reason.SETTLED


@pytest.mark.parametrize(
    ("graded", "ungraded", "why"),
    [
        ([40, 39], [0, 1], None),
        ([2, 2], [1, 1], None),
        ([1, 3], [2, 1], "3 of its 7 trials have no grade, more than 5%"),
        ([285, 300], [15, 15], None),
        ([284, 300], [16, 15], "31 of its 615 trials have no grade, more than 5%"),
        ([0, 100], [1, 0], "no trial of question 1 of 2 has a grade, so there is no score"),
    ],
)
def test_models_with_too_many_ungraded_answers_are_set_aside(
    graded: list[int], ungraded: list[int], why: str | None
) -> None:
    assert why_unjudgeable(np.array(graded), np.array(ungraded)) == why


@pytest.mark.parametrize(
    ("ungraded", "lowest", "highest"),
    [
        ([0, 0], (2.0 / 4 + 2.0 / 2) / 2, (3 * 2.0 / 4 + 2.0) / 2),
        ([1, 2], (2.0 / 5 + 2.0 / 4) / 2, (4 * 2.0 / 5 + 2.0) / 2),
    ],
)
def test_time_outs_and_ungraded_answers_bound_a_score_alike(ungraded: list[int], lowest: float, highest: float) -> None:
    """Two questions, three categories; each unknown answer goes to either end of the scale."""
    bench = Bench(2, 2, np.array([0.0, 0.5, 2.0]))
    counts = np.array([[[2, 1, 1], [0, 0, 2]], [[1, 1, 0], [1, 0, 1]]])
    late = np.array([[[1, 1, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]])
    before = update(Estimates.nothing(bench), np.arange(2), counts, bench, "uniform", 8)

    def anew(rows: NDArray[np.intp], filled: NDArray[np.integer]) -> Estimates:
        return update(before, rows, filled, bench, "uniform", 8)

    unknown, nothing = UnknownGrades(np.array([ungraded, [0, 0]]), late), np.zeros((2, 2), int)
    bounds = score_bounds(anew, before, counts, unknown, bench.weights)
    assert bounds is not None
    assert bounds.lowest.score[0] == pytest.approx(lowest)
    assert bounds.highest.score[0] == pytest.approx(highest)
    assert bounds.lowest.score[1] == before.score[1] == bounds.highest.score[1]
    assert score_bounds(anew, before, counts, UnknownGrades(nothing, np.zeros_like(late)), bench.weights) is None


def test_time_outs_do_not_block_a_call() -> None:
    """Time-outs are answers: results give bounds for them, and decisions use them."""
    plan = one_look(questions=1, trials=40, bound=1.645)
    controller = Controller(plan)
    right = {0: 31, 1: 22, 2: 0}
    controller.tell(
        Outcome(*ask[:3], int(ask.trial < right[ask.model]), kinds=32 * (ask.trial >= 38))
        for ask in controller.ask(1000)
    )
    assert controller.looks[-1].count(Verdict.RESOLVED) == 2
    result = controller.result()
    assert result is not None
    assert (result.models[0].lowest, result.models[0].highest) == (31 / 40, 33 / 40)


def test_after_a_change_of_the_horizon_a_tie_holds_in_every_way() -> None:
    judging = Judging(delta=0.4, futility=None)
    bench, rule = Bench(3, 6, np.array([0.0, 1.0])), Sequential(start=0.5)
    plan = Plan(bench, rule=rule, judging=judging, trials=Trials(min=4, max=8))
    before = straight(plan, Answers(plan, 1), looks=2)
    standing = straight(after(before, replace(plan, trials=Trials(min=4, max=32))), Answers(plan, 1)).last_look
    assert standing is not None and isinstance(standing.rule, ContinuedSequential)
    evidence, blank = standing.evidence, LatchedVerdicts.blank(3)
    apart = replace(evidence, difference=evidence.difference + 1.0)
    criteria = Criteria(Ranking(), standing.rule, judging)
    near, _ = judge(blank, [replace(evidence, z=0.0 * evidence.z)], criteria)
    both, _ = judge(blank, [replace(variant, z=0.0 * evidence.z) for variant in (evidence, apart)], criteria)
    assert near.tie.any() and not both.tie.any()
