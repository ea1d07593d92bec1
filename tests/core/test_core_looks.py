"""A look at given counts: estimates, comparisons, verdicts and what latches, futility, and the trials still needed."""

import math
from typing import Any

import core_oracle as oracle
import numpy as np
import pytest
from core_looks import Looker, binary, evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from thoroughness import examples

from adaptive_eval.core import Anytime, Correctable, NearBest, Rule, Verdict, ZScore
from adaptive_eval.core.judge import Judging, forecast, times_needed
from adaptive_eval.core.look import tiers
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, PrecisionOf, Ranking, Threshold, TopK
from adaptive_eval.core.sequential import Sequential
from scorio.sinf.boundary import WangTsiatis

RUBRICS = ([0.0, 1.0], [0.0, 0.0, 0.5, 1.0], [-1.0, 0.25, 3.0], [2.0, -2.0, 0.5, 1.0])


Counts = tuple[list[list[int]], ...]
Case = tuple[list[list[list[int]]], list[float]]


@st.composite
def tallies(draw: st.DrawFn) -> Case:
    """Ragged counts of 2 to 4 models, each question tried, and a rubric."""
    w = draw(st.sampled_from(RUBRICS))
    models, questions = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    counts = rng.integers(0, 9, (models, questions, len(w)))
    counts[..., 0] += counts.sum(axis=-1) == 0
    return counts.tolist(), w


@settings(max_examples=examples(60), deadline=None)
@given(tallies())
def test_scores_z_information_and_outlook_are_those_of_plain_loops(case: Case) -> None:
    counts, w = case
    standing, pairs = Looker(weights=w, rule=ZScore(2.0)).look(counts)
    for model, tally in enumerate(counts):
        assert standing.estimates.score[model] == pytest.approx(oracle.average(tally, w), rel=1e-12, abs=1e-12)
        assert standing.estimates.sigma()[model] == pytest.approx(oracle.sigma(tally, w), rel=1e-9)
        mean, spread = oracle.bayes(tally, w)
        assert standing.estimates.bayes[model] == pytest.approx(mean, rel=1e-12, abs=1e-12)
        assert math.sqrt(standing.estimates.bayes_var[model]) == pytest.approx(spread, rel=1e-9)
    for (better, worse), pair in pairs.items():
        assert worse is not None
        ahead, behind = counts[better], counts[worse]
        assert pair.z == pytest.approx(oracle.z(ahead, behind, w), rel=1e-9, abs=1e-9)
        assert pair.z >= 0.0
        assert pair.rho == pytest.approx(ndtr(pair.z), rel=1e-9)
        t = oracle.information([ahead, behind], w, 80)
        assert pair.information == pytest.approx(t, rel=1e-9)
        assert pair.power == pytest.approx(oracle.power(pair.z, t, 2.0), abs=2e-3)
        needed = oracle.needed([ahead, behind], w, (2.0 / pair.z) ** 2) if pair.z > 1e-9 else math.inf
        assert pair.trials_needed == pytest.approx(needed, rel=1e-6)


SIX_FIVE, FIVE_FOUR = binary([6, 5], 10), binary([5, 4], 10)
LONG, GROWN = binary([600, 500], 1000), (binary([630, 525], 1050), binary([36, 30], 60))


@pytest.mark.parametrize(
    ("counts", "horizon", "affordable", "grown"),
    [
        ((SIX_FIVE, FIVE_FOUR), 40, 40.0, (binary([12, 10], 20), binary([10, 8], 20))),
        ((LONG, SIX_FIVE), 2000, 200.0, GROWN),
    ],
    ids=["alike", "one has joined a long run"],
)
def test_a_smaller_budget_is_a_nearer_horizon(counts: Counts, horizon: int, affordable: float, grown: Counts) -> None:
    """Both models get half of the trials that are left. It reaches far for a pair of which one has few trials: its own
    are what is missing, however many the other one has."""
    looker = Looker(rule=ZScore(2.0), horizon=horizon)
    (pair,) = looker.look(counts, affordable=affordable)[1].values()
    t, reach = (oracle.information(each, [0.0, 1.0], horizon) for each in (counts, grown))
    assert reach > (5.0 if counts[0] is LONG else 1.9) * t
    assert pair.power == pytest.approx(oracle.power(pair.z, t, 2.0, reach=reach), abs=0.02)
    assert looker.look(counts, affordable=0.0)[1][0, 1].power == 0.0


