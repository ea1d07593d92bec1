"""Cut-off answers: no call is made that they could reverse, and too many of them end the run."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from core_runs import after, play
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from adaptive_eval.core import Ask, Bench, Controller, Judging, Outcome, Plan, Reason, Trials, Verdict
from adaptive_eval.core.answer_kinds import AnswerKind, answer_kinds
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.shared_trials import SharedTrials, UnsureGrades
from adaptive_eval.core.types import Cause
from adaptive_eval.graders.types import FLAGS

CUT = int(AnswerKind.TRUNCATED)
BINARY = np.array([0.0, 1.0])
REVERSED = np.array([1.0, 0.0])
"""The share of wrong answers; category 0 is wrong, as in BINARY."""
seeds = st.integers(0, 2**20)


def one_look(
    bound: float,
    trials: int = 4,
    questions: int = 2,
    delta: float = 0.0,
    weights: NDArray[np.float64] = BINARY,
    **more: object,
) -> Plan:
    """A plan with one look at all trials."""
    judging = Judging(delta=delta, futility=None)
    plan = Plan(
        Bench(3, questions, weights), rule=ZScore(bound), trials=Trials(min=trials, max=trials), judging=judging
    )
    return replace(plan, prior="uniform", may_be_right=CUT, **more)  # type: ignore[arg-type]


def run_to_end(plan: Plan, grade: Callable[[Ask], tuple[int, int]]) -> Controller:
    """A controller that was told the grade and the kinds of every trial."""
    return play(Controller(plan), grade)


def test_every_signal_of_an_answer_is_a_kind() -> None:
    assert {kind.signal for kind in AnswerKind} == set(FLAGS)
    assert answer_kinds("empty truncated") == AnswerKind.EMPTY | AnswerKind.TRUNCATED
    assert answer_kinds("") == answer_kinds("a_signal_of_a_later_version") == 0


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.3, 0.6]), st.booleans())
def test_no_call_or_tie_would_change_if_cut_answers_had_been_right(
    data: st.DataObject, bound: float, delta: float, lower_is_better: bool
) -> None:
    cell = st.sampled_from([(0, 0), (1, 0), (1, 0), (0, CUT), (0, 0), (1, CUT)])
    table = [[[data.draw(cell) for _ in range(4)] for _ in range(2)] for _ in range(3)]
    weights = REVERSED if lower_is_better else BINARY
    plan = one_look(bound, delta=delta, weights=weights, stops_on_alarm=False, best_is_sure=not lower_is_better)

    def judged(right: Sequence[bool]) -> Controller:
        """The run if all cut-off answers of some models had been complete and right."""

        def grade(ask: Ask) -> tuple[int, int]:
            category, kinds = table[ask.model][ask.question][ask.trial]
            return (1, 0) if right[ask.model] and kinds else (category, kinds if not any(right) else 0)

        return run_to_end(plan, grade)

    look = judged((False, False, False)).last_look
    assert look is not None
    for right in product((False, True), repeat=3):
        look_if_right = judged(right).last_look
        assert look_if_right is not None
        for pair, (first, second) in enumerate(((0, 1), (0, 2), (1, 2))):
            if right[first] == right[second]:
                continue
            if look.memory.call[pair]:
                assert look_if_right.memory.call[pair] == look.memory.call[pair]
            if look.memory.tie[pair]:
                assert look_if_right.memory.tie[pair] or look_if_right.memory.call[pair]


@pytest.mark.parametrize("coupled", [False, True])
def test_the_best_model_is_not_called_worse_when_its_answers_are_cut_off(coupled: bool) -> None:
    plan = Plan(Bench(3, 20, BINARY), trials=Trials(min=8, max=40), coupled=coupled, may_be_right=CUT)

    def grade(ask: Ask) -> tuple[int, int]:
        if ask.model == 0:
            return (0, CUT) if (ask.trial + ask.question) % 10 else (1, 0)
        return int((ask.trial + ask.question) % 3 == 0) if ask.model == 1 else 0, 0

    controller = run_to_end(plan, grade)
    assert controller.finished is Reason.ALARM and controller.set_aside[0].cause is Cause.ANSWERS
    (alarm,) = controller.alarms
    assert (alarm.model, alarm.kind, alarm.since) == (0, AnswerKind.TRUNCATED, None)
    assert controller.set_aside[0].reason == alarm.reason and f"{alarm.answers} of its {alarm.of} " in alarm.reason
    assert all(controller.looks[-1].count(verdict) == 0 for verdict in (Verdict.RESOLVED, Verdict.TIED))
    result = controller.result()
    assert result is not None
    (row,) = (row for row in result.models if row.model == 0)
    assert row.lowest == row.score and row.highest == 1.0 and row.cut == alarm.answers
    assert run_to_end(replace(plan, may_be_right=0), grade).finished is not Reason.ALARM


@pytest.mark.parametrize(
    ("cut", "of", "alarmed"),
    [(2, 8, False), (3, 8, True), (4, 40, False), (5, 40, True), (40, 40, True)],
)
def test_more_than_a_tenth_of_cut_answers_ends_the_run(cut: int, of: int, alarmed: bool) -> None:
    plan = one_look(99.0, trials=of, questions=1)
    controller = run_to_end(plan, lambda ask: (0, CUT if ask.model == 1 and ask.trial < cut else 0))
    assert (controller.finished is Reason.ALARM) == alarmed == bool(controller.alarms)
    right = run_to_end(plan, lambda ask: (1, CUT if ask.model == 1 and ask.trial < cut else 0))
    assert not right.alarms  # nothing better can have been lost


@pytest.mark.parametrize("coupled", [False, True])
def test_cut_answers_decide_nothing_when_wrong_answers_weigh_most(coupled: bool) -> None:
    """Model 0 would be as often right as model 1 if none of its answers had been cut off."""
    bench = Bench(2, 20, REVERSED)
    plan = Plan(bench, trials=Trials(min=8, max=40), coupled=coupled, may_be_right=CUT, best_is_sure=False)
    plan = replace(plan, stops_on_alarm=False)

    def grade(ask: Ask) -> tuple[int, int]:
        right = (ask.trial + ask.question) % 2
        return (0, CUT) if ask.model == 0 and right and ask.question % 2 else (right, 0)

    controller = run_to_end(plan, grade)
    assert all(look.count(verdict) == 0 for look in controller.looks for verdict in (Verdict.RESOLVED, Verdict.TIED))
    assert controller.looks[-1].count(Verdict.BLOCKED) == 1
    result = controller.result()
    assert result is not None
    assert {row.model: (row.lowest, row.highest) for row in result.models}[0] == pytest.approx((0.5, 0.75))
    assert run_to_end(replace(plan, may_be_right=0), grade).looks[-1].count(Verdict.RESOLVED) == 1


def test_a_cut_answer_between_the_best_and_the_worst_category_could_be_in_either() -> None:
    plan = replace(one_look(99.0), bench=Bench(3, 2, np.array([0.0, 0.5, 1.0])), stops_on_alarm=False)
    result = run_to_end(plan, lambda ask: (1, CUT * (ask.model == 0 and ask.trial == 0))).result()
    assert result is not None
    rows = {row.model: (row.lowest, row.score, row.highest) for row in result.models}
    assert rows[0] == pytest.approx((0.375, 0.5, 0.625)) and rows[1] == pytest.approx((0.5, 0.5, 0.5))


def test_shared_trials_stay_unsure_when_settings_change() -> None:
    """The bounds of a pair that is judged by shared trials are the same after `trials.max` was raised."""
    bench = Bench(2, 20, BINARY)

    def told_of(shared: SharedTrials) -> list[str]:
        return [str(part) for part in shared.paired(np.array([0]), np.array([1]), 40, bounded=True)]

    before, after = (SharedTrials(bench, UnsureGrades(CUT, 1)) for _ in range(2))
    questions = np.repeat(np.arange(20), 4)
    for model in range(2):
        batch = Batch(model, 0, np.zeros(20, np.int32), np.full(20, 4, np.int32))
        for question, trial in zip(questions.tolist(), np.tile(np.arange(4), 20).tolist(), strict=True):
            right = int((question + trial) % 3 > 0)
            batch.place(Outcome(model, question, trial, right, kinds=CUT * (1 - right) * (model == 0)))
        before.take([batch])
    after.take_over(before, (0, 1))
    as_graded, ahead, behind = told_of(before)
    assert ahead != as_graded and told_of(after) == [as_graded, ahead, behind]


@pytest.mark.parametrize("familywise", [False, True])
def test_cut_answers_decide_nothing_in_a_run_that_continues_after_an_alarm(familywise: bool) -> None:
    plan = one_look(1.0, trials=20, stops_on_alarm=False)
    if familywise:
        plan = replace(plan, rule=Sequential(), judging=Judging(futility=None, familywise=True))
    controller = run_to_end(plan, lambda ask: (int(ask.model == 1), CUT * (ask.model == 0)))
    assert controller.finished is Reason.BLOCKED and not controller.set_aside and len(controller.alarms) == 1
    verdicts = {frozenset((pair.first, pair.second)): pair.verdict for pair in controller.looks[-1].comparisons}
    assert verdicts[frozenset((1, 0))] is Verdict.BLOCKED


def test_a_pair_that_only_cut_answers_keep_from_going_on_is_blocked() -> None:
    """As graded it would be open, and with all grades as they could be no number of trials decides it."""
    bench = Bench(2, 20, BINARY)
    plan = Plan(bench, trials=Trials(min=8, max=40), may_be_right=CUT, stops_on_alarm=False)

    def grade(ask: Ask) -> tuple[int, int]:
        place = (7 * ask.question + 3 * ask.trial) % 20
        return int(place < (10 if ask.model else 9)), CUT * (ask.model == 0 and place >= 18)

    controller = run_to_end(plan, grade)
    (pair,) = controller.looks[-1].comparisons
    assert pair.verdict is Verdict.BLOCKED and controller.finished is Reason.BLOCKED
    assert run_to_end(replace(plan, may_be_right=0), grade).looks[-1].comparisons[0].verdict is not Verdict.BLOCKED


def test_a_model_that_cut_answers_could_make_the_best_is_compared_though_it_is_no_neighbour() -> None:
    plan = Plan(Bench(3, 100, BINARY), trials=Trials(min=8, max=60), may_be_right=CUT)

    def grade(ask: Ask) -> tuple[int, int]:
        place = (37 * ask.question + 11 * ask.trial + 50 * ask.model) % 100
        return int(place < (78, 84, 76)[ask.model]), CUT * (ask.model == 2 and 76 <= place < 86)

    controller = run_to_end(plan, grade)
    look = controller.looks[-1]
    verdicts = {(pair.first, pair.second): pair.verdict for pair in look.comparisons}
    assert verdicts[1, 0] is Verdict.RESOLVED and verdicts[1, 2] is Verdict.BLOCKED
    assert look.tiers == (1, 1, 1), "no model is shown to be best while another could be"
    as_graded = run_to_end(replace(plan, may_be_right=0), grade).looks[-1]
    assert as_graded.tiers[1] == 1 and as_graded.tiers[0] == 2


@pytest.mark.parametrize("are_known", [False, True], ids=["wrong", "cut off"])
def test_cut_answers_of_an_earlier_run_call_no_winner_between_equal_models(are_known: bool) -> None:
    """Of 16 prior outcomes of a question one is cut off, which counts as wrong: without it the models are equal."""
    plan = one_look(0.8, trials=2, questions=12)
    prior, unsure = np.zeros((3, 12, 2), dtype=np.int64), np.zeros((3, 12, 2), dtype=np.int64)
    prior[:] = [8, 8]
    prior[1] = [9, 7]
    unsure[1, :, 0] = int(are_known)
    plan = replace(plan, bench=replace(plan.bench, prior_counts=prior, prior_unsure=unsure))
    look = run_to_end(plan, lambda ask: (ask.trial % 2, 0)).latest_look()
    assert look is not None
    verdicts = {(pair.first, pair.second): pair.verdict for pair in look.comparisons if 1 in (pair.first, pair.second)}
    assert set(verdicts.values()) == {Verdict.BLOCKED if are_known else Verdict.RESOLVED}


@pytest.mark.parametrize("models", [(0, 1, 2), (1, 2)], ids=["same numbers", "other numbers"])
@pytest.mark.parametrize("is_removed", [False, True], ids=["added", "removed"])
def test_cut_answers_of_a_prior_that_is_changed_after_looks_count_once(
    is_removed: bool, models: tuple[int, ...]
) -> None:
    without = one_look(0.8, questions=12, stops_on_alarm=False)
    prior, unsure = np.full((3, 12, 2), 8, dtype=np.int64), np.zeros((3, 12, 2), dtype=np.int64)
    unsure[:, :, 0] = [[3], [2], [1]]

    def stage(numbers: tuple[int, ...], *, has_prior: bool) -> Plan:
        known, cut = (prior[[*numbers]], unsure[[*numbers]]) if has_prior else (None, None)
        return replace(without, bench=Bench(len(numbers), 12, BINARY, prior_counts=known, prior_unsure=cut))

    first = stage((0, 1, 2), has_prior=is_removed)
    before = run_to_end(first, lambda ask: (0, CUT * (ask.model == 1 and ask.trial == 0)))
    tally = Controller(after(before, stage(models, has_prior=not is_removed), models)).taker.tally
    of_run = [12 * (old_number == 1) for old_number in models]
    assert [tally.share_unsure(model) for model in range(len(models))] == [(cut, 48) for cut in of_run]
    of_prior = [0] * len(models) if is_removed else unsure[[*models]].sum(axis=(1, 2)).tolist()
    assert tally.unsure.sum(axis=(1, 2)).tolist() == [a + b for a, b in zip(of_run, of_prior, strict=True)]
    assert tally.unsure.min() == 0 and (bounds := tally.bounds()) is not None
    assert bool((bounds.lowest.score <= bounds.highest.score).all())


def test_a_result_counts_cut_answers_of_this_run_and_of_recorded_models_and_none_of_r0() -> None:
    prior, unsure = np.full((3, 12, 2), 8, dtype=np.int64), np.zeros((3, 12, 2), dtype=np.int64)
    unsure[:, :, 0] = [[3], [2], [1]]
    bench = Bench(3, 12, BINARY, prior_counts=prior, prior_unsure=unsure, recorded=frozenset({2}))
    plan = replace(one_look(0.8, stops_on_alarm=False), bench=bench)
    result = run_to_end(plan, lambda ask: (0, CUT * (ask.model == 1 and ask.trial == 0))).result()
    assert result is not None
    assert {row.model: row.cut for row in result.models} == {0: 0, 1: 12, 2: 12}
