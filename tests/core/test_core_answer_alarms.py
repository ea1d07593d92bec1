"""A server that changes during a run raises an alarm, and its later answers no longer count."""

import tracemalloc
from dataclasses import replace
from math import comb, exp, inf

import numpy as np
import pytest
from core_runs import BINARY, play, standing_of, verdicts_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples, in_turns

from adaptive_eval.core import Bench, Controller, Judging, Pace, Pairs, Plan, Trials, ZScore
from adaptive_eval.core.answer_alarms import AnswerAlarm, AnswerHistory, log_chances, tried_moments
from adaptive_eval.core.answer_kinds import AnswerKind, UnsureGrades
from adaptive_eval.core.in_flight import BatchesInFlight
from adaptive_eval.core.rounds import TrialSlots
from adaptive_eval.core.same_questions import pairs_by_question
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import Ask, Cause, Outcome, Reason, Verdict
from scorio.moments import IntArray

QUESTIONS = 20


def plan_for(models: int = 2, **changes: object) -> Plan:
    """A run that goes on to its horizon if nothing ends it."""
    bench, rule, judging = Bench(models, QUESTIONS, BINARY), ZScore(99.0), Judging(futility=None)
    plan = Plan(bench, rule=rule, judging=judging, trials=Trials(min=8, max=40), pace=Pace(lookahead=0))
    return replace(plan, **changes)  # type: ignore[arg-type]


def fair(ask: Ask) -> int:
    """Grade half of the trials as right, the same for all models."""
    return (ask.question + ask.trial) % 2


# -- the test -------------------------------------------------------------------------------------------------------


def exact_chance(trials: IntArray, hits: IntArray, moment: int) -> float:
    """The chance of at least as many hits after this many passes, summed over all cases."""
    tail = np.ones(1)
    for of, k in zip(trials.T, hits.sum(axis=0).tolist(), strict=True):
        n, late = int(of.sum()), int(of[moment:].sum())
        chances = [comb(late, x) * comb(n - late, k - x) / comb(n, k) for x in range(k + 1)]
        tail = np.convolve(tail, chances)
    return float(tail[int(hits[moment:].sum()) :].sum())


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_exact_chances_stay_within_the_bound(data: st.DataObject) -> None:
    passes, questions = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    trials = rng.integers(0, 5, (passes, questions))
    hits = rng.binomial(trials, rng.random(questions) * (np.arange(passes)[:, None] + 1) / passes)
    moments = np.arange(1, passes)
    for moment, bound in zip(moments.tolist(), log_chances(trials, hits, moments).tolist(), strict=True):
        assert exact_chance(trials, hits, moment) <= exp(bound) * (1.0 + 1e-9)


@given(st.lists(st.integers(0, 14), min_size=1, max_size=6), st.integers(1, 6))
@example([9, 1], 2)
def test_passes_over_the_questions_hold_every_trial_once(numbers: list[int], together: int) -> None:
    extra = np.array(numbers)
    first = np.arange(len(extra)) * 3
    slots = TrialSlots(first, extra, together)
    questions, trials = slots.trials_at(np.arange(slots.size))
    assert slots.size == extra.sum() and questions.tolist() == slots.questions().tolist()
    places = list(zip(questions.tolist(), trials.tolist(), strict=True))
    assert len(set(places)) == len(places)
    assert all(first[q] <= trial < first[q] + extra[q] for q, trial in places)
    assert [slots.slot(*place) for place in places] == slots.slots(questions, trials).tolist() == [*range(slots.size)]
    assert slots.slot(0, int(first[0] + extra[0])) is None
    for q in range(len(extra)):  # requests are whole, and few trials of a question follow each other
        positions = [place for place, (question, _) in enumerate(places) if question == q]
        runs = np.split(np.array(positions), np.flatnonzero(np.diff(positions) > 1) + 1)
        assert all(len(part) % together == 0 for part in runs[:-1])


# -- what raises an alarm --------------------------------------------------------------------------------------------


BOTH = AnswerKind.REASONING_ONLY | AnswerKind.EMPTY


@pytest.mark.parametrize(("kinds", "since"), [*in_turns(AnswerKind, [3, 8, 11]), (BOTH, 3)])
def test_a_kind_that_becomes_more_frequent_ends_the_run(kinds: AnswerKind, since: int) -> None:
    """The most specific one of several is named."""
    kind = AnswerKind.REASONING_ONLY if kinds == BOTH else kinds

    def grade(ask: Ask) -> tuple[int, int]:
        bad = ask.model == 1 and ask.trial >= since and ask.question % 10 < 4  # fewer than a silent round has
        return (0, kinds) if bad else (fair(ask), 0)

    controller = play(Controller(plan_for()), grade)
    assert controller.finished is Reason.ALARM and controller.set_aside[1].cause is Cause.ANSWERS
    (alarm,) = controller.alarms
    assert (alarm.model, alarm.kind) == (1, kind) and alarm.since is not None
    assert max(alarm.since) <= since < min(alarm.since) + 4  # in the pass of the change
    assert controller.looks[-1].count(Verdict.RESOLVED) == 0 and controller.ask(100) == []
    assert controller.counts[1].sum() == sum(alarm.since)  # of all later answers none is in the score


