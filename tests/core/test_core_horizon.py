"""A horizon changed after looks: false calls stay within the guarantee, calls stand, and a run asks for more."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import isfinite

import numpy as np
import pytest
from core_runs import BINARY, Answers, Shell, after, exact, play, play_chances, result_of, straight, tell_right
from thoroughness import first_of

from adaptive_eval.core import Controller, Judging, NearBest, Plan, Reason, Rule, Uniform, Verdict
from adaptive_eval.core.objectives import Best, Gate, Threshold
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Margin, Pace, Trials

HORIZONS = (8, 16, 32, 64)
Ungraded = Callable[[np.ndarray, np.random.Generator], np.ndarray]
UNGRADED = 0.02
"""A share of ungraded answers with which models stay in play."""


def raised(plan: Plan, horizons: Sequence[int], answers: Answers) -> list[Controller]:
    """The run at each horizon; each continues where the one before had nothing more to ask."""
    runs: list[Controller] = []
    for max_trials in horizons:
        longer = replace(plan, trials=Trials(min=4, max=max_trials))
        runs.append(straight(after(runs[-1], longer) if runs else longer, answers))
    return runs


def small_plan(models: int = 3, rule: Rule | None = None, **judging: object) -> Plan:
    rule = rule or Sequential(start=0.5)
    return Plan(Bench(models, 6, BINARY), rule=rule, judging=Judging(**judging), trials=Trials(min=4, max=8))  # type: ignore[arg-type]


def alike(model: int, question: int) -> float:
    """Exact ties on questions of every difficulty."""
    return (question + 0.5) / 6.0


@pytest.mark.parametrize(
    ("seed", "delta", "familywise"),
    [
        pytest.param(*case, marks=[] if case in ((0, 0.0, False), (0, 0.1, True)) else [pytest.mark.slow])
        for case in product(range(3), (0.0, 0.1), (False, True))
    ],
)
def test_a_longer_horizon_keeps_earlier_decisions_and_looks(seed: int, delta: float, familywise: bool) -> None:
    plan = small_plan(4, delta=delta, familywise=familywise)
    runs = raised(plan, HORIZONS, Answers(plan, seed))
    for before, longer in zip(runs[:-1], runs[1:], strict=True):
        assert exact(longer.looks[: len(before.looks)]) == exact(before.looks)
        assert before.last_look is not None and longer.last_look is not None
        memory, later = before.last_look.memory, longer.last_look.memory
        assert np.array_equal(later.call[memory.call != 0], memory.call[memory.call != 0])
        assert np.all(later.tie >= memory.tie)
        assert [each.looks for each in longer.extensions[:-1]] == [each.looks for each in before.extensions]
        assert longer.looks[len(before.looks)].trials == before.looks[-1].trials, "looked at again, under the new one"
    assert [(extension.before, extension.now) for extension in runs[-1].extensions] == [(8, 16), (16, 32), (32, 64)]


@pytest.mark.parametrize("seed", first_of(range(4), 1))
def test_arrival_order_and_restarts_change_nothing(seed: int) -> None:
    plan = replace(small_plan(), pace=Pace(2))
    answers = Answers(plan, seed)
    last = raised(plan, (8, 12, 30), answers)[-1]
    shuffled = Shell(last.plan, answers, np.random.default_rng(seed), restarts=0.1).run()
    assert exact(shuffled.looks) == exact(last.looks)


def test_a_horizon_changed_in_the_middle_or_lowered_is_taken_up_at_its_look() -> None:
    plan = small_plan(rule=Sequential(start=0.2), futility=None)
    answers = Answers(plan, 5, alike)
    for max_trials in (9, 40):
        before = straight(replace(plan, trials=Trials(min=4, max=20)), answers, looks=3)
        run = straight(after(before, replace(plan, trials=Trials(min=4, max=max_trials))), answers)
        assert exact(run.looks[:3]) == exact(before.looks)
        assert [extension.looks for extension in run.extensions] == [3]
        assert run.finished is not None
        assert run.trials.max() <= 6 * max(max_trials, 20)


def test_a_spent_error_cannot_be_spent_again() -> None:
    """A single look at a finished design spends all error: no later look calls anything, and nothing more is asked."""
    plan = small_plan(2, rule=Sequential(start=1.0), futility=None)
    plan = replace(plan, trials=Trials(min=8, max=8))
    answers = Answers(plan, 1, alike)
    before = straight(plan, answers)
    assert before.looks[-1].count(Verdict.RESOLVED) == 0
    longer = straight(after(before, replace(plan, trials=Trials(min=8, max=64))), answers)
    assert longer.last_look is not None and np.isinf(longer.taker.rule.boundary(longer.last_look.evidence)).all()
    assert longer.looks[-1].count(Verdict.OUT_OF_REACH) == 1
    assert longer.trials.sum() == before.trials.sum()


def ungraded_at_random(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Which answers are ungraded: any answer, with equal chance."""
    return rng.random(right.shape) < UNGRADED


