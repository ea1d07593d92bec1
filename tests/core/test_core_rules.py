"""The boundaries of each rule on given evidence, computed independently; pairs given up, and pairs judged by trial."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from core_looks import Looker, binary, evidence
from core_runs import look_of, play
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom, norm
from thoroughness import examples

from adaptive_eval.core import Anytime, Ask, Controller, Evidence, NearBest, Outcome, Plan, Verdict
from adaptive_eval.core.judge import Criteria, Judging, LatchedVerdicts, forecast, judge
from adaptive_eval.core.objectives import Gate, Pairs, Ranking
from adaptive_eval.core.optimal import MOST_LEFT, ContinuedOptimal, Optimal, Spacing
from adaptive_eval.core.registry import RULES, make
from adaptive_eval.core.rules import Correctable, Precision, Rule, ZScore, is_correctable, is_giving_up
from adaptive_eval.core.sequential import KAPPA_BY_TRIAL, Coupled, Sequential
from adaptive_eval.core.settings import Bench, Margin, Trials
from adaptive_eval.core.stages import StageBefore, extended
from adaptive_eval.testing.decisions import check_boundary, check_p_values
from scorio.sinf import Mixture


def test_the_published_boundary_is_a_constant() -> None:
    on = evidence(3, [0.0, 1.7, -9.0], [0.01, 0.5, 1.0])
    assert ZScore().boundary(on).tolist() == [1.645] * 3
    assert ZScore(2.5).boundary(on).tolist() == [2.5] * 3


@pytest.mark.parametrize(("kappa", "at_looks"), [(0.0, 2.511), (0.25, 2.042), (0.5, 1.898)])
def test_sequential_holds_at_every_look_from_its_start_on(kappa: float, at_looks: float) -> None:
    """The constants of 77 equal looks, by recursive quadrature, bound those of any looks, and not by much."""
    rule = Sequential(kappa=kappa)
    constant = float(rule.boundary(evidence(2, [0.0], [1.0]))[0])
    assert at_looks < constant < at_looks + 0.15
    times = [0.0, 0.0499, 0.05, 0.3, 1.3, 1.0]
    expected = [np.inf, np.inf, *(constant * t**-kappa for t in (0.05, 0.3, 1.0, 1.0))]
    np.testing.assert_allclose(rule.boundary(evidence(4, [0.0] * 6, times)), expected, rtol=1e-8)
    first, second, third, *_ = rule.p_value(evidence(4, [90.0] * 6, times), 1).tolist()
    assert first == second == 1.0 and third < 1e-4


def test_sequential_with_one_look_is_the_plain_test() -> None:
    on = evidence(2, [1.7], [1.0])
    assert Sequential(start=1.0).boundary(on)[0] == pytest.approx(norm.ppf(0.95), abs=1e-3)
    assert Sequential(start=1.0).p_value(on, 1)[0] == pytest.approx(norm.sf(1.7), abs=1e-4)


def test_anytime_is_the_normal_mixture_with_its_least_value_at_the_optimum() -> None:
    times = [0.049, 0.05, 0.2, 0.499, 0.5, 0.501]
    boundaries = Anytime().boundary(evidence(4, [0.0] * 6, times))
    np.testing.assert_allclose(boundaries[1:], Mixture(0.10, 0.5).at(np.array(times[1:])), rtol=1e-9)
    assert np.isinf(boundaries[0]) and boundaries.min() == boundaries[4]


def test_near_best_tests_whether_the_model_ahead_is_worse_by_the_margin() -> None:
    """The boundary on |z| is the one on (|d| + margin)/s minus margin/s, whichever model is ahead."""
    rule, sigma = NearBest(0.02), 0.01 / math.sqrt(2.0)
    for z in (-0.4, 0.0, 0.4, 1.0):
        on = evidence(2, [z], [0.3], [sigma, sigma])
        strict = rule.strict_boundary(on)[0]
        assert rule.boundary(on)[0] == pytest.approx(strict - 2.0)
        assert (abs(z) >= rule.boundary(on)[0]) == (abs(z) * 0.01 + 0.02 >= strict * 0.01)


def test_near_best_calls_either_of_two_models_whose_difference_is_known_to_be_small() -> None:
    assert NearBest(0.02).boundary(evidence(2, [0.0], [0.3], [0.001, 0.001])).tolist() == [0.0]
    assert NearBest(1e-9).boundary(evidence(2, [2.0], [0.3], [0.2, 0.2]))[0] > 2.4
    assert NearBest().boundary(evidence(2, [0.0], [0.0], [math.inf, 0.2])).tolist() == [math.inf]


@pytest.mark.parametrize(("sigma", "reached"), [(0.0256, False), (0.0255, True), (0.001, True), (math.inf, False)])
def test_precision_looks_at_the_width_alone(sigma: float, reached: bool) -> None:
    """1.96 sigma against 0.05."""
    on = evidence(1, [4e7], [0.3], [sigma], reference=True)
    assert (on.z >= Precision(0.05).boundary(on)).tolist() == [reached]


@st.composite
def any_evidence(draw: st.DrawFn) -> Evidence:
    """Pairs with no information up to more than complete information; some models have no trial."""
    models, reference = draw(st.integers(1, 4)), draw(st.booleans())
    pairs = models if reference else models * (models - 1) // 2
    z = draw(st.lists(st.floats(-12.0, 12.0), min_size=pairs, max_size=pairs))
    information = draw(st.lists(st.floats(0.0, 1.5), min_size=pairs, max_size=pairs))
    sigma = st.one_of(st.floats(1e-4, 0.5), st.just(float("inf")))
    return evidence(models, z, information, draw(st.lists(sigma, min_size=models, max_size=models)), reference)


EVERY: list[Rule] = [Sequential(0.8, 0.2, 0.5), Precision(0.05)]
EVERY += dict.fromkeys(make(entry.make, {}, {"confidence": 0.9, "start": 0.1}) for entry in RULES.values())


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: type(rule).__name__)
@settings(max_examples=examples(30), deadline=None)
@given(on=any_evidence(), share=st.integers(2, 40_000))
def test_any_evidence_passes_the_published_checks_at_any_level(rule: Rule, on: Evidence, share: int) -> None:
    check_boundary(rule, on)
    if not isinstance(rule, Correctable):
        return
    check_p_values(rule, on)
    stricter = rule.at_level((1.0 - rule.confidence) / share)
    assert 1.0 - stricter.confidence == pytest.approx((1.0 - rule.confidence) / share)
    finite = np.isfinite(rule.boundary(on))
    assert np.all(stricter.boundary(on)[finite] > rule.boundary(on)[finite])
    np.testing.assert_allclose(stricter.p_value(on, 1), rule.p_value(on, 1), rtol=1e-9)


OF_TEN = 10
OPTIMAL = Optimal(spacing=Spacing(1.0))


def half_way(first: int, second: int, trials: int) -> list[list[list[int]]]:
    """Two models that were right so often on each question."""
    return [binary([first] * OF_TEN, trials), binary([second] * OF_TEN, trials)]


def test_a_pair_that_was_given_up_is_never_called_whatever_comes() -> None:
    looker = Looker(rule=OPTIMAL)
    _, pairs = looker.look(half_way(20, 20, 40))
    assert pairs[0, 1].verdict is Verdict.OUT_OF_REACH
    standing, pairs = looker.look(half_way(60, 20, 70))
    assert abs(standing.evidence.z[0]) > 5.0 and pairs[0, 1].verdict is Verdict.OUT_OF_REACH
    assert pairs[0, 1].power == 0.0
    fresh, pairs = Looker(rule=OPTIMAL).look(half_way(60, 20, 70))
    assert fresh.memory.call[0] == 1 and pairs[0, 1].verdict is Verdict.RESOLVED


def test_a_pair_that_was_given_up_can_still_be_certified_as_tied() -> None:
    looker = Looker(rule=OPTIMAL, judging=Judging(delta=0.07))
    _, pairs = looker.look(half_way(20, 20, 40))
    assert looker.memory is not None and looker.memory.given_up[0]
    assert pairs[0, 1].verdict is Verdict.OPEN and pairs[0, 1].power > 0.3
    _, pairs = looker.look(half_way(40, 40, 80))
    assert pairs[0, 1].verdict is Verdict.TIED
    bound = OPTIMAL.ties.boundary(evidence(2, [0.0], [1.0], [0.1, 0.1]))
    assert bound[0] > OPTIMAL.boundary(evidence(2, [0.0], [1.0], [0.1, 0.1]))[0], "a tie's test gives nothing up"


def test_a_pair_is_given_up_if_it_may_have_been_under_the_grades_that_are_unknown() -> None:
    close, apart = (evidence(2, [z], [0.5]) for z in (0.0, 1.8))
    assert OPTIMAL.gives_up(close).tolist() == [True] and OPTIMAL.gives_up(apart).tolist() == [False]
    criteria = Criteria(Ranking(), OPTIMAL, Judging(), p_values=False)
    judged, _ = judge(LatchedVerdicts.blank(1), [apart, close, apart], criteria)
    assert judged.given_up.tolist() == [True]


def test_a_cap_gives_up_what_the_rule_would_go_on_with() -> None:
    counts = half_way(6, 5, 10)
    _, pairs = Looker(rule=OPTIMAL, judging=Judging()).look(counts)
    assert pairs[0, 1].verdict is Verdict.OPEN
    _, pairs = Looker(rule=OPTIMAL, judging=Judging()).look(counts, affordable=2.0)
    assert pairs[0, 1].verdict is Verdict.OUT_OF_REACH


@pytest.mark.parametrize("shared", [{"judging": Judging(familywise=True)}, {"coupled": True}], ids=str)
def test_the_variant_without_futility_decides_for_shared_errors_or_seeds(shared: dict[str, Any]) -> None:
    plan = Plan(Bench(3, OF_TEN, np.array([0.0, 1.0])), rule=OPTIMAL, **shared)
    rule = plan.deciding_rule
    assert is_correctable(rule) and not is_giving_up(rule) and rule.confidence == OPTIMAL.confidence
    assert isinstance(rule, Coupled) == plan.coupled


def test_a_rule_that_is_given_decides_at_the_spacing_of_the_plan() -> None:
    plan = Plan(Bench(2, OF_TWENTY, weights=np.array([0.0, 1.0])), objective=Pairs(((0, 1),)))
    assert plan.deciding_rule == Optimal(spacing=plan.spacing, rests=True)
    for changed in (replace(plan, judging=Judging(delta=0.1)), replace(plan, objective=Gate(Margin(0, 0.05)))):
        assert changed.deciding_rule == Optimal(spacing=changed.spacing), "no pair rests that could be tied or gated"


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
    assert Optimal(start=1.0).reserve == 0.0, "nothing is kept for later"


@pytest.mark.slow
def test_error_saved_by_resting_lowers_the_boundary_and_is_not_reused_by_a_longer_horizon() -> None:
    """The reference is the rule itself without rests, at the confidence that spends as much."""
    for confidence, more in ((0.95, 0.152), (0.75, 0.0)):
        resting = replace(OPTIMAL, confidence=confidence, rests=True)
        plain = replace(OPTIMAL, confidence=1.0 - (1.0 - confidence) * (1.0 + more))
        looks = paths(200, np.linspace(0.05, 0.6, 12), np.zeros(200), 0.0, 5)
        for look in looks:
            assert np.allclose(resting.boundary(look), plain.boundary(look), atol=1e-3)
        now = replace(looks[-1], information=looks[-1].information / 2.0)
        given_up = np.any([plain.gives_up(look) for look in looks], axis=0)
        expected = np.where(given_up, 0.0, plain.chance_left(looks[-1]) / (1.0 + more)) + resting.reserve
        remaining = resting.extended(looks, now, 0.0).error_left
        assert np.allclose(remaining, np.minimum(expected, MOST_LEFT), atol=2e-3)


@pytest.mark.release
def test_a_larger_horizon_takes_up_what_was_given_up_and_calls_no_more_ties_than_promised() -> None:
    """Extended halfway, and again; pairs that were given up have only the reserved error."""
    pairs = 800
    looks = paths(pairs, np.linspace(0.05, 0.5, 37), np.zeros(pairs), 0.0, 1)
    called, given_up = np.zeros(pairs, bool), np.zeros(pairs, bool)
    for look in looks:
        called |= ~given_up & (np.abs(look.z) >= OPTIMAL.boundary(look))
        given_up |= ~called & OPTIMAL.gives_up(look)
    now = replace(looks[-1], information=looks[-1].information / 3.0)
    rule = extended(OPTIMAL, looks, now, 0.0)
    assert isinstance(rule, ContinuedOptimal)
    assert given_up.mean() > 0.3 and np.all(np.isfinite(rule.boundary(now)[~called]))
    remaining = rule.error_left
    assert np.allclose(remaining[given_up], OPTIMAL.reserve) and np.all(
        remaining[~given_up & ~called] > OPTIMAL.reserve
    )
    further = paths(pairs, np.linspace(1 / 6, 0.5, 15)[1:], looks[-1].z * np.sqrt(1 / 6), 1 / 6, 2)
    for look in further:
        called |= np.abs(look.z) >= rule.boundary(look)
    again = replace(further[-1], information=further[-1].information / 2.0)
    rule = extended(rule, further, again, 0.0)
    for look in paths(pairs, np.linspace(0.25, 1.0, 25)[1:], further[-1].z * 0.5, 0.25, 3):
        called |= np.abs(look.z) >= rule.boundary(look)
    assert 0.03 <= called.mean() <= binom.ppf(0.999, pairs, 0.1) / pairs


def test_a_pair_that_was_given_up_is_called_after_the_horizon_was_raised() -> None:
    """No difference in the first rounds, and a large one from then on."""
    bench, rule = Bench(2, OF_TEN, np.array([0.0, 1.0])), Optimal(start=0.5, spacing=Spacing(2.0))
    small = Plan(bench, rule=rule, trials=Trials(min=4, max=8))

    def grade(ask: Ask) -> int:
        return int(ask.trial % 2 if ask.trial < 6 else ask.model == 0)

    before = play(Controller(small), grade)
    assert before.last_look is not None and before.last_look.memory.given_up[0]
    assert before.looks[-1].comparisons[0].verdict is Verdict.OUT_OF_REACH
    after = play(Controller(replace(small, trials=Trials(min=4, max=80), before=StageBefore(before, (0, 1)))), grade)
    continued = after.taker.rule
    assert isinstance(continued, ContinuedOptimal) and continued.error_left[0] == pytest.approx(rule.reserve)
    assert after.looks[-1].comparisons[0].verdict is Verdict.RESOLVED and after.trials.sum() > before.trials.sum()


@pytest.mark.parametrize(("reached", "some_left"), [(0.5, True), (1.0, False)])
def test_ties_under_a_raised_horizon_are_forecast_with_the_error_that_is_left(reached: float, some_left: bool) -> None:
    """The forecast for the horizon is the verdict that an even pair gets there."""
    delta, wide = 0.06, [0.03, 0.03]
    look, now = evidence(2, [0.0], [reached], wide), evidence(2, [0.0], [reached / 2.0], wide)
    rule = Optimal().extended([look], now, delta)
    tied = []
    for sigma in np.linspace(0.001, 0.03, 30):
        at_end = evidence(2, [0.0], [1.0], [sigma, sigma])
        judged, _ = judge(LatchedVerdicts.blank(1), [at_end], Criteria(Ranking(), rule, Judging(delta)))
        ahead = forecast(at_end, rule, delta, np.ones(1))
        assert judged.tie[0] == (ahead.certifiable[0] <= delta) == (ahead.power(np.arange(1))[0] == 1.0)
        tied.append(bool(judged.tie[0]))
    assert any(tied) == some_left and not all(tied)
    assert np.isfinite(forecast(now, rule, delta, np.ones(1)).certifiable[0]) == some_left


COUPLED = Coupled.from_rule(Sequential(start=0.05))
OF_TWENTY = 20


def two_pairs(z: float, information: float, paired: tuple[bool, bool] | None) -> Evidence:
    """Two pairs that differ in nothing but how they are judged."""
    three = evidence(3, [z] * 3, [information] * 3, [0.01] * 3).at_positions(np.array([0, 1]))
    return replace(three, paired=None if paired is None else np.array(paired))


@pytest.mark.parametrize("information", [0.05, 0.2, 1.0])
def test_each_pair_has_the_boundary_of_its_kind(information: float) -> None:
    flat, steep = Sequential(start=0.05, kappa=KAPPA_BY_TRIAL), Sequential(start=0.05)
    seen = two_pairs(2.5, information, (True, False))
    expected = [flat.boundary(seen)[0], steep.boundary(seen)[1]]
    if information < 0.1:
        assert expected[0] < 0.7 * expected[1], "lower where near copies settle"
    if information == 1.0:
        assert expected[1] < expected[0] < 1.2 * expected[1], "both spend the same error"
    assert COUPLED.boundary(seen) == pytest.approx(expected)
    assert COUPLED.p_value(seen, 1) == pytest.approx([flat.p_value(seen, 1)[0], steep.p_value(seen, 1)[1]])
    assert COUPLED.at_level(0.01).boundary(seen)[1] == pytest.approx(replace(steep, confidence=0.99).boundary(seen)[1])
    assert COUPLED.boundary(seen.at_positions(np.array([0]))) == pytest.approx(expected[:1])
    nobody = two_pairs(2.5, information, None)
    assert COUPLED.boundary(nobody) == pytest.approx(steep.boundary(nobody))


def test_a_changed_horizon_leaves_each_pair_what_its_own_boundary_left() -> None:
    looks = [two_pairs(1.0, t, (True, False)) for t in (0.1, 0.5, 0.9)]
    now = two_pairs(1.0, 0.45, (True, False))
    after = COUPLED.extended(looks, now, 0.02)
    apart = [Sequential(start=0.05, kappa=kappa).extended(looks, now, 0.02) for kappa in (KAPPA_BY_TRIAL, 0.25)]
    at_end = two_pairs(1.0, 1.0, (True, False))
    for of_each, ask in (
        (after.boundary(at_end), lambda rule: rule.boundary(at_end)),
        (after.p_value(at_end, 1), lambda rule: rule.p_value(at_end, 1)),
        (after.exhausted(now), lambda rule: rule.exhausted(now)),
        (after.margin_boundary(at_end, -1), lambda rule: rule.margin_boundary(at_end, -1)),
    ):
        assert of_each.tolist() == [ask(rule)[number] for number, rule in enumerate(apart)]
    again = after.extended(looks, now, 0.02).at_level(0.01)
    assert isinstance(again, Coupled) and not again.by_pair and again.confidence == 0.99


def gated(plan: Plan, seed: int, earlier: bool) -> int:
    """Whether a copy worse by exactly delta passes (1) or fails (-1); it only loses trials and never gains any."""
    rng, delta = np.random.default_rng(seed), plan.objective.margin.delta if plan.objective.margin else 0.0
    u = rng.random((OF_TWENTY, plan.trials.max))
    base = np.random.default_rng(8).beta(0.7, 0.7, (OF_TWENTY, 1)).clip(0.1)
    outcomes = np.stack([u < base, (u < base) & (u >= delta)]).astype(int)
    controller = Controller(plan)
    if earlier:
        controller = Controller(replace(plan, trials=Trials(min=4, max=15)))
    while controller.finished is None:
        if earlier and controller.taker.taken == 8:
            before = StageBefore(controller, (0, 1))
            controller, earlier = Controller(replace(plan, before=before), keep_looks=False), False
        requested = controller.ask(10**6)
        controller.tell(Outcome(*ask[:3], int(outcomes[ask[:3]])) for ask in requested)
    (pair,) = look_of(controller).comparisons
    return 0 if pair.verdict is not Verdict.RESOLVED else 1 if pair.first == 1 else -1


@pytest.mark.release
@pytest.mark.parametrize("runs", [600])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_copy_at_the_edge_passes_in_a_twentieth_of_runs_at_most(earlier: bool, runs: int) -> None:
    """Pure losses are the hardest case: few losses look like none."""
    bench = Bench(2, OF_TWENTY, weights=np.array([0.0, 1.0]))
    plan = Plan(
        bench,
        objective=Gate(Margin(0, 0.03)),
        rule=Sequential(start=4 / 15 if earlier else 4 / 60),
        judging=Judging(),
        trials=Trials(min=4, max=60),
        coupled=True,
    )
    decisions = [gated(plan, seed, earlier) for seed in range(runs)]
    for side in (1, -1):
        assert decisions.count(side) / runs <= 0.05 + 2.0 * np.sqrt(0.0475 / runs)