COUNTS = [binary([4, 4, 5], 10), binary([9, 9, 9], 10), binary([1, 0, 1], 10), binary([5, 5, 5], 10)]


@pytest.mark.parametrize(
    ("objective", "pairs"),
    [
        (Ranking(), [(1, 3), (3, 0), (0, 2)]),
        (Best(), [(1, 3), (1, 0), (1, 2)]),
        (TopK(1), [(1, 3), (1, 0), (1, 2)]),
        (TopK(2), [(1, 0), (1, 2), (3, 0), (3, 2)]),
        (TopK(3), [(1, 2), (3, 2), (0, 2)]),
        (Baseline(0), [(0, 2), (1, 0), (3, 0)]),
        (Pairs(((2, 3), (0, 1))), [(3, 2), (1, 0)]),
        (Threshold(0.5), [(1, None), (3, None), (0, None), (2, None)]),
        (PrecisionOf(0.1), [(1, None), (3, None), (0, None), (2, None)]),
    ],
)
def test_each_objective_makes_its_comparisons(objective: Objective, pairs: list[tuple[int, int | None]]) -> None:
    standing, compared = Looker(objective).look(COUNTS)
    assert standing.order.tolist() == [1, 3, 0, 2]
    assert sorted(compared, key=str) == sorted(pairs, key=str)
    assert len(compared) == len(pairs)


def test_a_threshold_has_no_uncertainty_of_its_own() -> None:
    _, pairs = Looker(Threshold(0.5)).look(COUNTS)
    w = [0.0, 1.0]
    for (model, _), pair in pairs.items():
        expected = (oracle.average(COUNTS[model], w) - 0.5) / oracle.sigma(COUNTS[model], w)
        assert pair.z == pytest.approx(expected, abs=1e-12)
        assert pair.information == pytest.approx(10 / 80)
    called = {model: pairs[model, None].verdict is Verdict.RESOLVED for model in range(4)}
    assert called == {0: False, 1: True, 2: True, 3: False}
    assert pairs[3, None].z == 0.0
    assert pairs[3, None].trials_needed == math.inf


def test_precision_is_reached_by_the_width_alone() -> None:
    """1.96 sigma is 0.17 for model 3, 0.11 for model 2; a half-width between them parts the two."""
    widths = [1.959964 * oracle.sigma(tally, [0.0, 1.0]) for tally in COUNTS]
    goal = (widths[2] + widths[3]) / 2.0
    _, pairs = Looker(PrecisionOf(goal)).look(COUNTS)
    for model, width in enumerate(widths):
        pair = pairs[model, None]
        assert (pair.verdict is Verdict.RESOLVED) == (width <= goal)
        assert pair.trials_needed == pytest.approx(10 * (width / goal) ** 2, rel=1e-5)


def test_equal_scores_stand_in_the_order_of_the_models() -> None:
    standing, pairs = Looker().look([binary([2, 2], 4)] * 3)
    assert standing.order.tolist() == [0, 1, 2]
    assert {pair.z for pair in pairs.values()} == {0.0}
    assert {pair.verdict for pair in pairs.values()} == {Verdict.OPEN}
    assert {pair.rho for pair in pairs.values()} == {0.5}


@pytest.mark.parametrize("right", [0, 6])
@pytest.mark.parametrize("prior", ["uniform", "self"])
def test_identical_or_uniform_outcomes_give_no_certainty(right: int, prior: str) -> None:
    looker = Looker(prior=prior)  # type: ignore[arg-type]
    standing, pairs = looker.look([binary([right] * 5, 6)] * 2 + [binary([6 - right] * 5, 6)])
    sigma = standing.estimates.sigma()
    assert np.all((sigma > 0.0) & np.isfinite(sigma))
    assert sorted(pair.verdict for pair in pairs.values()) == [Verdict.OPEN, Verdict.RESOLVED]


