"""Worlds: categories as sticks, and worlds of the prior."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.study.worlds import (
    WorldPrior,
    category_chances,
    make_sticks,
    prior_chances,
)

WEIGHTS = [np.array(weights) for weights in ([0.0, 1.0], [1.0, 0.0], [0.0, 0.0, 0.5, 1.0], [-1.0, 3.0, 0.25])]


def logits_of(chances: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The logits (..., K - 1) that `category_chances` turns into these probabilities."""
    ordered = chances[..., np.argsort(-weights, kind="stable")]
    after = ordered[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]
    return np.asarray(np.log(ordered[..., :-1]) - np.log(after))


def world(seed: int, models: int, weights: np.ndarray) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(len(weights), 0.7), (models, 9))


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@given(st.integers(0, 10**6))
@settings(max_examples=examples(20), deadline=None)
def test_probabilities_become_logits_and_back(weights: np.ndarray, seed: int) -> None:
    chances = world(seed, 3, weights)
    assert category_chances(logits_of(chances, weights), weights) == pytest.approx(chances, abs=1e-12)


def test_counts_are_experiments_the_best_category_first() -> None:
    weights = np.array([0.0, 1.0, 0.5])
    right, half = make_sticks(np.array([[[5, 2, 3], [1, 0, 0]]]), weights)
    assert right.successes.tolist() == [[2, 0]] and right.trials.tolist() == [[10, 1]]
    assert half.successes.tolist() == [[3, 0]] and half.trials.tolist() == [[8, 1]]


def test_the_likelihood_of_the_sticks_is_that_of_the_categories() -> None:
    rng, weights = np.random.default_rng(1), WEIGHTS[2]
    counts, chances = rng.multinomial(6, world(1, 2, weights)), world(2, 2, weights)
    logits = logits_of(chances, weights)
    by_sticks = sum(
        float((stick.successes * logits[..., k] - stick.trials * np.logaddexp(0.0, logits[..., k])).sum())
        for k, stick in enumerate(make_sticks(counts, weights))
    )
    assert by_sticks == pytest.approx(float((counts * np.log(chances)).sum()))


def test_the_prior_has_the_spreads_that_it_states() -> None:
    """Without doubt about them, the variance of a logit is the sum of the four, and others share some of them."""
    prior = WorldPrior(level=1.0, ability=0.5, difficulty=2.0, taste=0.8, doubt=0.0)
    weights, rng = WEIGHTS[0], np.random.default_rng(3)
    logits = np.array([logits_of(draw, weights)[..., 0] for draw in prior_chances(prior, 2, 2, weights, 6_000, rng)])
    cov = np.cov(logits.reshape(-1, 4).T)
    level, ability, difficulty, taste = 1.0, 0.25, 4.0, 0.64
    assert np.diag(cov) == pytest.approx(level + ability + difficulty + taste, rel=0.07)
    assert cov[0, 1] == pytest.approx(level + ability, rel=0.1), "one model on two questions"
    assert cov[0, 2] == pytest.approx(level + difficulty, rel=0.07), "two models on one question"
    assert cov[0, 3] == pytest.approx(level, rel=0.15)
