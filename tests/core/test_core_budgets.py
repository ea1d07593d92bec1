"""Hard caps: whatever trials cost, up to their worst, the trials asked for never exceed a cap."""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from core_runs import Answers, Shell, after, exact, never_called, plans, play, restore, seeds, straight, verdicts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Controller, Judging, Pairs, Plan, StageBefore, UnresolvedPairs, ZScore
from adaptive_eval.core.conclusions import UNPAID
from adaptive_eval.core.controller import Judged
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.types import NO_COST, Ask, Cause, Cost, Lost, Outcome, Reason, SetAside, Verdict

CURRENCIES = ("trials", "tokens", "usd", "gpu_seconds")


def exposure(shell: Shell, lost: list[int]) -> list[float]:
    """The largest possible spending so far: told trials at their cost, asked and lost trials at their worst cost."""
    worst = shell.controller.plan.bench.worst_cost
    costs = [outcome.cost for outcome in shell.outcomes]
    costs += [worst[model] for model in [ask.model for ask in shell.flying] + lost]
    return [len(costs), *(math.fsum(column) for column in zip(*costs, strict=True))] if costs else [0.0] * 4


@settings(max_examples=examples(80), deadline=None)
@given(plans(), seeds, st.booleans())
def test_caps_are_never_exceeded(plan: Plan, seed: int, one_is_lost: bool) -> None:
    shell = Shell(plan, Answers(plan, seed), np.random.default_rng(seed))
    lost: list[int] = []
    caps = [getattr(plan.budget, name) for name in CURRENCIES]
    for step in range(10_000):
        if shell.controller.finished is not None:
            break
        if one_is_lost and step == 9:
            shell.controller.tell([SetAside(0, "gone")])
            lost = [0 for ask in shell.flying if ask.model == 0]
            shell.flying = [ask for ask in shell.flying if ask.model != 0]
        shell.step()
        for owed, cap in zip(exposure(shell, lost), caps, strict=True):
            assert cap is None or owed <= cap * (1.0 + 1e-12)
    assert shell.controller.finished is not None
    if shell.controller.looks and not one_is_lost:
        assert sum(shell.controller.looks[-1].trials) == len(shell.outcomes)  # the last look is on everything


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(plans(), seeds, st.data())
def test_trials_bought_under_other_settings_count_towards_caps(plan: Plan, seed: int, data: st.DataObject) -> None:
    """Some models have more stored trials than joining or returning ones: caps hold, or nothing is asked."""
    answers, models, questions = Answers(plan, seed), plan.bench.models, plan.bench.questions
    bought = data.draw(st.lists(st.integers(0, plan.trials.max), min_size=models, max_size=models))
    earlier = [Ask(m, q, trial, 0) for m in range(models) for q in range(questions) for trial in range(bought[m])]
    shell = Shell(plan, answers, np.random.default_rng(seed))
    elsewhere = Cost(*(data.draw(st.sampled_from([0, 0, 1, 40])) for _ in range(3)))
    shell.controller.spend_outside_plan(elsewhere.tokens, elsewhere)
    shell.outcomes = answers.of(earlier)
    restore(shell.controller, shell.outcomes)
    spent = [owed + more for owed, more in zip(exposure(shell, []), (elsewhere.tokens, *elsewhere), strict=True)]
    caps = [getattr(plan.budget, name) for name in CURRENCIES]
    for _ in range(10_000):
        if shell.controller.finished is not None:
            break
        shell.flying = [ask for ask in shell.flying if ask.model not in shell.controller.set_aside]
        shell.step()
        sums = zip(exposure(shell, []), spent, (elsewhere.tokens, *elsewhere), caps, strict=True)
        for owed, before, more, cap in sums:
            assert cap is None or owed + more <= max(cap, before) * (1.0 + 1e-12)
    assert shell.controller.finished is not None
    beyond = any(cap is not None and owed > cap for owed, cap in zip(spent, caps, strict=True))
    assert not beyond or len(shell.outcomes) == len(earlier)  # then nothing is asked