def test_a_model_without_a_trial_stands_last_and_open() -> None:
    nothing = [[0, 0]] * 3
    standing, pairs = Looker(Best(), judging=Judging(delta=0.05)).look([nothing, *COUNTS])
    assert standing.order.tolist() == [2, 4, 1, 3, 0]
    pair = pairs[2, 0]
    assert (pair.z, pair.rho, pair.information, pair.power) == (0.0, 0.5, 0.0, 1.0)
    assert pair.verdict is Verdict.OPEN
    assert math.isnan(standing.estimates.score[0])


FAR = [binary([19, 18, 19], 20), binary([2, 1, 1], 20)]
NEAR = [binary([11, 10, 10], 20), binary([10, 10, 10], 20)]
SAME = [binary([10, 10, 10], 20)] * 2


def verdict(looker: Looker, counts: list[list[list[int]]], pair: tuple[int, int] = (0, 1), **how: object) -> Verdict:
    return looker.look(counts, **how)[1][pair].verdict  # type: ignore[arg-type]


def test_verdicts_take_precedence_in_order() -> None:
    def looker(delta: float = 0.0, futility: float | None = None) -> Looker:
        return Looker(rule=ZScore(2.5), judging=Judging(delta=delta, futility=futility), horizon=25)

    assert verdict(looker(), NEAR) is Verdict.OPEN
    assert verdict(looker(futility=0.5), NEAR) is Verdict.OUT_OF_REACH
    assert verdict(looker(futility=0.5), NEAR, set_aside={1}) is Verdict.BLOCKED
    assert verdict(looker(), NEAR, set_aside={0}) is Verdict.BLOCKED
    assert verdict(looker(delta=0.5, futility=0.5), NEAR, set_aside={1}) is Verdict.TIED
    assert verdict(looker(delta=0.99, futility=0.5), FAR, set_aside={1}) is Verdict.RESOLVED


FREED = {"affordable": 1e6}


@pytest.mark.parametrize(
    ("judging", "horizon", "first", "then", "verdicts"),
    [
        pytest.param({}, 80, (FAR, FREED), (NEAR, FREED), (Verdict.RESOLVED, Verdict.RESOLVED), id="a call"),
        pytest.param({"delta": 0.25}, 80, (SAME, FREED), (FAR, FREED), (Verdict.TIED, Verdict.TIED), id="a tie"),
        pytest.param(
            {"futility": 0.2}, 21, (NEAR, FREED), (FAR, FREED), (Verdict.OUT_OF_REACH, Verdict.RESOLVED), id="giving up"
        ),
        pytest.param(
            {"futility": 0.2}, 400, (NEAR, {"affordable": 10.0}), (NEAR, FREED),
            (Verdict.OUT_OF_REACH, Verdict.OPEN), id="a freed budget",
        ),
    ],
)  # fmt: skip
def test_calls_and_ties_latch_and_giving_up_does_not(
    judging: dict[str, float], horizon: int, first: Any, then: Any, verdicts: tuple[Verdict, Verdict]
) -> None:
    looker = Looker(rule=ZScore(), judging=Judging(**({"futility": None} | judging)), horizon=horizon)  # type: ignore[arg-type]
    assert tuple(verdict(looker, counts, **how) for counts, how in (first, then)) == verdicts


def test_a_tie_is_the_interval_inside_the_zone() -> None:
    """|d| + b s <= delta, within a few last digits."""
    gap = oracle.average(NEAR[0], [0.0, 1.0]) - oracle.average(NEAR[1], [0.0, 1.0])
    reach = 2.0 * math.hypot(*(oracle.sigma(tally, [0.0, 1.0]) for tally in NEAR))
    for delta, expected in ((gap + reach - 1e-9, Verdict.OPEN), (gap + reach + 1e-9, Verdict.TIED)):
        assert verdict(Looker(rule=ZScore(2.0), judging=Judging(delta=delta)), NEAR) is expected