def ungraded_in_favour(right: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The grader fails only on wrong answers of the first model, too few to set a model aside."""
    share = UNGRADED / np.maximum((~right).mean(axis=-1, keepdims=True), UNGRADED)
    hidden = ~right & (rng.random(right.shape) < share)
    hidden[1] = False
    return np.asarray(hidden)


def false_winners(
    runs: int, futility: float | None, p: np.ndarray, adaptive: bool, ungraded: Ungraded | None = None
) -> float:
    """The share of runs on two copies that end with a winner, when the horizon is raised until there is one.

    `adaptive`: raised at once, and by little, when z looks promising.
    """
    called = 0
    plan = Plan(Bench(2, len(p), BINARY), rule=Sequential(start=0.5), judging=Judging(futility=futility))
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        answers = rng.random((2, len(p), 300)) < p[:, None]
        hidden = np.zeros_like(answers) if ungraded is None else ungraded(answers, rng)
        longer = replace(plan, trials=Trials(min=4, max=HORIZONS[0]))
        while longer.trials.max <= HORIZONS[-1]:
            run = play(Controller(longer), np.where(hidden, -1, answers))
            if run.looks[-1].count(Verdict.RESOLVED):
                called += 1
                break
            max_trials, promising = longer.trials.max, adaptive and abs(run.looks[-1].comparisons[0].z) > 1.3
            longer = after(
                run, replace(plan, trials=Trials(min=4, max=max_trials + 2 if promising else 2 * max_trials))
            )
    return called / runs


def allowed(runs: int) -> float:
    """A tenth, and three standard errors."""
    return 0.1 + 3.0 * math.sqrt(0.09 / runs)


@pytest.mark.release
@pytest.mark.parametrize(
    ("shape", "futility", "adaptive", "ungraded", "runs"),
    [
        *product((0.6, 0.1, 400.0), (0.3, None), (False, True), (None,), (300,)),
        *product((0.6, 400.0), (0.3,), (True,), (ungraded_at_random, ungraded_in_favour), (200,)),
    ],
)
def test_a_raised_horizon_keeps_the_promise_on_exact_ties(
    shape: float, futility: float | None, adaptive: bool, ungraded: Ungraded | None, runs: int
) -> None:
    """8 -> 16 -> 32 -> 64, or in small steps where z looks promising, on questions that are spread, nearly
    deterministic, or alike, and with 2% of the answers without a grade: a winner in at most 10% of runs."""
    p = np.random.default_rng(7).beta(shape, shape, 30)
    assert false_winners(runs, futility, p, adaptive, ungraded) <= allowed(runs)


@pytest.mark.parametrize(
    ("max_trials", "lookahead"),
    [pytest.param(10, 8, marks=pytest.mark.release), pytest.param(8, 4, marks=pytest.mark.slow)],
)
def test_a_horizon_lowered_with_rounds_in_flight_makes_no_winners_of_copies(max_trials: int, lookahead: int) -> None:
    """Trials in flight still arrive, beyond the new horizon or just before it, and count in looks."""
    runs, called, judging = 30, 0, Judging(futility=None)
    plan = Plan(Bench(2, 10, BINARY), rule=Sequential(start=0.1), judging=judging, policy=Uniform())
    plan = replace(plan, pace=Pace(lookahead=lookahead), trials=Trials(min=4, max=40))
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        run = Controller(plan)
        while run.finished is None:
            if len(run.looks) == 7:
                run = Controller(after(run, replace(plan, trials=Trials(min=4, max=max_trials))))
            for batch in run.ask_batches():
                tell_right(run, batch, rng.binomial(batch.slots.extra, 0.5))
                if len(run.looks) == 7:
                    break
        called += run.looks[-1].count(Verdict.RESOLVED)
        assert run.trials.max() <= 10 * max(max_trials, 11 + lookahead), "what was issued before, afterwards too"
    assert called / runs <= allowed(runs)


OF_TWELVE, MAX_TRIALS = 12, 12
PLANS = {
    "plain": {},
    "ties": {"judging": Judging(delta=0.05)},
    "any looks": {"rule": Sequential(start=0.3)},
    "shared error": {"judging": Judging(familywise=True), "rule": Sequential(start=0.3)},
    "near best": {"objective": Best(), "rule": NearBest(0.02, start=0.3)},
    "gate": {"objective": Gate(Margin(2, 0.02))},
    "value": {"objective": Threshold(0.55)},
    "ahead of looks": {"pace": Pace(lookahead=3, dedicated_servers=True)},
    "same seeds": {"coupled": True},
}


def life(plan: Plan, seed: int) -> Controller:
    """The run until it has nothing to ask."""
    rng, models = np.random.default_rng(seed), plan.bench.models
    chances = np.clip(rng.random(OF_TWELVE) + rng.normal(0.0, 0.05, (models, 1)), 0.02, 0.98)
    right = rng.random((1001, models, OF_TWELVE)) < chances
    return play(Controller(plan), np.moveaxis(right, 0, -1))


def plan_of(**settings: object) -> Plan:
    usual = {"bench": Bench(3, OF_TWELVE, np.array([0.0, 1.0])), "trials": Trials(min=4, max=MAX_TRIALS)}
    return Plan(**(usual | settings))  # type: ignore[arg-type]


def with_larger_horizon(run: Controller) -> Plan | None:
    """The plan with the horizon that is advised; None if no plausible one is."""
    plausible = [pair.deciding_max for pair in result_of(run).comparisons if isfinite(pair.deciding_max)]
    larger = max(plausible, default=0.0)
    if larger <= run.plan.trials.max:
        return None
    return after(run, replace(run.plan, trials=replace(run.plan.trials, max=int(larger))))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=pytest.mark.slow if name != "ties" else ())
        for name, settings in PLANS.items()
    ],
)
def test_a_run_asks_for_more_with_the_horizon_that_it_needs(settings: dict[str, object]) -> None:
    plan = plan_of(**settings)
    ended = [run for seed in range(5) if (run := life(plan, seed)).finished is Reason.OUT_OF_REACH]
    plans = [longer for run in ended if (longer := with_larger_horizon(run)) is not None]
    assert len(plans) >= 2 and all(Controller(longer).ask(1) for longer in plans), "the pairs are given up at once"


@pytest.mark.slow
def test_the_advised_horizon_decides_most_pairs() -> None:
    """Of two models that differ by five points."""
    plan = plan_of(bench=Bench(2, 30, np.array([0.0, 1.0])), trials=Trials(min=4, max=20))
    ended = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chances = np.clip(rng.beta(2.0, 2.0, 30) - np.array([[0.0], [0.05]]), 0.02, 0.98)
        run = play_chances(Controller(plan), chances, rng)
        if run.finished is Reason.OUT_OF_REACH and (longer := with_larger_horizon(run)) is not None:
            further = play_chances(Controller(longer), chances, rng)
            assert further.trials.sum() > run.trials.sum()
            ended.append(further.finished)
    assert len(ended) >= 15 and ended.count(Reason.SETTLED) >= 0.8 * len(ended)


@pytest.mark.slow
def test_a_model_that_joins_has_a_rule_of_its_own() -> None:
    two, plan = plan_of(bench=Bench(2, OF_TWELVE, np.array([0.0, 1.0]))), plan_of()
    for seed in range(4):
        joined = life(after(life(two, seed), plan, (0, 1, None)), seed)
        if joined.finished is Reason.OUT_OF_REACH and (longer := with_larger_horizon(joined)) is not None:
            assert Controller(longer).ask(1)