def test_a_pass_in_which_a_change_came_counts_no_more() -> None:
    def grade(ask: Ask) -> tuple[int, int]:
        bad = ask.model == 1 and ask.question % 10 < 4 and (ask.trial, ask.question) >= (8, 13)
        return (0, AnswerKind.EMPTY) if bad else (fair(ask), 0)

    (alarm,) = play(Controller(plan_for()), grade).alarms
    assert alarm.before == 0 and alarm.since == (8,) * QUESTIONS


def test_answers_to_hard_questions_raise_no_alarm() -> None:
    """Answers to half of the questions are always cut off, and later rounds ask mostly these."""
    hard = QUESTIONS // 2

    def grade(ask: Ask) -> tuple[int, int]:
        return (0, AnswerKind.EMPTY) if ask.question < hard else (fair(ask), 0)

    assert play(Controller(plan_for()), grade).alarms == []
    trials = np.array([[4] * QUESTIONS, [1] * hard + [0] * hard, [9] * hard + [0] * hard])
    always = np.arange(QUESTIONS) < hard
    assert np.all(log_chances(trials, trials * always, np.array([1, 2])) == 0.0)


def test_of_two_kinds_of_most_answers_the_most_specific_is_named() -> None:
    controller = Controller(plan_for(says_nothing=int(BOTH)))
    play(controller, lambda ask: (0, BOTH) if ask.model else (fair(ask), 0))
    assert [alarm.kind for alarm in controller.alarms] == [AnswerKind.REASONING_ONLY]


def test_an_alarm_on_drawn_questions_keeps_the_first_of_the_sample() -> None:
    plan = plan_for(bench=Bench(2, 400, BINARY), trials=Trials(min=1, max=1), drawn=100)

    def grade(ask: Ask) -> tuple[int, int]:
        return (0, AnswerKind.EMPTY) if ask.model == 1 and ask.question >= 150 else (ask.question % 2, 0)

    controller = play(Controller(plan), grade)
    assert controller.finished is Reason.ALARM
    (alarm,) = controller.alarms
    assert alarm.since is not None and 100 <= sum(alarm.since) <= 150
    assert controller.counts[1].sum() == sum(alarm.since)
    first, second = np.array([0]), np.array([1])
    fresh = pairs_by_question(controller.counts, BINARY, first, second)
    assert standing_of(controller).evidence.difference[0] == pytest.approx(fresh[0].moments.mean[0])


def test_the_reason_says_since_which_answer() -> None:
    often = AnswerAlarm(1, AnswerKind.TRUNCATED, 30, 40)
    late = AnswerAlarm(1, AnswerKind.EMPTY, 30, 40, 1, 60, (3, 3))
    early = AnswerAlarm(1, AnswerKind.EMPTY, 30, 40, 0, 0, (0, 0))
    assert often.reason == "30 of its 40 answers (75%) were cut off at a limit before they were right"
    assert late.reason == "30 of its last 40 answers are empty, and 1 of the 60 before"
    assert early.reason == "30 of its 40 answers are empty, more of the later ones than of the first"


# -- what no longer counts -------------------------------------------------------------------------------------------


def test_calls_made_before_the_change_are_kept() -> None:
    """Model 0 is called better than model 1 at the first look. Model 1 goes on against model 2, and its server
    changes."""
    plan = plan_for(3, rule=ZScore(4.0), objective=Pairs(((0, 1), (1, 2))))

    def grade(ask: Ask) -> tuple[int, int]:
        bad = ask.model == 1 and ask.trial >= 12
        return (0, AnswerKind.EMPTY) if bad else (int(ask.model == 0 or fair(ask)), 0)

    controller = play(Controller(plan), grade)
    assert controller.finished is Reason.ALARM
    assert verdicts_of(controller, 0)[0, 1] is verdicts_of(controller)[0, 1] is Verdict.RESOLVED
    assert Verdict.BLOCKED in verdicts_of(controller).values()


