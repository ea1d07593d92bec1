"""Ungraded and incomplete answers: rounds and looks continue, and no call is made that these answers could reverse."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from core_runs import BINARY, Answers, Faulty, after, plans, play, result_of, seeds, standing_of, straight, verdicts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from adaptive_eval.core import Bench, Controller, Optimal, Pace, Plan, Ranking, Rule, Trials, ZScore
from adaptive_eval.core.answer_kinds import INCOMPLETE, NOTHING_UNSURE, AnswerKind, UnsureGrades, answer_kinds
from adaptive_eval.core.evidence import Estimates, update
from adaptive_eval.core.judge import Criteria, Judging, LatchedVerdicts, judge
from adaptive_eval.core.objectives import PrecisionOf
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.sequential import ContinuedSequential, Sequential
from adaptive_eval.core.shared_trials import SharedTrials
from adaptive_eval.core.tally import extreme_counts, why_unjudgeable
from adaptive_eval.core.types import Ask, Cause, Outcome, Reason, Verdict
from adaptive_eval.graders.types import FLAGS

Table = Sequence[Sequence[Sequence[int | None]]]


def told(plan: Plan, grade: Callable[[Ask], int | None | tuple[int, int]] | Table) -> Controller:
    """A run that was told the grade of every trial, or its grade and its kinds, or grades by model and question."""
    return play(Controller(plan), grade if callable(grade) else lambda ask: grade[ask.model][ask.question][ask.trial])


def one_look(
    bound: float,
    trials: int = 4,
    questions: int = 2,
    delta: float = 0.0,
    weights: NDArray[np.float64] = np.array([0.0, 1.0]),  # noqa: B008
    **more: object,
) -> Plan:
    """A plan with one look at all trials."""
    bench, judging = Bench(3, questions, weights), Judging(delta=delta, futility=None)
    plan = Plan(bench, rule=ZScore(bound), trials=Trials(min=trials, max=trials), judging=judging, prior="uniform")
    return replace(plan, **more)  # type: ignore[arg-type]


def filled(table: Table, values: Sequence[int]) -> Table:
    """Every ungraded answer of each model with this grade."""
    return [
        [[value if category is None else category for category in cells] for cells in rows]
        for rows, value in zip(table, values, strict=True)
    ]


def require_alike(run: Controller, ways: Mapping[Sequence[int], Controller]) -> None:
    """What a run has called or tied is so in each way in which unknown grades of models have different values."""
    memory = standing_of(run).memory
    for (values, other), (pair, (first, second)) in product(ways.items(), enumerate(((0, 1), (0, 2), (1, 2)))):
        in_this_way = standing_of(other).memory
        if values[first] != values[second]:  # an extreme: one up, the other down
            assert not memory.call[pair] or in_this_way.call[pair] == memory.call[pair]
            assert not memory.tie[pair] or in_this_way.tie[pair] or in_this_way.call[pair], "a call before a tie"


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
    require_alike(told(plan, table), {v: told(plan, filled(table, v)) for v in product((0, 1), repeat=3)})


def test_a_comparison_that_depends_on_missing_grades_is_blocked() -> None:
    """Called at best and not at worst: it is reported as undecided, while clear comparisons are called."""
    plan = one_look(questions=1, trials=40, bound=1.645)
    table = [[[1] * 29 + [0] * 9 + [None] * 2], [[1] * 22 + [0] * 18], [[0] * 40]]
    run = told(plan, table)
    assert verdicts_of(run) == {(0, 1): Verdict.BLOCKED, (1, 2): Verdict.RESOLVED}
    assert run.finished is Reason.BLOCKED
    assert run.set_aside == {}
    result = result_of(run)
    assert (result.models[0].lowest, result.models[0].highest) == (29 / 40, 31 / 40)
    assert result.models[0].score == 29 / 38
    assert told(plan, filled(table, (0, 0, 0))).looks[-1].comparisons[0].verdict is Verdict.OUT_OF_REACH
    assert told(plan, filled(table, (1, 0, 0))).looks[-1].comparisons[0].verdict is Verdict.RESOLVED


@pytest.mark.parametrize("rule", [Optimal(start=0.2), Sequential(start=0.2)])
@pytest.mark.parametrize("lost", [None, 0, 1])
def test_a_first_look_may_call_though_an_answer_has_no_grade(rule: Rule, lost: int | None) -> None:
    """Information counts requested trials, so that the first look is not before the first allowed."""
    plan = Plan(Bench(2, 10, np.array([0.0, 1.0])), rule=rule, trials=Trials(min=4, max=20), judging=Judging())
    table: list[list[list[int | None]]] = [[[1, 1, 1, 0]] * 10, [[0, 0, 1, 0]] * 10]
    if lost is not None:
        table[lost] = [[None, *table[lost][0][1:]], *table[lost][1:]]
    run = told(plan, table)
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
def test_models_with_too_many_ungraded_are_set_aside(graded: list[int], ungraded: list[int], why: str | None) -> None:
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
    extremes = extreme_counts(counts, np.array([ungraded, [0, 0]]), late, bench.weights)
    before, worst, best = (
        update(Estimates.nothing(bench), np.arange(2), filled, bench, "uniform", 8) for filled in (counts, *extremes)
    )
    assert worst.score[0] == pytest.approx(lowest)
    assert best.score[0] == pytest.approx(highest)
    assert worst.score[1] == before.score[1] == best.score[1]


@pytest.mark.parametrize("kind", INCOMPLETE)
@pytest.mark.parametrize("named", [False, True])
def test_incomplete_answers_block_calls_they_could_turn_unless_rubrics_name_them(kind: AnswerKind, named: bool) -> None:
    unsure = {"unsure": UnsureGrades(int(INCOMPLETE & ~kind if named else INCOMPLETE), 1)}
    right = {0: 30, 1: 22, 2: 0}
    controller = told(
        one_look(questions=1, trials=40, bound=1.645, **unsure),
        lambda ask: (int(ask.trial < right[ask.model]), kind * (ask.trial >= 38)),
    )
    assert verdicts_of(controller) == {(0, 1): Verdict.RESOLVED if named else Verdict.BLOCKED, (1, 2): Verdict.RESOLVED}
    best = result_of(controller).models[0]
    assert (best.lowest, best.highest, best.unsure) == (30 / 40, (30 if named else 32) / 40, 0 if named else 2)


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


CUT = int(AnswerKind.TRUNCATED)
one_look_with_cuts = partial(one_look, unsure=UnsureGrades(CUT, 1))
REVERSED = np.array([1.0, 0.0])
"""The share of wrong answers; category 0 is wrong, as in BINARY."""


def test_every_signal_of_an_answer_is_a_kind() -> None:
    assert {kind.signal for kind in AnswerKind} == set(FLAGS)
    assert answer_kinds("empty truncated") == AnswerKind.EMPTY | AnswerKind.TRUNCATED
    assert answer_kinds("") == answer_kinds("a_signal_of_a_later_version") == 0
    assert answer_kinds(INCOMPLETE.signal) == INCOMPLETE


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.3, 0.6]), st.booleans())
def test_no_call_or_tie_would_change_if_incomplete_answers_had_been_right(
    data: st.DataObject, bound: float, delta: float, lower_is_better: bool
) -> None:
    kind = data.draw(st.sampled_from([*INCOMPLETE, INCOMPLETE]))
    cell = st.sampled_from([(0, 0), (1, 0), (1, 0), (0, int(kind)), (0, 0), (1, int(kind))])
    table = [[[data.draw(cell) for _ in range(4)] for _ in range(2)] for _ in range(3)]
    weights = REVERSED if lower_is_better else BINARY
    settings_of_kinds = {"unsure": UnsureGrades(int(INCOMPLETE), None if lower_is_better else 1)}
    plan = one_look(bound, delta=delta, weights=weights, stops_on_alarm=False, **settings_of_kinds)

    def judged(right: Sequence[bool]) -> Controller:
        """The run if all incomplete answers of some models had been complete and right."""

        def grade(ask: Ask) -> tuple[int, int]:
            category, kinds = table[ask.model][ask.question][ask.trial]
            return (1, 0) if right[ask.model] and kinds else (category, kinds if not any(right) else 0)

        return told(plan, grade)

    require_alike(judged((False, False, False)), {right: judged(right) for right in product((False, True), repeat=3)})


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("kind", [AnswerKind.TRUNCATED, AnswerKind.CONTEXT_LENGTH])
def test_the_best_model_is_not_called_worse_when_its_answers_are_incomplete(kind: AnswerKind, coupled: bool) -> None:
    plan = Plan(Bench(3, 20, BINARY), trials=Trials(min=8, max=40), coupled=coupled, unsure=UnsureGrades(int(kind), 1))

    def grade(ask: Ask) -> tuple[int, int]:
        if ask.model == 0:
            return (0, int(kind)) if (ask.trial + ask.question) % 10 else (1, 0)
        return int((ask.trial + ask.question) % 3 == 0) if ask.model == 1 else 0, 0

    controller = told(plan, grade)
    assert controller.finished is Reason.ALARM and controller.set_aside[0].cause is Cause.ANSWERS
    (alarm,) = controller.alarms
    assert (alarm.model, alarm.kind, alarm.since) == (0, kind, None)
    assert controller.set_aside[0].reason == alarm.reason and f"{alarm.answers} of its {alarm.of} " in alarm.reason
    assert all(controller.looks[-1].count(verdict) == 0 for verdict in (Verdict.RESOLVED, Verdict.TIED))
    result = result_of(controller)
    (row,) = (row for row in result.models if row.model == 0)
    assert row.lowest == row.score and row.highest == 1.0 and row.unsure == alarm.answers
    assert told(replace(plan, unsure=NOTHING_UNSURE), grade).finished is not Reason.ALARM


@pytest.mark.parametrize(
    ("cut", "of", "alarmed"), [(2, 8, False), (3, 8, True), (4, 40, False), (5, 40, True), (40, 40, True)]
)
def test_more_than_a_tenth_of_cut_answers_ends_the_run(cut: int, of: int, alarmed: bool) -> None:
    plan = one_look_with_cuts(99.0, trials=of, questions=1)
    controller = told(plan, lambda ask: (0, CUT if ask.model == 1 and ask.trial < cut else 0))
    assert (controller.finished is Reason.ALARM) == alarmed == bool(controller.alarms)
    right = told(plan, lambda ask: (1, CUT if ask.model == 1 and ask.trial < cut else 0))
    assert not right.alarms  # nothing better can have been lost


def test_an_alarm_names_all_kinds_of_incomplete_answers_and_counts_no_others() -> None:
    kinds = [AnswerKind.TRUNCATED, AnswerKind.TIMED_OUT, AnswerKind.EMPTY, AnswerKind.TIMED_OUT | AnswerKind.EMPTY]
    bits = int(INCOMPLETE | AnswerKind.EMPTY)  # as in a gate
    plan = one_look(99.0, trials=20, questions=1, unsure=UnsureGrades(bits, 1))
    controller = told(plan, lambda ask: (0, int(kinds[ask.trial]) if ask.model == 1 and ask.trial < 4 else 0))
    (alarm,) = controller.alarms
    assert alarm.kind == AnswerKind.TRUNCATED | AnswerKind.TIMED_OUT and (alarm.answers, alarm.of) == (3, 20)
    assert alarm.reason.startswith("3 of its 20 answers (15%) timed out at every attempt or were cut off at a limit")
    empty = told(plan, lambda ask: (0, int(AnswerKind.EMPTY) if ask.model == 1 and ask.trial < 9 else 0))
    assert not empty.alarms and empty.result() is not None


@pytest.mark.parametrize("coupled", [False, True])
def test_cut_answers_decide_nothing_when_wrong_answers_weigh_most(coupled: bool) -> None:
    """Model 0 would be as often right as model 1 if none of its answers had been cut off."""
    bench = Bench(2, 20, REVERSED)
    plan = Plan(bench, trials=Trials(min=8, max=40), coupled=coupled, unsure=UnsureGrades(CUT))
    plan = replace(plan, stops_on_alarm=False)

    def grade(ask: Ask) -> tuple[int, int]:
        right = (ask.trial + ask.question) % 2
        return (0, CUT) if ask.model == 0 and right and ask.question % 2 else (right, 0)

    controller = told(plan, grade)
    assert all(look.count(verdict) == 0 for look in controller.looks for verdict in (Verdict.RESOLVED, Verdict.TIED))
    assert controller.looks[-1].count(Verdict.BLOCKED) == 1
    result = result_of(controller)
    assert {row.model: (row.lowest, row.highest) for row in result.models}[0] == pytest.approx((0.5, 0.75))
    assert told(replace(plan, unsure=NOTHING_UNSURE), grade).looks[-1].count(Verdict.RESOLVED) == 1


def test_a_model_with_too_many_ungraded_answers_stays_aside_under_other_settings() -> None:
    plan = Plan(Bench(2, 12, BINARY), trials=Trials(min=4, max=8))
    before = told(plan, lambda ask: None if ask.model and not ask.trial and ask.question % 2 else ask.trial % 2)
    again = Controller(after(before, replace(plan, trials=Trials(min=4, max=16))))
    assert before.set_aside[1].cause is again.set_aside[1].cause is Cause.GRADER
    assert again.ask(1000) == [] and again.finished is Reason.BLOCKED


def test_a_cut_answer_between_the_best_and_the_worst_category_could_be_in_either() -> None:
    plan = one_look(99.0, stops_on_alarm=False, unsure=UnsureGrades(CUT, 2))
    plan = replace(plan, bench=Bench(3, 2, np.array([0.0, 0.5, 1.0])))
    result = result_of(told(plan, lambda ask: (1, CUT * (ask.model == 0 and ask.trial == 0))))
    rows = {row.model: (row.lowest, row.score, row.highest) for row in result.models}
    assert rows[0] == pytest.approx((0.375, 0.5, 0.625)) and rows[1] == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("kind", [CUT, None], ids=["cut off", "no grade"])
@pytest.mark.parametrize(
    ("share", "verdict"), [(1.1, Verdict.RESOLVED), (0.9, Verdict.BLOCKED), (0.5, Verdict.OUT_OF_REACH)]
)
def test_a_score_is_precise_if_unknown_grades_cannot_move_it(kind: int | None, share: float, verdict: Verdict) -> None:
    """Model 0 has 4 unknown grades of 80; `share` is that of the half-width that holds whatever they are."""

    def grade(ask: Ask) -> int | None | tuple[int, int]:
        right = (ask.trial + ask.question) % 2
        return right if ask.model or ask.trial >= 2 else None if kind is None else (0, kind)

    def run(half_width: float) -> Controller:
        plan = one_look_with_cuts(1.0, trials=40, objective=PrecisionOf(half_width), stops_on_alarm=False)
        return told(plan, grade)

    rows = result_of(run(1.0)).models
    (row,) = (row for row in rows if row.model == 0)
    needed = 1.959964 * row.sigma + (row.highest - row.lowest) / 2.0
    assert row.highest - row.lowest == pytest.approx(0.05)
    verdicts = verdicts_of(run(share * needed))
    assert verdicts[0, None] is verdict and (share < 0.6 or verdicts[1, None] is Verdict.RESOLVED)


def test_a_run_ends_once_unknown_grades_leave_no_score_precise() -> None:
    """A tenth of the answers could move each score by five points either way."""
    plan = one_look_with_cuts(1.0, questions=10, objective=PrecisionOf(0.04), stops_on_alarm=False)
    plan = replace(plan, trials=Trials(min=4, max=400), judging=Judging())
    controller = told(plan, lambda ask: (ask.trial % 2, CUT * (ask.question == 0)))
    (first, *_) = controller.looks
    assert controller.finished is Reason.BLOCKED and len(controller.looks) == 1
    assert {pair.verdict for pair in first.comparisons} == {Verdict.BLOCKED}
    result = result_of(controller)
    assert {comparison.deciding_max for comparison in result.comparisons} == {np.inf}


@pytest.mark.parametrize("kinds", [CUT, 0], ids=["unsure before", "sure before"])
def test_shared_trials_are_unsure_by_the_settings_of_today(kinds: int) -> None:
    """The bounds of a pair that is judged by shared trials follow from the settings of the new stage alone."""
    bench = Bench(2, 20, BINARY)

    def told_of(shared: SharedTrials) -> list[str]:
        return [str(part) for part in shared.paired(np.array([0]), np.array([1]), 40, bounded=True)]

    before, after, anew = (SharedTrials(bench, UnsureGrades(bits, 1)) for bits in (kinds, CUT, CUT))
    questions = np.repeat(np.arange(20), 4)
    for model in range(2):
        batch = Batch(model, 0, np.zeros(20, np.int32), np.full(20, 4, np.int32))
        for question, trial in zip(questions.tolist(), np.tile(np.arange(4), 20).tolist(), strict=True):
            right = int((question + trial) % 3 > 0)
            batch.place(Outcome(model, question, trial, right, kinds=CUT * (1 - right) * (model == 0)))
        before.take([batch])
        anew.take([batch])
    after.take_over(before, (0, 1))
    as_graded, ahead, behind = told_of(anew)
    assert ahead != as_graded and told_of(after) == [as_graded, ahead, behind]
    assert (told_of(before) == [as_graded] * 3) == (not kinds)


@pytest.mark.parametrize("familywise", [False, True])
def test_cut_answers_decide_nothing_in_a_run_that_continues_after_an_alarm(familywise: bool) -> None:
    plan = one_look_with_cuts(1.0, trials=20, stops_on_alarm=False)
    if familywise:
        plan = replace(plan, rule=Sequential(), judging=Judging(futility=None, familywise=True))
    controller = told(plan, lambda ask: (int(ask.model == 1), CUT * (ask.model == 0)))
    assert controller.finished is Reason.BLOCKED and not controller.set_aside and len(controller.alarms) == 1
    assert verdicts_of(controller)[1, 0] is Verdict.BLOCKED


def test_a_pair_that_only_cut_answers_keep_from_going_on_is_blocked() -> None:
    """As graded it would be open, and with all grades as they could be no number of trials decides it."""
    bench = Bench(2, 20, BINARY)
    plan = Plan(bench, trials=Trials(min=8, max=40), unsure=UnsureGrades(CUT, 1), stops_on_alarm=False)

    def grade(ask: Ask) -> tuple[int, int]:
        place = (7 * ask.question + 3 * ask.trial) % 20
        return int(place < (10 if ask.model else 9)), CUT * (ask.model == 0 and place >= 18)

    controller = told(plan, grade)
    (pair,) = controller.looks[-1].comparisons
    assert pair.verdict is Verdict.BLOCKED and controller.finished is Reason.BLOCKED
    assert told(replace(plan, unsure=NOTHING_UNSURE), grade).looks[-1].comparisons[0].verdict is not Verdict.BLOCKED


def test_a_model_that_cut_answers_could_make_the_best_is_compared_though_it_is_no_neighbour() -> None:
    plan = Plan(Bench(3, 100, BINARY), trials=Trials(min=8, max=60), unsure=UnsureGrades(CUT, 1))

    def grade(ask: Ask) -> tuple[int, int]:
        place = (37 * ask.question + 11 * ask.trial + 50 * ask.model) % 100
        return int(place < (78, 84, 76)[ask.model]), CUT * (ask.model == 2 and 76 <= place < 86)

    controller = told(plan, grade)
    verdicts = verdicts_of(controller)
    assert verdicts[1, 0] is Verdict.RESOLVED and verdicts[1, 2] is Verdict.BLOCKED
    assert controller.looks[-1].tiers == (1, 1, 1), "no model is shown to be best while another could be"
    as_graded = told(replace(plan, unsure=NOTHING_UNSURE), grade).looks[-1]
    assert as_graded.tiers[1] == 1 and as_graded.tiers[0] == 2


@pytest.mark.parametrize("are_known", [False, True], ids=["wrong", "cut off"])
def test_cut_answers_of_an_earlier_run_call_no_winner_between_equal_models(are_known: bool) -> None:
    """Of 16 prior outcomes of a question one is cut off, which counts as wrong: without it the models are equal."""
    plan = one_look_with_cuts(0.8, trials=2, questions=12)
    prior, unsure = np.zeros((3, 12, 2), dtype=np.int64), np.zeros((3, 12, 2), dtype=np.int64)
    prior[:] = [8, 8]
    prior[1] = [9, 7]
    unsure[1, :, 0] = int(are_known)
    plan = replace(plan, bench=replace(plan.bench, prior_counts=prior, prior_unsure=unsure))
    verdicts = verdicts_of(told(plan, lambda ask: (ask.trial % 2, 0)))
    of_model = {verdict for pair, verdict in verdicts.items() if 1 in pair}
    assert of_model == {Verdict.BLOCKED if are_known else Verdict.RESOLVED}


PRIOR = np.full((3, 12, 2), 8, dtype=np.int64)
PRIOR_UNSURE = np.zeros_like(PRIOR)
PRIOR_UNSURE[:, :, 0] = [[3], [2], [1]]
EMPTY = int(AnswerKind.EMPTY)


@pytest.mark.parametrize(
    ("then", "now", "prior_then", "prior_now"),
    [(0, CUT, 0, 0), (CUT, 0, 0, 0), (CUT, EMPTY, 0, 0), (CUT, CUT, 0, 1), (CUT, CUT, 1, 0)],
    ids=["named", "not named", "another kind", "a prior added", "a prior removed"],
)
@pytest.mark.parametrize("models", [(0, 1, 2), (1, 2)], ids=["same numbers", "other numbers"])
def test_what_is_unsure_follows_the_settings_of_today(
    models: tuple[int, ...], then: int, now: int, prior_then: int, prior_now: int
) -> None:
    """Model 1 has a cut answer to each question, and half of them are empty, too."""
    base = one_look_with_cuts(99.0, questions=12, stops_on_alarm=False)

    def stage(numbers: tuple[int, ...], kinds: int, has_prior: int) -> Plan:
        known, cut = (PRIOR[[*numbers]], PRIOR_UNSURE[[*numbers]]) if has_prior else (None, None)
        bench = Bench(len(numbers), 12, BINARY, prior_counts=known, prior_unsure=cut)
        return replace(base, unsure=UnsureGrades(kinds, 1), bench=bench)

    def grade(ask: Ask) -> tuple[int, int]:
        return 0, (CUT + EMPTY * (ask.question % 2)) * (ask.model == 1 and ask.trial == 0)

    before = told(stage((0, 1, 2), then, prior_then), grade)
    tally = Controller(after(before, stage(models, now, prior_now), models)).taker.tally
    of_run = [{0: 0, CUT: 12, EMPTY: 6}[now] * (old_number == 1) for old_number in models]
    assert tally.unsure_answers.tolist() == of_run
    of_prior = (PRIOR_UNSURE[[*models]].sum(axis=(1, 2)) * prior_now).tolist()
    assert tally.unsure.sum(axis=(1, 2)).tolist() == [a + b for a, b in zip(of_run, of_prior, strict=True)]
    assert tally.unsure.min() == 0
    if (bounds := tally.bounds()) is not None:
        assert bool((bounds.lowest.score <= bounds.highest.score).all())


def test_a_result_counts_cut_answers_of_this_run_and_of_recorded_models_and_none_of_r0() -> None:
    bench = Bench(3, 12, BINARY, prior_counts=PRIOR, prior_unsure=PRIOR_UNSURE, recorded=frozenset({2}))
    plan = replace(one_look_with_cuts(0.8, stops_on_alarm=False), bench=bench)
    result = result_of(told(plan, lambda ask: (0, CUT * (ask.model == 1 and ask.trial == 0))))
    assert {row.model: row.unsure for row in result.models} == {0: 0, 1: 12, 2: 12}
