"""Verdicts: their precedence, what latches, the error shared among comparisons, and futility."""

import math

import core_oracle as oracle
import numpy as np
import pytest
from core_looks import Looker, binary
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Verdict
from adaptive_eval.core.anytime import Anytime
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.look import tiers
from adaptive_eval.core.near_best import NearBest
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, Ranking, Threshold, TopK
from adaptive_eval.core.rules import Correctable, ZScore
from adaptive_eval.core.sequential import Sequential

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


def test_a_call_latches() -> None:
    looker = Looker(rule=ZScore())
    assert verdict(looker, FAR) is Verdict.RESOLVED
    assert verdict(looker, NEAR) is Verdict.RESOLVED
    assert verdict(Looker(rule=ZScore()), NEAR) is Verdict.OPEN


def test_a_tie_latches_against_a_later_call() -> None:
    looker = Looker(rule=ZScore(), judging=Judging(delta=0.25))
    assert verdict(looker, SAME) is Verdict.TIED
    assert verdict(looker, FAR) is Verdict.TIED


def test_giving_up_does_not_latch() -> None:
    looker = Looker(rule=ZScore(), judging=Judging(futility=0.2), horizon=21)
    assert verdict(looker, NEAR) is Verdict.OUT_OF_REACH
    assert verdict(looker, FAR) is Verdict.RESOLVED


def test_a_freed_budget_reopens_what_was_given_up() -> None:
    looker = Looker(rule=ZScore(), judging=Judging(futility=0.2), horizon=400)
    assert verdict(looker, NEAR, affordable=10.0) is Verdict.OUT_OF_REACH
    assert verdict(looker, NEAR, affordable=1e6) is Verdict.OPEN


def test_a_tie_is_the_interval_inside_the_zone() -> None:
    """|d| + b s <= delta, within a few last digits."""
    gap = oracle.average(NEAR[0], [0.0, 1.0]) - oracle.average(NEAR[1], [0.0, 1.0])
    reach = 2.0 * math.hypot(*(oracle.sigma(tally, [0.0, 1.0]) for tally in NEAR))
    for delta, expected in ((gap + reach - 1e-9, Verdict.OPEN), (gap + reach + 1e-9, Verdict.TIED)):
        assert verdict(Looker(rule=ZScore(2.0), judging=Judging(delta=delta)), NEAR) is expected


def test_a_call_goes_before_a_tie_at_the_same_look() -> None:
    assert verdict(Looker(rule=ZScore(), judging=Judging(delta=2.0)), FAR) is Verdict.RESOLVED


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


def test_against_a_fixed_value_a_turn_is_flagged_too() -> None:
    looker = Looker(Threshold(0.5), rule=ZScore())
    standing, pairs = looker.look([FAR[0], SAME[0], FAR[1]])
    assert [pairs[model, None].reversed for model in range(3)] == [False] * 3
    assert tiers(standing) == (1, 2, 3)
    standing, pairs = looker.look([FAR[1], SAME[0], FAR[0]])
    assert [pairs[model, None].reversed for model in range(3)] == [True, False, True]
    assert tiers(standing) == (1, 1, 1)


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
    skill = rng.random((4, 3))
    wins = np.cumsum(rng.random((20, 4, 3)) < skill, axis=0)
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
        expected = [calls.get(pair, 0) for pair in range(6)]
        assert standing.memory.call.tolist() == expected


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