@settings(max_examples=examples(80), deadline=None)
@given(plans(), seeds)
def test_run_goes_on_once_caps_cover_the_next_round(plan: Plan, seed: int) -> None:
    controller = straight(plan, Answers(plan, seed))
    assert bool(controller.short_caps) is (controller.finished is Reason.BUDGET)
    if controller.finished is Reason.BUDGET:
        caps = {key: getattr(plan.budget, key) for key in controller.short_caps}
        assert all(caps[key] < total for key, total in controller.short_caps.items())
        larger = {key: math.ceil(total) for key, total in controller.short_caps.items()}
        raised = replace(plan, budget=replace(plan.budget, **larger))
        going_on = Controller(after(controller, raised)) if controller.looks else Controller(raised)
        restore(going_on, [])
        assert going_on.ask(1) or going_on.finished is not Reason.BUDGET


def test_a_joining_model_is_left_out_if_the_budget_is_already_spent() -> None:
    """The others still get their looks, and with a larger budget the model takes part."""
    bench = Bench(3, 5, np.array([0.0, 1.0]))
    plan = never_called(bench, trials=Trials(min=2, max=8), budget=Budget(trials=85))
    outcomes = [Outcome(m, q, trial, m) for m in (0, 1) for q in range(5) for trial in range(8)]
    controller = Controller(plan)
    assert len(restore(controller, outcomes)) == 7
    assert controller.set_aside == {2: Lost(Cause.BUDGET, UNPAID)}
    assert controller.finished is Reason.BUDGET and controller.looks[-1].trials == (40, 40, 0)
    assert controller.short_caps == {"trials": 90.0}
    assert {pair.verdict for pair in controller.looks[-1].comparisons} == {Verdict.OUT_OF_REACH, Verdict.BLOCKED}
    raised = Controller(replace(plan, budget=Budget(trials=90)))
    assert restore(raised, outcomes) == [] and len(raised.ask(99)) == 10


def test_spending_on_removed_models_still_counts() -> None:
    controller = Controller(never(Budget(trials=40)))
    controller.spend_outside_plan(15, Cost(tokens=1500))
    restore(controller, [])
    assert len(controller.ask(99)) == 20
    controller.tell([Outcome(m, q, trial, 0) for m in (0, 1) for q in range(5) for trial in range(2)])
    assert controller.finished is Reason.BUDGET and controller.trials.sum() == 20
    none = Controller(never(Budget(trials=40)), outside_plan=(21, NO_COST))
    assert none.finished is Reason.BUDGET and none.ask(99) == []


BENCH = Bench(2, 5, np.array([0.0, 1.0]), (Cost(100, 0.3, 2.0), Cost(100, 0.1, 8.0)))


def never(budget: Budget, pace: Pace | None = None) -> Plan:
    """Nothing is ever called or given up."""
    return never_called(BENCH, trials=Trials(min=2, max=50), pace=pace or Pace(), budget=budget)


@pytest.mark.parametrize(
    ("budget", "trials"),
    [
        (Budget(trials=20), 20),
        (Budget(trials=29), 20),
        (Budget(trials=30), 30),
        (Budget(tokens=5_999), 50),
        (Budget(gpu_seconds=200.0), 35),
    ],
)
def test_it_ends_when_the_next_round_no_longer_fits(budget: Budget, trials: int) -> None:
    """Rounds of 10 trials and 1000 tokens at worst, which is what they cost here, after a first one of 20.

    Where GPU seconds count, model 1 costs four times as much and gets half: 100 seconds first, and 60 a round.
    """
    controller = Controller(never(budget))
    while controller.finished is None:
        requested = controller.ask(3)
        controller.tell([Outcome(*ask[:3], 0, BENCH.worst_cost[ask.model]) for ask in requested])
    assert controller.finished is Reason.BUDGET
    assert controller.trials.sum() == trials
    assert controller.ask(9) == []
    assert sum(controller.looks[-1].trials) == trials
    assert controller.looks[-1].count(Verdict.OPEN) == 1


@pytest.mark.parametrize("budget", [Budget(trials=19), Budget(usd=0.39), Budget(tokens=199), Budget(gpu_seconds=9.0)])
@pytest.mark.parametrize("lookahead", [0, 3])
def test_a_budget_too_small_for_the_first_round_ends_before_it(budget: Budget, lookahead: int) -> None:
    controller = Controller(never(budget, Pace(lookahead=lookahead)))
    assert controller.finished is Reason.BUDGET
    assert controller.ask(100) == []
    assert controller.looks == []
    assert controller.result() is None