def test_a_reversed_lead_is_flagged_and_separates_no_models() -> None:
    looker = Looker(rule=ZScore())
    standing, _ = looker.look(FAR)
    assert tiers(standing) == (1, 2)
    standing, pairs = looker.look([NEAR[1], NEAR[0]])
    assert standing.order.tolist() == [1, 0]
    pair = pairs[1, 0]
    assert pair.reversed
    assert pair.verdict is Verdict.RESOLVED
    assert pair.z > 0.0
    assert tiers(standing) == (1, 1)
    standing, pairs = looker.look(SAME)
    assert not pairs[0, 1].reversed  # a difference of exactly 0 points nowhere


def test_tiers_chain_through_neighbours() -> None:
    """Unseparated neighbours share a tier though the ends differ; one gap separates all models on its two sides."""
    chain = [binary([right] * 3, 20) for right in (13, 11, 9, 7)]
    standing, _ = Looker(rule=ZScore(1.2)).look(chain)
    assert tiers(standing) == (1, 1, 1, 1)
    assert standing.memory.call.tolist() == [0, 1, 1, 0, 1, 0]
    standing, _ = Looker(rule=ZScore(1.2)).look([chain[2], FAR[0], chain[3], FAR[0]])
    assert tiers(standing) == (2, 1, 2, 1)


def test_near_best_ties_two_perfect_models() -> None:
    """Two models that never fail, neither far behind the other: nothing is left to find out."""
    perfect = [binary([40] * 30, 40)] * 2
    assert verdict(Looker(Best(), NearBest(0.1)), perfect) is Verdict.TIED
    assert verdict(Looker(Best(), NearBest(1e-6)), perfect) is Verdict.OPEN
    assert verdict(Looker(Best(), ZScore()), perfect) is Verdict.OPEN


def test_the_smallest_certifiable_delta_certifies_at_the_horizon() -> None:
    """At the horizon, with ten times the trials, equal models are tied within it, and not within less."""
    counts = [binary([5, 5, 5], 10)] * 2
    standing, _ = Looker(rule=ZScore(2.0), prior="uniform", horizon=100).look(counts)
    delta = float(standing.forecast.certifiable[0])
    later = [binary([50, 50, 50], 100)] * 2
    assert delta == pytest.approx(2.0 * math.hypot(*(oracle.sigma(tally, [0.0, 1.0]) for tally in later)), rel=0.05)


def test_power_counts_ties_where_there_can_be_ties() -> None:
    """Equal models are hardly ever called within the horizon, but are certainly tied within half of the scale."""
    counts = [binary([20, 20, 20], 40)] * 2
    without = Looker(rule=ZScore(3.0)).look(counts)[1][0, 1].power
    with_ties = Looker(rule=ZScore(3.0), judging=Judging(delta=0.45, futility=None)).look(counts)
    assert without < 0.05
    assert with_ties[1][0, 1].verdict is Verdict.TIED
    assert Looker(rule=ZScore(3.0), judging=Judging(delta=0.25)).look(counts)[1][0, 1].power > 0.9


