"""Runs in which answers of a model turn out to be no samples: they go on without it."""

from collections.abc import Collection, Mapping

import numpy as np
from core_runs import Answers, plans, play_chances, result_of
from hypothesis import given
from hypothesis import strategies as st
from test_core_cheapest import W, parts
from test_core_cheapest import chances as by_score
from test_core_cheapest import plan as cheapest
from test_core_gate import chances, gate_of_benchmarks
from test_core_result import correction, finished_run

from adaptive_eval.core import Controller, Cost, Look, Plan, SetAside, Verdict
from adaptive_eval.core.cheapest import Part
from adaptive_eval.core.controller import FindVoid
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Cause
from adaptive_eval.study.drive import drive_rounds

DECIDED = (Verdict.RESOLVED, Verdict.TIED)
AT_THE_END = 10**6


def found_at(look: int, model: int) -> FindVoid:
    """Finds this model at the look of this number, or when the run would end."""
    searches = 0

    def find(judged: Mapping[int, object], in_play: Collection[int], is_last: bool) -> Mapping[int, str]:
        nonlocal searches
        searches += 1
        return {model: "its answers repeat"} if is_last or searches >= look else {}

    return find


def played(plan: Plan, seed: int, find: FindVoid | None, at_once: int) -> Controller:
    """Play to the end, told so many answers at a time, the newest first."""
    run, answers = Controller(plan, find_void=find), Answers(plan, seed)
    while run.finished is None:
        outcomes = answers.of(run.ask(1 << 30))
        assert outcomes, "stalled"
        while outcomes and run.finished is None:
            told, outcomes = outcomes[-at_once:], outcomes[:-at_once]
            aside = run.set_aside.keys()
            run.tell(outcome for outcome in told if outcome.model not in aside)
    return run


def about(look: Look, model: int) -> list[Verdict]:
    return [pair.verdict for pair in look.comparisons if model in (pair.first, pair.second)]


@given(plans(), st.integers(0, 10**6), st.sampled_from([1, 1, 2, 3, AT_THE_END]), st.data())
def test_nothing_is_decided_or_asked_of_such_a_model(plan: Plan, seed: int, at_look: int, data: st.DataObject) -> None:
    void = data.draw(st.sampled_from(np.flatnonzero(plan.bench.asked).tolist()))
    plain, run = played(plan, seed, None, 1 << 30), played(plan, seed, found_at(at_look, void), 1 << 30)
    if void not in run.set_aside or not run.looks:
        return  # the budget has ended it before
    before = [look for look in run.looks if look.trials[void] < run.trials[void]]
    assert [repr(look) for look in before] == [repr(look) for look in plain.looks[: len(before)]]
    assert not {*about(run.looks[-1], void)} & {*DECIDED}
    assert run.looks[-1].order[-1] == void
    result = result_of(run)
    assert all(row.called is None for row in result.comparisons if void in row.verdict[:2])
    assert void not in {model for pair in result.reversals for model in pair[:2]}
    again = played(plan, seed, found_at(at_look, void), 3)
    assert [repr(look) for look in again.looks] == [repr(look) for look in run.looks], "in any order of answers"


def test_the_models_beside_it_are_compared_with_each_other() -> None:
    plain = finished_run([0.9, 0.6, 0.3])
    assert {frozenset(pair[:2]) for pair in plain.looks[-1].comparisons} == {frozenset({0, 1}), frozenset({1, 2})}
    for look in 1, AT_THE_END:
        run = finished_run([0.9, 0.6, 0.3], find_void=found_at(look, 1))
        found = {frozenset(pair[:2]): pair.verdict for pair in run.looks[-1].comparisons}
        assert found == {frozenset({0, 2}): Verdict.RESOLVED, frozenset({2, 1}): Verdict.BLOCKED}
        assert len(run.looks) > len(plain.looks) or look == 1, "a run that has ended looks again"


def test_a_model_that_is_set_aside_for_another_reason_decides_nothing_either() -> None:
    """What was called by its copies before does not stand."""
    plan, find = finished_run([0.9, 0.6, 0.3]).plan, found_at(AT_THE_END, 0)
    for finds in None, find:
        run, answers = (
            Controller(plan, find_void=finds),
            Answers(plan, 1, lambda model, question: [0.95, 0.5, 0.4][model]),
        )
        while len(run.looks) < 2 and run.finished is None:
            run.tell(answers.of(run.ask(1 << 30)))
        run.tell([SetAside(0, "its server is gone")])
        while run.finished is None:
            run.tell(answers.of(run.ask(1 << 30)))
        assert Verdict.RESOLVED in about(run.looks[0], 0)
        assert ({*about(run.looks[-1], 0)} == {Verdict.BLOCKED}) == (finds is not None)
        assert run.set_aside[0].cause is Cause.SERVER


def test_no_gate_passes_against_such_a_baseline() -> None:
    plan, skills = gate_of_benchmarks(models=3), chances((0.8, 0.7), (0.8, 0.75), (0.2, 0.3))
    for find, expected in (None, {1, -1}), (found_at(1, 0), {0}), (found_at(AT_THE_END, 1), {0, -1}):
        run = play_chances(Controller(plan, find_void=find), skills, np.random.default_rng(1))
        assert {row.call for row in result_of(run).gates} == expected


def test_such_a_model_is_not_chosen_as_the_cheapest() -> None:
    scores, usd = [0.9, 0.88, 0.3], [1.0, 0.2, 0.1]
    for void in None, 0, 1, 2:
        find = None if void is None else found_at(AT_THE_END, void)
        tape = Tape.from_chances(by_score(scores), W, np.random.default_rng(3))
        run = drive_rounds(Controller(cheapest(3), find_void=find), tape, [[Cost(100, price)] * 2 for price in usd])
        chosen = [model for model, part in parts(run).items() if part is Part.CHOSEN]
        assert void not in chosen and not (void == 0 and chosen)
        assert void is not None or chosen == [1]


def test_verdicts_by_labels_stand_between_the_other_models() -> None:
    by_labels = correction([-0.2, 0.0, 0.0])
    for find in None, found_at(AT_THE_END, 2):
        result = finished_run(find_void=find).result(by_labels)
        assert result is not None
        found = {frozenset(row.verdict[:2]): row.verdict.verdict for row in result.comparisons}
        assert found[frozenset({0, 1})] is Verdict.UNDECIDED_BY_LABELS
        assert find is None or {verdict for pair, verdict in found.items() if 2 in pair} == {Verdict.BLOCKED}