def asked_in_parts(plan: Plan, seed: int, price: float, later: float | None = None) -> Controller:
    """Ask in random slots and tell in random order; each trial costs this share of its worst cost, or `later` from the
    fifth of a question on."""
    rng, controller, flying = np.random.default_rng(seed), Controller(plan), list[Ask]()
    while controller.finished is None:
        flying += controller.ask(int(rng.integers(1, 9)), int(rng.integers(2)) if rng.random() < 0.5 else None)
        rng.shuffle(flying)  # type: ignore[arg-type]
        answered = [flying.pop() for _ in range(int(rng.integers(len(flying) + 1)))]
        shares = [price if later is None or ask.trial < 4 else later for ask in answered]
        at = zip(shares, (plan.bench.worst_cost[ask.model] for ask in answered), strict=True)
        costs = [Cost(round(share * worst.tokens), share * worst.usd, share * worst.gpu_seconds) for share, worst in at]
        controller.tell([Outcome(*ask[:3], 0, cost) for ask, cost in zip(answered, costs, strict=True)])
    return controller


@pytest.mark.parametrize(
    ("budget", "pace"),
    [
        (Budget(usd=1.2), Pace()),
        (Budget(tokens=610), Pace(lookahead=3)),
        (Budget(gpu_seconds=30.0), Pace(lookahead=1, dedicated_servers=True)),
        (Budget(usd=1.2), Pace(share=0.5)),
    ],
)
def test_a_first_round_whose_worst_cost_exceeds_the_caps_is_asked_in_parts(budget: Budget, pace: Pace) -> None:
    """Its trials cost a tenth of the worst, so that caps pay for all of it; the look is that of a run without caps."""
    controllers = [asked_in_parts(never(budget, pace), seed, 0.1) for seed in range(5)]
    first = asked_in_parts(replace(never(Budget(), pace), trials=Trials(min=2, max=2)), 0, 0.1).looks[0]
    for controller in controllers:
        assert controller.finished is Reason.BUDGET and controller.looks[0].trials == first.trials
        assert exact(controller.looks) == exact(controllers[0].looks)
        assert np.array_equal(controller.arrived, controllers[0].arrived)


def test_a_round_over_budget_ends_after_the_same_trials_in_any_order() -> None:
    controllers = [asked_in_parts(never(Budget(usd=2.0)), seed, 0.8) for seed in range(9)]
    for controller in controllers:
        assert controller.finished is Reason.BUDGET and not controller.looks
        assert np.array_equal(controller.arrived, controllers[0].arrived)
    assert controllers[0].arrived.sum() == 2 * 6  # of ten each: 6 x 0.32 is spent, and 0.4 is not there
    plan = never_called(MANY, trials=Trials(min=2, max=50), budget=Budget(tokens=8_000))
    controllers = [asked_in_parts(plan, seed, 0.1, later=0.9) for seed in range(9)]
    for controller in controllers:
        assert controller.finished is Reason.BUDGET and controller.trials.sum() == 400, "four of each question"
        assert np.array_equal(controller.arrived, controllers[0].arrived)
        spent = 400 * 10 + (controller.arrived.sum() - 400) * 90
        assert 8_000 - 2 * 100 < spent <= 8_000
        assert controller.short_caps["tokens"] > 8_000


MANY = replace(BENCH, questions=50)


@pytest.mark.parametrize(
    "pace",
    [
        Pace(),
        pytest.param(Pace(lookahead=1), marks=pytest.mark.slow),
        pytest.param(Pace(lookahead=1, dedicated_servers=True), marks=pytest.mark.slow),
    ],
)
def test_a_later_round_that_probably_fits_is_asked_in_parts(pace: Pace) -> None:
    """A round of 100 trials costs 10,000 tokens at worst and 1,000 in fact, of which the limit pays for eight."""
    plan = never_called(MANY, trials=Trials(min=2, max=50), pace=pace, budget=Budget(tokens=9_000))
    controllers = [asked_in_parts(plan, seed, 0.1) for seed in range(5)]
    for controller in controllers:
        assert controller.finished is Reason.BUDGET
        assert controller.trials.sum() == controller.arrived.sum() == 800, "nothing is asked that no look counts"
        assert exact(controller.looks) == exact(controllers[0].looks)
    # one round more, its mean cost known to a tenth, and a trial of each model at its worst
    assert controllers[0].short_caps == {"tokens": pytest.approx(8_000 + 1_000 * (1 + 2.5 / 10) + 2 * 100)}