def test_calls_based_on_answers_after_the_change_are_withdrawn() -> None:
    """Some answers of model 1 are empty in one round, after which it is called worse than model 0. It goes on against
    model 2, which was wrong as often, and all its answers are empty in the next round."""
    plan = plan_for(3, rule=ZScore(0.3), trials=Trials(min=12, max=40), objective=Pairs(((0, 1), (1, 2))))

    def grade(ask: Ask) -> tuple[int, int]:
        wrong = ask.trial == 12 and ask.question in (1, 3, 5, 7, 9)
        if ask.model == 1 and (wrong or ask.trial > 12):
            return 0, AnswerKind.EMPTY
        return 0 if ask.model == 2 and wrong else fair(ask), 0

    controller = play(Controller(plan), grade)
    assert controller.finished is Reason.ALARM
    assert verdicts_of(controller, -2)[0, 1] is Verdict.RESOLVED
    assert set(verdicts_of(controller).values()) == {Verdict.BLOCKED}
    assert controller.counts[1].sum() <= 12 * QUESTIONS


@pytest.mark.parametrize("coupled", [False, True])
def test_after_an_alarm_only_answers_from_before_it_count_as_evidence(coupled: bool) -> None:
    table = np.random.default_rng(1).random((2, QUESTIONS, 40)) < 0.5

    def grade(ask: Ask) -> tuple[int, int]:
        bad = ask.model == 1 and ask.trial >= 10
        return (0, AnswerKind.CONTENT_FILTER) if bad else (int(table[0 if coupled else ask.model][ask[1:3]]), 0)

    controller = play(Controller(plan_for(coupled=coupled)), grade)
    (alarm,) = controller.alarms
    assert alarm.since is not None
    everything = controller.counts[0].sum(axis=1).tolist()
    assert sum(everything) == controller.trials[0] > sum(alarm.since)
    for counts, trials, answers in zip(
        controller.counts, (everything, alarm.since), table[[0, 0 if coupled else 1]], strict=True
    ):
        assert counts.sum(axis=1).tolist() == [*trials]
        assert counts[:, 1].tolist() == [row[:n].sum() for row, n in zip(answers, trials, strict=True)]
    assert controller.last_look is not None
    assert not coupled or controller.last_look.evidence.difference.tolist() == [0.0]


def test_cut_and_ungraded_answers_after_a_change_leave_nothing_behind() -> None:
    cut = int(AnswerKind.TRUNCATED)

    def grade(ask: Ask) -> tuple[int | None, int]:
        if ask.model == 0 or ask.trial < 10:
            return fair(ask), 0
        return None if ask[1:3] == (3, 10) else 0, cut

    controller = play(Controller(plan_for(unsure=UnsureGrades(cut, 1))), grade)
    (alarm,) = controller.alarms
    assert alarm.since == (10,) * QUESTIONS and controller.trials[1] == 10 * QUESTIONS
    assert not controller.ungraded.any() and not controller.taker.tally.unsure.any()


def test_the_answers_of_one_model_do_not_keep_the_arrays_of_all() -> None:
    models, rounds, questions = 40, 20, 500
    bench, extra = Bench(models, questions, BINARY), np.zeros((models, questions), np.int32)
    flight, history = BatchesInFlight(bench, Budget()), AnswerHistory(0, bench, drawn=False)
    extra[0] = 1
    tracemalloc.start()
    for look in range(rounds):
        flight.issue(extra.copy(), in_step=True)
        (batch,) = flight.batches()
        for question in range(questions):
            batch.place(Outcome(0, question, look, category=1))
        history.add(batch, look)
        flight.commit([batch])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept / (rounds * questions) < 30.0  # bytes for each answer


# -- how often it is wrong -------------------------------------------------------------------------------------------


def least_adjusted_chance(shares: NDArray[np.float64], rng: np.random.Generator, sizes: list[int]) -> float:
    """The smallest chance in a run without a change, times the number of moments and batches tried."""
    trials = np.tile(np.array(sizes)[:, None], (1, len(shares)))
    hits, smallest = rng.binomial(trials, shares), inf
    for number, passes in enumerate(range(4, len(sizes) + 1), 1):
        moments = tried_moments(passes)
        bound = log_chances(trials[:passes], hits[:passes], moments).min()
        smallest = min(smallest, float(exp(bound)) * len(moments) * number * (number + 1))
    return smallest


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.1, 1.0, 20.0])
def test_without_a_change_alarms_are_as_rare_as_stated(spread: float) -> None:
    """With limits large enough to be counted; benchmarks/answer_alarms.md has the limit that runs use."""
    rng, runs = np.random.default_rng(5), 150
    smallest_chances = [
        least_adjusted_chance(rng.beta(0.3 * spread, 0.7 * spread, 30), rng, [2] * 4 + [1] * 16) for _ in range(runs)
    ]
    for limit in (0.5, 0.1):
        assert np.mean(np.array(smallest_chances) <= limit) <= limit
