"""Worlds: categories as sticks, worlds of the prior, and worlds whose models lie a gap apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.errors import ConfigError
from adaptive_eval.study.worlds import (
    WorldPrior,
    chances_of,
    logits_of,
    prior_chances,
    require_room,
    spaced,
    sticks_of,
    with_scores,
)

WEIGHTS = [np.array(weights) for weights in ([0.0, 1.0], [1.0, 0.0], [0.0, 0.0, 0.5, 1.0], [-1.0, 3.0, 0.25])]


def world(seed: int, models: int, weights: np.ndarray) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(len(weights), 0.7), (models, 9))


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@given(st.integers(0, 10**6))
@settings(max_examples=examples(20), deadline=None)
def test_probabilities_become_logits_and_back(weights: np.ndarray, seed: int) -> None:
    chances = world(seed, 3, weights)
    assert chances_of(logits_of(chances, weights), weights) == pytest.approx(chances, abs=1e-12)


def test_counts_are_experiments_the_best_category_first() -> None:
    weights = np.array([0.0, 1.0, 0.5])
    right, half = sticks_of(np.array([[[5, 2, 3], [1, 0, 0]]]), weights)
    assert right.successes.tolist() == [[2, 0]] and right.trials.tolist() == [[10, 1]]
    assert half.successes.tolist() == [[3, 0]] and half.trials.tolist() == [[8, 1]]


def test_the_likelihood_of_the_sticks_is_that_of_the_categories() -> None:
    rng, weights = np.random.default_rng(1), WEIGHTS[2]
    counts, chances = rng.multinomial(6, world(1, 2, weights)), world(2, 2, weights)
    logits = logits_of(chances, weights)
    by_sticks = sum(
        float((one.successes * logits[..., k] - one.trials * np.logaddexp(0.0, logits[..., k])).sum())
        for k, one in enumerate(sticks_of(counts, weights))
    )
    assert by_sticks == pytest.approx(float((counts * np.log(chances)).sum()))


def test_the_prior_has_the_spreads_that_it_states() -> None:
    """Without doubt about them, the variance of a logit is the sum of the four, and others share some of them."""
    prior = WorldPrior(level=1.0, ability=0.5, difficulty=2.0, taste=0.8, doubt=0.0)
    weights, rng = WEIGHTS[0], np.random.default_rng(3)
    logits = np.array([logits_of(one, weights)[..., 0] for one in prior_chances(prior, 2, 2, weights, 6_000, rng)])
    cov = np.cov(logits.reshape(-1, 4).T)
    level, ability, difficulty, taste = 1.0, 0.25, 4.0, 0.64
    assert np.diag(cov) == pytest.approx(level + ability + difficulty + taste, rel=0.07)
    assert cov[0, 1] == pytest.approx(level + ability, rel=0.1), "one model on two questions"
    assert cov[0, 2] == pytest.approx(level + difficulty, rel=0.07), "two models on one question"
    assert cov[0, 3] == pytest.approx(level, rel=0.15)


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_neighbours_lie_exactly_a_gap_apart_in_the_order_they_had(weights: np.ndarray) -> None:
    before = world(7, 5, weights)
    after = spaced(before, weights, 0.03)
    scores = (after @ weights).mean(axis=1)
    assert np.diff(np.sort(scores)) == pytest.approx(0.03, abs=1e-9)
    assert np.array_equal(np.argsort(scores), np.argsort((before @ weights).mean(axis=1)))
    assert scores.mean() == pytest.approx((before @ weights).mean())
    assert after.sum(axis=-1) == pytest.approx(1.0) and after.min() >= 0.0


def test_models_too_far_up_are_moved_down_to_fit() -> None:
    weights = WEIGHTS[0]
    scores = (spaced(np.tile([0.01, 0.99], (4, 9, 1)), weights, 0.2) @ weights).mean(axis=1)
    assert np.diff(np.sort(scores)) == pytest.approx(0.2) and scores.max() == pytest.approx(0.98)


def test_a_profile_keeps_its_shape() -> None:
    weights, before = WEIGHTS[0], world(8, 2, WEIGHTS[0])
    after = with_scores(before, weights, np.array([0.4, 0.7]))
    moved = logits_of(after, weights) - logits_of(before, weights)
    assert np.ptp(moved, axis=1) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("gap", [0.0, -0.01, float("nan"), 0.33])
def test_a_gap_that_does_not_fit_is_refused(gap: float) -> None:
    with pytest.raises(ConfigError, match="4 models that lie one gap apart must fit into 96% of the scores"):
        require_room(gap, 4, WEIGHTS[0])
    require_room(0.32, 4, WEIGHTS[0])