@pytest.mark.parametrize("pace", [Pace(), Pace(lookahead=1), Pace(lookahead=1, dedicated_servers=True)])
@pytest.mark.parametrize("seed", range(3))
def test_a_later_round_that_ended_over_budget_is_finished_once_the_limit_is_raised(pace: Pace, seed: int) -> None:
    """What was bought counts, nothing is asked twice or left out, and the new limit holds."""
    plan = never_called(MANY, trials=Trials(min=2, max=8), pace=pace, budget=Budget(tokens=8_000))
    before = asked_in_parts(plan, seed, 0.1, later=0.9)
    bought = int(before.arrived.sum())
    assert before.finished is Reason.BUDGET and before.trials.sum() == 400 < bought
    raised = replace(plan, budget=Budget(tokens=30_000), before=StageBefore(before, (0, 1)))
    controller, told = Controller(raised), 0
    while controller.finished is None:
        asks = controller.ask(7)
        controller.tell([Outcome(*ask[:3], 0, Cost(10 if ask.trial < 4 else 90)) for ask in asks])
        told += len(asks)
    assert controller.arrived.sum() == bought + told
    assert 30_000 - 100 * 100 < 400 * 10 + (bought + told - 400) * 90 <= 30_000
    assert controller.trials.sum() in (600, 700) and np.ptp(controller.counts.sum(axis=2)) == 0


@pytest.mark.parametrize(
    ("cap", "lost", "cost"), [(1_000, 100, 1), (2_000, 30, 50)], ids=["a part", "just the first round"]
)
def test_lost_first_answers_do_not_end_a_run_that_can_continue(cap: int, lost: int, cost: int) -> None:
    controller = Controller(never(Budget(tokens=cap)))
    asked = controller.ask(99)
    assert len(asked) == 10 if cap == 2_000 else 0 < len(asked) < 10, "2,000 are twice as much as ten may cost"
    controller.lose(Cost(tokens=lost * len(asked)))
    while asked and not controller.looks:
        assert controller.finished is None
        controller.tell([Outcome(*ask[:3], 0, Cost(tokens=cost)) for ask in asked])
        asked = controller.ask(99)
    assert controller.looks[0].trials == (10, 10)


def test_losses_may_leave_exactly_what_the_round_in_flight_needs() -> None:
    controller = Controller(never(Budget(tokens=4_000), Pace(lookahead=0)))
    assert len(controller.ask(99)) == 20  # at most 100 tokens each
    controller.lose(Cost(tokens=2_000))
    assert controller.finished is None and controller.in_flight == 20
    controller.lose(Cost(tokens=1))
    assert controller.finished is Reason.BUDGET


def test_rounds_ahead_are_reserved_at_their_worst() -> None:
    controller = Controller(never(Budget(trials=44), Pace(lookahead=3)))
    assert len(controller.ask(1000)) == 40  # 20, and two rounds of 10 ahead; a third would need 50


def test_a_tight_budget_serves_the_comparison_closest_to_a_call() -> None:
    """Models 2 and 3 are nearly separated, 0 and 1 hardly differ: the last affordable trials go to 2 and 3."""
    choices = {"objective": Pairs(((0, 1), (2, 3))), "rule": ZScore(6.0), "policy": UnresolvedPairs()}
    bench, budget = Bench(4, 10, np.array([0.0, 1.0])), Budget(trials=185)
    plan = never_called(bench, trials=Trials(min=4, max=90), budget=budget, **choices)
    skills = (0.50, 0.50, 0.45, 0.60)
    controller = straight(plan, Answers(plan, 1, skill=lambda model, question: skills[model]))
    assert controller.trials.tolist() == [40, 40, 50, 50]
    assert controller.finished is Reason.BUDGET


