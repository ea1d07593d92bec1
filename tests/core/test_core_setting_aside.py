"""Models set aside because their trials fail, or never answer: the run continues without waiting for them."""

import numpy as np
import pytest
from core_runs import (
    RULES,
    Answers,
    Shell,
    drained,
    exact,
    never_called,
    objectives,
    plans,
    restore,
    result_of,
    seeds,
    verdicts_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Bench, Budget, Controller, Pace, Plan, Trials, Weighted
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.objectives import Baseline, Best, Objective, Ranking
from adaptive_eval.core.types import Ask, Cause, Lost, Outcome, Reason, SetAside, Verdict


@settings(max_examples=examples(80), deadline=None)
@given(plans(), seeds, st.data())
def test_models_set_aside_at_any_moment_never_stall_the_run(plan: Plan, seed: int, data: st.DataObject) -> None:
    models = data.draw(st.lists(st.integers(0, plan.bench.models - 1), min_size=1))
    moments = data.draw(st.lists(st.integers(0, 40), min_size=len(models), max_size=len(models)))
    shell = Shell(plan, Answers(plan, seed), np.random.default_rng(seed))
    controller = shell.controller
    for step in range(max(moments) + 1):
        controller.tell(SetAside(model, "gone") for model, when in zip(models, moments, strict=True) if when == step)
        shell.flying = [ask for ask in shell.flying if ask.model not in controller.set_aside]
        assert controller.in_flight == len(shell.flying)
        if controller.finished is not None:
            break
        shell.step()
    shell.run()
    assert controller.ask(10) == []
    for look in controller.looks:
        assert all(pair.verdict in Verdict for pair in look.comparisons)
    controller.result()


@settings(max_examples=examples(40), deadline=None)
@given(plans(capped=False), seeds, st.integers(0, 4), st.data())
def test_setting_aside_at_one_look_has_one_effect(plan: Plan, seed: int, after: int, data: st.DataObject) -> None:
    """Later decisions depend on when the model was set aside, not on which of its outcomes had arrived by then."""
    dropped = data.draw(st.integers(0, plan.bench.models - 1))
    answers = Answers(plan, seed)
    endings = []
    for order in range(2):
        shell = Shell(plan, answers, np.random.default_rng((seed, order)))
        while shell.controller.finished is None and len(shell.controller.looks) < after:
            shell.step()
        looks_before = len(shell.controller.looks)
        shell.controller.tell([SetAside(dropped, "gone")])
        shell.flying = [ask for ask in shell.flying if ask.model != dropped]
        endings.append((looks_before, exact(shell.run().looks)))
    if endings[0][0] == endings[1][0]:
        assert endings[0] == endings[1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_everyone_set_aside_before_the_first_round(rule: object, data: st.DataObject) -> None:
    objective = data.draw(objectives(3))
    plan = Plan(Bench(3, 2, np.array([0.0, 1.0])), objective=objective, rule=rule)  # type: ignore[arg-type]
    controller = Controller(plan)
    looks = controller.tell([SetAside(model, "gone") for model in range(3)])
    assert len(looks) == 1
    assert controller.finished is Reason.BLOCKED
    assert {pair.verdict for pair in looks[0].comparisons} == {Verdict.BLOCKED}
    assert np.isnan(looks[0].scores).all()
    assert looks[0].tiers == (1, 1, 1)
    assert result_of(controller).trials == 0


def test_rounds_that_ran_ahead_of_models_set_aside_are_no_looks() -> None:
    controller = Controller(Plan(Bench(2, 2, np.array([0.0, 1.0])), pace=Pace(lookahead=8)))
    assert len(controller.tell([SetAside(0, "gone")])) == 0
    assert len(controller.tell([SetAside(1, "gone")])) == 1
    assert controller.finished is Reason.BLOCKED and controller.result() is not None


def never(objective: Objective, models: int, pace: Pace | None = None) -> Plan:
    bench = Bench(models, 3, np.array([0.0, 1.0]))
    return never_called(bench, objective=objective, policy=Weighted(), trials=Trials(min=2, max=6), pace=pace or Pace())


def told_once(plan: Plan) -> tuple[Controller, Answers]:
    """A controller after its first look, at which models with higher numbers are better."""
    answers = Answers(plan, 0, skill=lambda model, question: float(question < model))
    controller = Controller(plan)
    assert len(controller.tell(answers.of(controller.ask(1000)))) == 1
    return controller, answers


OUT_OF_REACH, BLOCKED = Verdict.OUT_OF_REACH, Verdict.BLOCKED


@pytest.mark.parametrize(
    ("objective", "gone", "verdicts", "trials"),
    [
        (Ranking(), 1, {(3, 2): OUT_OF_REACH, (2, 0): OUT_OF_REACH, (2, 1): BLOCKED, (1, 0): BLOCKED}, [18, 6, 18, 18]),
        (Best(), 3, {(2, 1): OUT_OF_REACH, (2, 0): OUT_OF_REACH, (3, 2): BLOCKED}, [18, 18, 18, 6]),
        (Baseline(0), 0, {(3, 0): BLOCKED, (2, 0): BLOCKED, (1, 0): BLOCKED}, [6, 9, 9, 9]),
    ],
    ids=["a neighbour", "the leader", "the baseline"],
)
def test_the_others_are_compared_without_a_model_set_aside(
    objective: Objective, gone: int, verdicts: dict[tuple[int, int], Verdict], trials: list[int]
) -> None:
    controller, answers = told_once(never(objective, 4))
    assert controller.looks[0].order == (3, 2, 1, 0)
    drained(controller, answers, [SetAside(gone, "gone")])
    assert verdicts_of(controller) == verdicts and controller.trials.tolist() == trials
    assert controller.finished is (Reason.BLOCKED if gone == 0 else Reason.OUT_OF_REACH)
    assert controller.looks[-1].order == (3, 2, 1, 0)


def test_a_ranking_is_not_decided_while_the_place_of_a_model_set_aside_is_open() -> None:
    plan = Plan(Bench(models=3, questions=40, weights=np.array([0.0, 1.0])), trials=Trials(min=6, max=18))
    answers = Answers(plan, 0, skill=lambda model, question: 0.5 * (model > 0))  # 1 and 2 are equal, and 0 is worse
    controller = Controller(plan)
    controller.tell(answers.of(controller.ask(1000)))
    drained(controller, answers, [SetAside(2, "gone")])
    verdicts = {frozenset(pair): verdict for pair, verdict in verdicts_of(controller).items()}
    assert verdicts[frozenset({1, 2})] is Verdict.BLOCKED and verdicts[frozenset({0, 1})] is Verdict.RESOLVED
    assert controller.finished is Reason.BLOCKED


def test_late_answers_of_a_model_set_aside_change_nothing() -> None:
    plan = never(Ranking(), 3, Pace(lookahead=1))
    answers = Answers(plan, 1)
    with_them, without = Controller(plan), Controller(plan)
    late = [ask for ask in with_them.ask(1000) if ask.model == 1]
    in_time = [ask for ask in without.ask(1000) if ask.model != 1]
    with_them.tell([SetAside(1, "gone"), *answers.of(late)])
    without.tell([SetAside(1, "gone")])
    for controller in (with_them, without):
        controller.tell(answers.of(in_time))
        drained(controller, answers)
    with_them.tell(answers.of(late))
    assert exact(with_them.looks) == exact(without.looks)
    assert with_them.counts[1].sum() == 0


def test_a_model_set_aside_earlier_is_in_play_again_after_a_restart() -> None:
    """Only the shell knows that the model failed: told so again, the core drops its outcomes."""
    plan = never(Ranking(), 3)
    answers = Answers(plan, 1)
    first = Controller(plan)
    outcomes = answers.of(ask for ask in first.ask(1000) if (ask.model, ask.question) != (1, 2))
    first.tell([*outcomes, SetAside(1, "gone")])
    resumed = Controller(plan)
    assert restore(resumed, outcomes) == []
    assert {(ask.model, ask.question) for ask in resumed.ask(1000)} == {(1, 2)}
    assert exact(resumed.tell([SetAside(1, "gone")])) == exact(first.looks)
    told_before = Controller(plan)
    told_before.tell([SetAside(1, "gone")])
    assert exact(restore(told_before, outcomes)) == exact(first.looks)


def test_a_model_is_set_aside_once_and_by_its_number() -> None:
    controller, answers = told_once(never(Ranking(), 3))
    controller.tell([SetAside(1, "first"), SetAside(1, "second")])
    assert controller.set_aside == {1: Lost(Cause.SERVER, "first")}
    for unknown in (-1, 3):
        with pytest.raises(ValueError, match=rf"by its number, 0 to 2, but got SetAside\(model={unknown}"):
            controller.tell([SetAside(unknown, "gone")])
    drained(controller, answers)


def test_trials_asked_of_a_model_set_aside_stay_paid_for() -> None:
    """Requested trials may have been run: a cap on trials counts them, whether or not they arrived."""
    bench = Bench(3, 10, np.array([0.0, 1.0]))
    plan = never_called(bench, policy=Weighted(), trials=Trials(min=1, max=50), budget=Budget(trials=104))
    controller, answers = Controller(plan), Answers(plan, 2)
    requested = controller.ask(25)
    assert [ask.model for ask in requested].count(2) == 5
    drained(controller, answers, [*answers.of(requested[:23]), SetAside(2, "gone")])
    assert controller.finished is Reason.BUDGET
    assert controller.trials.tolist() == [40, 40, 0]  # 80 and 5 asked of model 2: 20 more would be 105


QUESTIONS = 6


def two_models(lookahead: int = 0) -> Controller:
    bench = Bench(2, QUESTIONS, np.array([0.0, 1.0]))
    return Controller(Plan(bench, trials=Trials(min=2, max=12), pace=Pace(lookahead=lookahead)))


def outcome_of(ask: Ask, timed_out: bool) -> Outcome:
    right = not timed_out and (ask.model == 0 or ask.trial % 2 == 0)
    return Outcome(*ask[:3], int(right), kinds=AnswerKind.TIMED_OUT * timed_out)


@pytest.mark.parametrize(("late", "aside"), [(0, False), (1, False), (6, False), (7, True), (12, True)])
def test_half_of_a_round_must_be_real_answers(late: int, aside: bool) -> None:
    run = two_models()
    requested = run.ask(100)
    mine = [ask for ask in requested if ask.model == 1]
    run.tell(outcome_of(ask, ask in mine[:late]) for ask in requested)
    assert (1 in run.set_aside) == aside
    assert run.counts[1].sum() == (0 if aside else len(mine))
    if aside:
        assert run.finished is Reason.BLOCKED and run.set_aside[1].cause is Cause.SERVER
        assert f"{late} of the 12 requests" in run.set_aside[1].reason
        assert not run.arrived[1].any() and run.counts[0].any()
        assert np.isnan(run.looks[0].scores[1]) and run.looks[0].count(Verdict.BLOCKED) == 1


def test_answers_of_earlier_rounds_do_not_vouch_for_a_server_that_hangs() -> None:
    run = two_models()
    run.tell(outcome_of(ask, False) for ask in run.ask(100))
    scores = run.looks[-1].scores
    run.tell(outcome_of(ask, ask.model == 1) for ask in run.ask(100))
    assert 1 in run.set_aside
    assert run.looks[-1].scores[1] == scores[1], "what was answered stands"
