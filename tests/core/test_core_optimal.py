"""The rule `optimal` in looks and runs: pairs given up stay given up, and the error guarantee always holds."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from core_evidence import evidence
from core_looks import Looker, binary
from core_runs import play
from numpy.typing import NDArray
from scipy.stats import binom

from adaptive_eval.core import Ask, Bench, Controller, Judging, Objective, Optimal, Outcome, Pace, Plan, Trials, Verdict
from adaptive_eval.core.evidence import Evidence
from adaptive_eval.core.judge import Criteria, LatchedVerdicts, judge
from adaptive_eval.core.objectives import Baseline, Best, Gate, Pairs, Ranking, Threshold, TopK
from adaptive_eval.core.optimal import MOST_LEFT, ContinuedOptimal, Spacing
from adaptive_eval.core.rules import is_correctable, is_giving_up
from adaptive_eval.core.settings import Margin
from adaptive_eval.core.stages import StageBefore, extended

QUESTIONS = 10
RULE = Optimal(spacing=Spacing(1.0))


def half_way(first: int, second: int, trials: int) -> list[list[list[int]]]:
    """Two models that were right so often on each question."""
    return [binary([first] * QUESTIONS, trials), binary([second] * QUESTIONS, trials)]


def test_a_pair_that_was_given_up_is_never_called_whatever_comes() -> None:
    looker = Looker(rule=RULE)
    _, pairs = looker.look(half_way(20, 20, 40))
    assert pairs[0, 1].verdict is Verdict.OUT_OF_REACH
    standing, pairs = looker.look(half_way(60, 20, 70))
    assert abs(standing.evidence.z[0]) > 5.0 and pairs[0, 1].verdict is Verdict.OUT_OF_REACH
    assert pairs[0, 1].power == 0.0
    fresh, pairs = Looker(rule=RULE).look(half_way(60, 20, 70))
    assert fresh.memory.call[0] == 1 and pairs[0, 1].verdict is Verdict.RESOLVED


def test_a_pair_that_was_given_up_can_still_be_certified_as_tied() -> None:
    looker = Looker(rule=RULE, judging=Judging(delta=0.07))
    _, pairs = looker.look(half_way(20, 20, 40))
    assert looker.memory is not None and looker.memory.given_up[0]
    assert pairs[0, 1].verdict is Verdict.OPEN and pairs[0, 1].power > 0.3
    _, pairs = looker.look(half_way(40, 40, 80))
    assert pairs[0, 1].verdict is Verdict.TIED
    bound = RULE.ties.boundary(evidence(2, [0.0], [1.0], [0.1, 0.1]))
    assert bound[0] > RULE.boundary(evidence(2, [0.0], [1.0], [0.1, 0.1]))[0], "a tie's test gives nothing up"


def test_a_pair_is_given_up_if_it_may_have_been_under_the_grades_that_are_unknown() -> None:
    close, apart = (evidence(2, [z], [0.5]) for z in (0.0, 1.8))
    assert RULE.gives_up(close).tolist() == [True] and RULE.gives_up(apart).tolist() == [False]
    criteria = Criteria(Ranking(), RULE, Judging(), p_values=False)
    judged, _ = judge(LatchedVerdicts.blank(1), [apart, close, apart], criteria)
    assert judged.given_up.tolist() == [True]


def test_a_cap_gives_up_what_the_rule_would_go_on_with() -> None:
    counts = half_way(6, 5, 10)
    _, pairs = Looker(rule=RULE, judging=Judging()).look(counts)
    assert pairs[0, 1].verdict is Verdict.OPEN
    _, pairs = Looker(rule=RULE, judging=Judging()).look(counts, affordable=2.0)
    assert pairs[0, 1].verdict is Verdict.OUT_OF_REACH


OBJECTIVES: tuple[Objective, ...] = (
    Ranking(),
    Best(),
    TopK(2),
    Baseline(1),
    Pairs(((0, 1), (0, 2))),
    Threshold(0.5),
    Gate(Margin(1, 0.05)),
)
PACES = (Pace(), Pace(2), Pace(share=0.5))


@pytest.mark.parametrize(
    ("objective", "pace"),
    [*zip(OBJECTIVES, cycle(PACES), strict=False), *((Ranking(), pace) for pace in PACES[1:])],
    ids=lambda value: type(value).__name__,
)
def test_runs_of_every_objective_and_pace_end_and_part_the_far_ones(objective: Objective, pace: Pace) -> None:
    before = np.zeros((3, QUESTIONS, 2), np.int64)
    before[2] = 1  # R0
    bench = Bench(3, QUESTIONS, np.array([0.0, 1.0]), prior_counts=before)
    controller = Controller(
        Plan(bench, objective=objective, rule=Optimal(spacing=Spacing(2.0)), trials=Trials(min=4, max=30), pace=pace)
    )
    rng, needed = np.random.default_rng(0), np.ones(3, bool)
    while controller.finished is None:
        requested = controller.ask(1 << 20)
        assert all(needed[ask.model] for ask in requested), "who is not wanted again is not asked"
        looks = controller.tell(Outcome(*ask[:3], int(rng.random() < (0.9, 0.5, 0.5)[ask.model])) for ask in requested)
        needed = controller.needed_models() if looks else needed
    assert controller.last_look is not None
    last = {(pair.first, pair.second): pair.verdict for pair in controller.looks[-1].comparisons}
    assert Verdict.OPEN not in last.values()
    assert controller.last_look.memory.call[0] == 1, "0.9 against 0.5, or against the value 0.5"


@pytest.mark.parametrize("shared", [{"judging": Judging(familywise=True)}, {"coupled": True}], ids=str)
def test_the_variant_without_futility_decides_for_shared_errors_or_seeds(shared: dict[str, Any]) -> None:
    plan = Plan(Bench(3, QUESTIONS, np.array([0.0, 1.0])), rule=RULE, **shared)
    rule = plan.deciding_rule
    assert is_correctable(rule) and not is_giving_up(rule) and rule.confidence == RULE.confidence


def paths(pairs: int, times: NDArray[np.float64], start: NDArray[np.float64], at: float, seed: int) -> list[Evidence]:
    """Exact ties against fixed values, looked at these times of a horizon."""
    rng, x, before, looks = np.random.default_rng(seed), start.copy(), at, []
    for t in times:
        x = x + np.sqrt(t - before) * rng.standard_normal(pairs)
        before = t
        z = (x / np.sqrt(t)).tolist()
        looks.append(evidence(pairs, z, [t] * pairs, [0.05] * pairs, reference=True))
    return looks


@pytest.mark.parametrize(("confidence", "more"), [(0.99, 0.1824), (0.95, 0.152), (0.8, 0.038), (0.75, 0.0), (0.6, 0.0)])
def test_resting_leaves_more_error_unspent_at_smaller_levels(confidence: float, more: float) -> None:
    assert np.isclose(Optimal(confidence, rests=True).unspent, more) and Optimal(confidence).unspent == 0.0
    assert np.isclose(Optimal(confidence, worth=6.0, rests=True).unspent, more / 2), "half as many rest"
    assert np.isclose(Optimal(confidence, 0.525, rests=True).unspent, more / 2), "there is half as much time for it"


def test_a_single_look_spends_the_error_that_is_allowed_and_no_more() -> None:
    single_look = Optimal(start=1.0, spacing=Spacing(1.0), rests=True)
    assert np.isclose(single_look.boundary(evidence(2, [0.0], [1.0], [0.1, 0.1]))[0], 1.6449, rtol=1e-4)


@pytest.mark.slow
def test_error_saved_by_resting_lowers_the_boundary_and_is_not_reused_by_a_longer_horizon() -> None:
    """The reference is the rule itself without rests, at the confidence that spends as much."""
    for confidence, more in ((0.95, 0.152), (0.75, 0.0)):
        resting = replace(RULE, confidence=confidence, rests=True)
        plain = replace(RULE, confidence=1.0 - (1.0 - confidence) * (1.0 + more))
        looks = paths(200, np.linspace(0.05, 0.6, 12), np.zeros(200), 0.0, 5)
        for look in looks:
            assert np.allclose(resting.boundary(look), plain.boundary(look), atol=1e-3)
        now = replace(looks[-1], information=looks[-1].information / 2.0)
        given_up = np.any([plain.gives_up(look) for look in looks], axis=0)
        expected = np.where(given_up, 0.0, plain.chance_left(looks[-1]) / (1.0 + more)) + resting.reserve
        remaining = resting.extended(looks, now, 0.0).remaining_error(now)
        assert np.allclose(remaining, np.minimum(expected, MOST_LEFT), atol=2e-3)


@pytest.mark.release
def test_a_larger_horizon_takes_up_what_was_given_up_and_calls_no_more_ties_than_promised() -> None:
    """Extended halfway, and again; pairs that were given up have only the reserved error."""
    pairs = 800
    looks = paths(pairs, np.linspace(0.05, 0.5, 37), np.zeros(pairs), 0.0, 1)
    called, given_up = np.zeros(pairs, bool), np.zeros(pairs, bool)
    for look in looks:
        called |= ~given_up & (np.abs(look.z) >= RULE.boundary(look))
        given_up |= ~called & RULE.gives_up(look)
    now = replace(looks[-1], information=looks[-1].information / 3.0)
    rule = extended(RULE, looks, now, 0.0)
    assert isinstance(rule, ContinuedOptimal)
    assert given_up.mean() > 0.3 and np.all(np.isfinite(rule.boundary(now)[~called]))
    remaining = rule.remaining_error(now)
    assert np.allclose(remaining[given_up], RULE.reserve) and np.all(remaining[~given_up & ~called] > RULE.reserve)
    first = np.linspace(1 / 6, 0.5, 15)[1:]
    further = paths(pairs, first, looks[-1].z * np.sqrt(1 / 6), 1 / 6, 2)
    for look in further:
        called |= np.abs(look.z) >= rule.boundary(look)
    again = replace(further[-1], information=further[-1].information / 2.0)
    rule = extended(rule, further, again, 0.0)
    for look in paths(pairs, np.linspace(0.25, 1.0, 25)[1:], further[-1].z * 0.5, 0.25, 3):
        called |= np.abs(look.z) >= rule.boundary(look)
    assert 0.03 <= called.mean() <= binom.ppf(0.999, pairs, 0.1) / pairs


def test_an_extended_run_continues_with_the_remaining_error() -> None:
    bench, rng = Bench(2, QUESTIONS, np.array([0.0, 1.0])), np.random.default_rng(4)
    plan = Plan(bench, rule=Optimal(start=1 / 3, spacing=Spacing(2.0)), trials=Trials(min=4, max=12))

    def grade(ask: Ask) -> int:
        return int(rng.random() < (0.7, 0.5)[ask.model])

    before = StageBefore(play(Controller(plan), grade, looks=1), (0, 1))
    controller = play(Controller(replace(plan, trials=Trials(min=4, max=60), before=before)), grade)
    assert len(controller.extensions) == 1 and controller.extensions[0].leaves_error
    assert 0.0 < controller.extensions[0].error_left[0] < 1.0 and np.isfinite(controller.extensions[0].boundary[0])


def test_a_pair_that_was_given_up_is_called_after_the_horizon_was_raised() -> None:
    """No difference in the first rounds, and a large one from then on."""
    bench, rule = Bench(2, QUESTIONS, np.array([0.0, 1.0])), Optimal(start=0.5, spacing=Spacing(2.0))
    small = Plan(bench, rule=rule, trials=Trials(min=4, max=8))

    def grade(ask: Ask) -> int:
        return int(ask.trial % 2 if ask.trial < 6 else ask.model == 0)

    before = play(Controller(small), grade)
    assert before.last_look is not None and before.last_look.memory.given_up[0]
    assert before.looks[-1].comparisons[0].verdict is Verdict.OUT_OF_REACH
    after = play(Controller(replace(small, trials=Trials(min=4, max=80), before=StageBefore(before, (0, 1)))), grade)
    assert after.extensions[0].error_left[0] == pytest.approx(rule.reserve)
    assert after.looks[-1].comparisons[0].verdict is Verdict.RESOLVED and after.trials.sum() > before.trials.sum()


def test_a_single_look_at_a_finished_design_keeps_nothing_for_later() -> None:
    look = evidence(2, [1.6449], [1.0], [0.1, 0.1])
    assert Optimal(start=1.0).reserve == 0.0 and Optimal(start=1.0).boundary(look)[0] == pytest.approx(1.6449, abs=1e-3)