@settings(max_examples=examples(60), deadline=None)
@given(plans(), seeds, st.integers(0, 60), st.booleans())
def test_wall_time_ends_a_run_at_any_moment(plan: Plan, seed: int, steps: int, before: bool) -> None:
    capped, answers = replace(plan, budget=replace(plan.budget, wall_seconds=60.0)), Answers(plan, seed)
    expected, shell = straight(plan, answers), Shell(capped, answers, np.random.default_rng(seed))
    controller = shell.controller
    for _ in range(steps):
        controller.tick(59.9)
        if controller.finished is None:
            shell.step()
    looks, counts, ended = exact(controller.looks), controller.counts.copy(), controller.finished
    assert controller.tick(60.0), "also when it was finished before"
    has_decided = bool(looks) and {*verdicts_of(controller).values()} <= {Verdict.RESOLVED, Verdict.TIED}
    assert controller.finished is (ended or (Reason.SETTLED if has_decided else Reason.WALL_TIME))
    assert controller.ask(100) == []
    assert controller.in_flight == 0
    assert controller.tell(answers.of(shell.flying)) == []  # late answers are none of its business
    assert looks == exact(controller.looks) == exact(expected.looks[: len(looks)])
    assert np.array_equal(counts, controller.counts)
    assert (controller.result() is None) == (not looks)
    if before and ended is None:
        again = Controller(capped)
        again.tick(61.0)
        assert restore(again, shell.outcomes) == []
        assert again.finished is Reason.WALL_TIME


def test_trials_in_flight_of_a_model_that_is_gone_are_not_to_be_paid_for() -> None:
    judging = Judging(futility=None)
    plan = Plan(Bench(4, 30, np.array([0.0, 1.0])), rule=ZScore(99.0), judging=judging, budget=Budget(trials=3000))
    controller = Controller(replace(plan, pace=Pace(lookahead=3)), settles_losses=False)
    for event in (None, SetAside(0, "gone")):
        controller.tell([] if event is None else [event])
        controller.tell(Outcome(*ask[:3], category=ask.model % 2) for ask in controller.ask(500))
        result = controller.result()
        assert result is not None and 0.0 < result.trials_to_go <= 3000 - result.trials


@pytest.mark.parametrize("is_copy", [False, True], ids=["samples", "copies"])
def test_a_run_that_waits_only_for_what_was_asked_ahead_is_settled_once_its_time_is_over(is_copy: bool) -> None:
    """Model 1 is right at each trial and model 0 at none; answers that turn out to be copies decide nothing."""
    plan = Plan(Bench(2, 5, np.array([0.0, 1.0])), budget=Budget(wall_seconds=60.0), pace=Pace(lookahead=3))
    searches: list[bool] = []

    def find_void(_judged: Judged, in_play: Collection[int], is_last: bool) -> dict[int, str]:
        searches.append(is_last)
        return {1: "copies"} if is_copy and is_last else {}

    controller = Controller(plan, find_void=find_void)
    while not controller.looks or controller.looks[-1].count(Verdict.OPEN):
        controller.tell(Outcome(ask.model, ask.question, ask.trial, ask.model) for ask in controller.ask(5))
    assert controller.finished is None and controller.in_flight == 0 and controller.ask(1)
    looks = [*controller.looks]
    controller.tick(60.0)
    assert controller.finished is (Reason.WALL_TIME if is_copy else Reason.SETTLED)
    assert searches[-1] and list(controller.set_aside) == [1] * is_copy
    assert controller.looks == looks, "a start that goes on takes the same ones"


def test_a_round_is_reserved_at_the_mean_once_trials_cost_more_than_their_worst() -> None:
    """A round of ten trials costs 1,000 tokens at worst and 3,000 in fact, as a gateway adds to prompts."""
    controller = play(Controller(never(Budget(tokens=20_000))), lambda ask: 0, cost=lambda ask: Cost(tokens=300))
    assert controller.finished is Reason.BUDGET and controller.trials.sum() == controller.arrived.sum() == 60
    assert controller.short_caps["tokens"] > 20_000
    started = Controller(never(Budget(tokens=3_000)))
    started.tell([Outcome(*ask[:3], 0, Cost(tokens=500)) for ask in started.ask(5)])
    started.end_over_budget()  # whoever sends requests sees that no other fits
    assert started.short_caps == {"tokens": 5 * 500 + 5 * 500 + 10 * 100}