History = list[list[list[list[int]]]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Growing counts of 4 models, look after look."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    wins = np.cumsum(rng.random((20, 4, 3)) < rng.random((4, 3)), axis=0)
    looks = [4, 8, 12, 20]
    return [np.stack([n - wins[n - 1], wins[n - 1]], axis=-1).tolist() for n in looks]


@pytest.mark.parametrize("rule", [Sequential(), Anytime()], ids=["sequential", "anytime"])
@pytest.mark.parametrize(
    "objective", [Ranking(), Baseline(2), Pairs(((0, 3), (1, 2)))], ids=["all", "baseline", "pairs"]
)
@settings(max_examples=examples(25), deadline=None)
@given(history=histories())
def test_familywise_is_holm_on_running_minima(rule: Correctable, objective: Objective, history: History) -> None:
    looker = Looker(objective, rule, Judging(futility=None, familywise=True), horizon=20)
    family = np.asarray(objective.family(4))
    smallest = np.ones(2 * len(family))
    calls: dict[int, int] = {}
    for counts in history:
        standing, _ = looker.look(counts)
        at = standing.evidence.positions(family)
        now = np.concatenate([rule.p_value(standing.evidence, 1)[at], rule.p_value(standing.evidence, -1)[at]])
        smallest = np.minimum(smallest, now)
        for place in sorted(oracle.holm(smallest.tolist(), 0.05)):
            pair = int(at[place % len(family)])
            calls.setdefault(pair, 1 if place < len(family) else -1)
        assert standing.memory.call.tolist() == [calls.get(pair, 0) for pair in range(6)]


@pytest.mark.parametrize(("objective", "divisor"), [(Best(), 3), (TopK(2), 4), (TopK(3), 3)])
def test_where_the_data_choose_the_pairs_the_level_is_divided(objective: Objective, divisor: int) -> None:
    looker = Looker(objective, Sequential(), Judging(futility=None, familywise=True))
    standing, pairs = looker.look([FAR[0], NEAR[0], SAME[0], FAR[1]])
    plain = Sequential(confidence=1.0 - 0.05 / divisor).boundary(standing.evidence)
    at = standing.evidence.positions(standing.pairs)
    assert [pair.boundary for pair in pairs.values()] == pytest.approx(plain[at].tolist(), rel=1e-9)
    assert (
        standing.memory.call.tolist()
        == (np.sign(standing.evidence.z) * (np.abs(standing.evidence.z) >= plain)).tolist()
    )


def test_the_boundary_of_a_family_falls_as_others_are_called() -> None:
    open_look = Looker(judging=Judging(futility=None, familywise=True)).look([NEAR[0], NEAR[1], SAME[0]])
    called_look = Looker(judging=Judging(futility=None, familywise=True)).look([NEAR[0], NEAR[1], FAR[1]])
    assert open_look[1][0, 1].boundary > called_look[1][0, 1].boundary


def needed(z: float, information: float, rule: Rule, delta: float = 0.0) -> float:
    """The trials needed as a multiple of today's, for a difference of 0.02."""
    pair = evidence(2, [z], [information], [0.02 / z / math.sqrt(2.0)] * 2)
    return float(times_needed(forecast(pair, rule, delta, np.ones(1)), pair, rule)[0])


@pytest.mark.parametrize(("trials", "max_trials", "z"), [(5, 60, 1.87), (5, 80, 2.5), (10, 80, 2.0), (40, 80, 1.8)])
def test_before_the_horizon_the_boundary_is_higher(trials: int, max_trials: int, z: float) -> None:
    """z sqrt(n/N) = c (n/N_max)^(-1/4) has the root n = (c sqrt(N) N_max^(1/4) / z)^(4/3)."""
    start = 4 / max_trials
    root = (WangTsiatis(0.25, start).critical(0.10) * trials**0.5 * max_trials**0.25 / z) ** (4 / 3)
    assert root < max_trials
    assert needed(z, trials / max_trials, Sequential(start=start)) * trials == pytest.approx(root, rel=0.01)


C = WangTsiatis(0.25, 0.05).critical(0.10)
DIRECT = (1.645 / 0.5) ** 2


@pytest.mark.parametrize(
    ("z", "rule", "delta", "expected"),
    [
        (0.5, Sequential(), 0.0, (C / 0.5) ** 2),
        (0.1, Sequential(), 0.06, (C * 0.2 / 0.04) ** 2),
        (0.9, ZScore(1.645), 0.0, (1.645 / 0.9) ** 2),
        (0.5, ZScore(1.645), 0.02, DIRECT),
        *((0.5, ZScore(1.645), d, min((1.645 * 0.04 / (d - 0.02)) ** 2, DIRECT)) for d in (0.021, 0.03, 0.06)),
    ],
)
def test_beyond_the_horizon_boundaries_stay_and_ties_count(z: float, rule: Rule, delta: float, expected: float) -> None:
    """A tie goes by the boundary of its information: |d| + b s/sqrt(u) = delta has the root u = (b s/(delta - |d|))^2.
    A constant is met at once."""
    assert needed(z, 0.5, rule, delta) == pytest.approx(expected, rel=0.01 if isinstance(rule, Sequential) else 1e-6)
