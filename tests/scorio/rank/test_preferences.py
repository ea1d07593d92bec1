"""Preferences between two answers, compared with other ways to compute them."""

import numpy as np
import pytest
from scipy.optimize import minimize
from thoroughness import first_of

from scorio.rank import preferences

Votes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def draw_votes(seed: int, *, side: float = 0.4, questions: int = 60, shared: float = 0.0) -> Votes:
    """Votes on models of known strength; `shared` sets how much a question favours some of them."""
    rng, number = np.random.default_rng(seed), 4 * questions
    strength = np.repeat(np.linspace(0.6, -0.6, 5) + rng.normal(0.0, shared, (questions, 5)), 4, axis=0)
    a, b = rng.permuted(np.tile(np.arange(5), (number, 1)), axis=1)[:, :2].T
    ahead = strength[np.arange(number), a] - strength[np.arange(number), b] + side
    won = np.where(rng.random(number) < 0.15, 0.5, rng.random(number) < 1.0 / (1.0 + np.exp(-ahead)))
    return a, b, won, np.repeat(np.arange(questions), 4)


def log_likelihood(theta: np.ndarray, votes: Votes) -> float:
    a, b, won, _ = map(np.array, votes)
    logits = theta[a] - theta[b] + theta[5]
    real = won * logits - np.logaddexp(0.0, logits)
    imagined = 0.5 * theta - np.logaddexp(0.0, theta)  # a tie of each with an average model, one for the side
    return float(real.sum() + imagined.sum())


@pytest.mark.parametrize("seed", range(3))
def test_the_strengths_are_those_of_largest_likelihood(seed: int) -> None:
    votes = draw_votes(seed)
    result = preferences(*votes)
    theta = minimize(lambda at: -log_likelihood(at, votes), np.zeros(6), method="BFGS", options={"gtol": 1e-8}).x
    wins = 1.0 / (1.0 + np.exp(theta[:5] - theta[:5, np.newaxis]))
    assert result.score == pytest.approx((wins.sum(axis=1) - 0.5) / 4, abs=1e-6)
    assert result.first == pytest.approx(1.0 / (1.0 + np.exp(-theta[5])), abs=1e-6)
    assert result.order.tolist() == np.argsort(-theta[:5]).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("shared", first_of([1.0, 0.0], 1))
def test_intervals_hold_the_truth_as_often_as_they_say(shared: float) -> None:
    truth = preferences(*draw_votes(10**6, questions=20_000, shared=shared)).score
    held = []
    for seed in range(200):
        result = preferences(*draw_votes(seed, shared=shared))
        held.append((result.lo <= truth) & (truth <= result.hi))
    assert 0.92 <= np.mean(held) <= 0.99  # 1,000 intervals, five of a draw


@pytest.mark.slow
def test_equal_models_are_called_different_in_a_tenth_of_tables_at_most() -> None:
    called = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sides = rng.permuted(np.tile([0, 1], (200, 1)), axis=1)
        result = preferences(sides[:, 0], sides[:, 1], (rng.random(200) < 0.7).astype(float))  # only the side counts
        called += abs(result.z[0, 1]) > 1.645
    assert called <= 45  # expected: 30


def test_questions_whose_votes_repeat_each_other_are_worth_one_vote() -> None:
    rng = np.random.default_rng(5)
    first, won = np.array([0, 1] * 60), (rng.random(120) < 0.6).astype(float)
    once = preferences(first, 1 - first, won)
    copies = preferences(np.repeat(first, 9), np.repeat(1 - first, 9), np.repeat(won, 9), np.repeat(np.arange(120), 9))
    assert copies.hi[0] - copies.lo[0] == pytest.approx(once.hi[0] - once.lo[0], rel=0.05)


def test_a_model_that_always_wins_has_a_finite_score_and_an_interval() -> None:
    result = preferences(
        [0, 1] * 10 + [0, 2] * 10 + [1, 2] * 10, [1, 0] * 10 + [2, 0] * 10 + [2, 1] * 10, [1.0, 0.0] * 30
    )
    assert result.order.tolist() == [0, 1, 2] and 0.9 < result.score[0] < 1.0
    assert result.lo[0] < result.score[0] < result.hi[0] < 1.0 and result.hi[0] - result.lo[0] > 0.05


def test_the_side_is_told_from_the_models_only_where_both_stood_there() -> None:
    assert np.isnan(preferences([0] * 9 + [1] * 9, [1] * 9 + [2] * 9, [1.0, 0.0, 1.0] * 6).first)
    assert 0.9 < preferences([0, 1] * 50, [1, 0] * 50, [1.0] * 100).first < 1.0


@pytest.mark.parametrize(
    ("first", "second", "won", "message"),
    [
        ([0, 2], [1, 3], [1, 1], "must have met"),
        ([0], [0], [1], "itself"),
        ([0], [1], [0.3], "won must be"),
        ([], [], [], "one value for each vote"),
        ([0.5], [1], [1], "whole numbers"),
        ([0, 1], [1], [1], "one value for each vote"),
        ([-1], [1], [1], "whole numbers"),
    ],
)
def test_invalid_votes_are_refused(first: list[float], second: list[int], won: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preferences(first, second, won)
