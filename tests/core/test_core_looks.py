"""One look at constructed counts, compared with the same statistics in plain loops."""

import math

import core_oracle as oracle
import numpy as np
import pytest
from core_looks import Looker, binary
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from thoroughness import examples

from adaptive_eval.core import Verdict
from adaptive_eval.core.judge import Judging
from adaptive_eval.core.objectives import Baseline, Best, Objective, Pairs, PrecisionOf, Ranking, Threshold, TopK
from adaptive_eval.core.rules import ZScore

RUBRICS = ([0.0, 1.0], [0.0, 0.0, 0.5, 1.0], [-1.0, 0.25, 3.0], [2.0, -2.0, 0.5, 1.0])


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
def test_scores_z_information_and_outlook_are_those_of_plain_loops(
    case: tuple[list[list[list[int]]], list[float]],
) -> None:
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
        trials = (np.sum(ahead) + np.sum(behind)) / (2 * len(ahead))
        needed = trials * (2.0 / pair.z) ** 2 if pair.z > 1e-9 else math.inf
        assert pair.trials_needed == pytest.approx(needed, rel=1e-6)


def test_information_is_the_share_of_the_trials_when_they_are_equal() -> None:
    counts = [binary([3, 9, 0], 12), binary([5, 5, 12], 12)]
    _, pairs = Looker(horizon=48).look(counts)
    (pair,) = pairs.values()
    assert pair.information == pytest.approx(0.25, rel=1e-12)
    assert pair.boundary == pytest.approx(Looker(horizon=12).look(counts)[1][1, 0].boundary * 4**0.25, rel=1e-9)


def test_a_smaller_budget_is_a_nearer_horizon() -> None:
    """The attainable information is proportional to the trials if all remaining budget went to the pair."""
    counts = [binary([6, 5], 10), binary([5, 4], 10)]
    looker = Looker(rule=ZScore(2.0), horizon=40)
    _, pairs = looker.look(counts, affordable=30.0)
    (pair,) = pairs.values()
    t = oracle.information(counts, [0.0, 1.0], 40)
    assert pair.power == pytest.approx(oracle.power(pair.z, t, 2.0, reach=t * (1.0 + 30.0 / 40.0)), abs=2e-3)
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
    assert [pairs[model, None].verdict for model in (1, 3, 0, 2)] == [
        Verdict.RESOLVED,
        Verdict.OPEN,
        Verdict.OPEN,
        Verdict.RESOLVED,
    ]
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
    verdicts = sorted(pair.verdict for pair in pairs.values())
    assert verdicts == [Verdict.OPEN, Verdict.RESOLVED]


def test_a_model_without_a_trial_stands_last_and_open() -> None:
    nothing = [[0, 0]] * 3
    standing, pairs = Looker(Best(), judging=Judging(delta=0.05)).look([nothing, *COUNTS])
    assert standing.order.tolist() == [2, 4, 1, 3, 0]
    pair = pairs[2, 0]
    assert (pair.z, pair.rho, pair.information, pair.power) == (0.0, 0.5, 0.0, 1.0)
    assert pair.verdict is Verdict.OPEN
    assert math.isnan(standing.estimates.score[0])
