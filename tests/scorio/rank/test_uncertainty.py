"""z-scores, probabilities and tiers of the paper, and preferences between two answers, computed in other ways."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from thoroughness import first_of

from scorio.rank import pairwise, preferences, rank_with_uncertainty

# The biased-coin mimics of the paper, LLM_11 (best) to LLM_1, with the sigma at which its printed z of about 1.14
# between LLM_10 and LLM_9 at N = 80 holds.
MIMICS = [0.7327, 0.6213, 0.608, 0.5276, 0.5418, 0.4466, 0.3642, 0.3642, 0.3604, 0.2545, 0.2332]
SIGMA = (0.6213 - 0.608) / 1.14 / 2**0.5

SCORES = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 20).map(lambda x: x / 20), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.2]), min_size=n, max_size=n),
    )
)


def one_z(mu: list[float], sigma: list[float], i: int, j: int) -> float:
    """The paper's z with its sign, written out; 0/0 is a tie."""
    sd = (sigma[i] ** 2 + sigma[j] ** 2) ** 0.5
    gap = mu[i] - mu[j]
    return gap / sd if sd else float(np.sign(gap)) * float("inf") if gap else 0.0


def test_z_of_table_1_and_at_the_threshold() -> None:
    tiers = rank_with_uncertainty(MIMICS, [SIGMA] * 11)
    assert tiers.ranking.tolist() == [1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 7]
    assert tiers.order.tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10]
    assert tiers.z[1] == pytest.approx(1.14)
    assert rank_with_uncertainty([1.0, 0.0], [0.6, 0.8], threshold=1.0).ranking.tolist() == [1, 2]
    assert rank_with_uncertainty([1.0, 0.0], [0.6, 0.8], threshold=1.0001).ranking.tolist() == [1, 1]


@given(SCORES, st.sampled_from([0.5, 1.645, 3.0]))
def test_tiers_follow_the_rule(scores: tuple[list[float], list[float]], threshold: float) -> None:
    mu, sigma = scores
    tiers = rank_with_uncertainty(mu, sigma, threshold)
    order = sorted(range(len(mu)), key=lambda model: -mu[model])
    rank = 1
    for place, model in enumerate(order):
        if place and one_z(mu, sigma, order[place - 1], model) >= threshold:
            rank += 1
        assert tiers.ranking[model] == rank
    assert tiers.order.tolist() == order


@given(SCORES)
def test_every_pair_is_the_formula(scores: tuple[list[float], list[float]]) -> None:
    mu, sigma = scores
    _, _, z, rho = pairwise(mu, sigma)
    models = range(len(mu))
    assert z == pytest.approx(np.array([[one_z(mu, sigma, i, j) for j in models] for i in models]))
    assert np.array_equal(z, -z.T)
    assert rho.ravel() == pytest.approx([NormalDist().cdf(min(abs(x), 40.0)) for x in z.ravel()], abs=1e-12)


def test_a_batch_is_many_leaderboards() -> None:
    rng = np.random.default_rng(4)
    mu, sigma = rng.random((3, 5)), rng.random((3, 5))
    assert np.array_equal(pairwise(mu, sigma).z, [pairwise(m, s).z for m, s in zip(mu, sigma, strict=True)])


@pytest.mark.parametrize(
    ("mu", "sigma", "threshold", "message"),
    [
        ([0.1, 0.2], [0.1], 1.645, r"mu and sigma must hold one value for each model, got shapes \(2,\) and \(1,\)"),
        ([], [], 1.645, "mu and sigma must hold one value"),
        ([[0.1]], [[0.1]], 1.645, r"mu must be a vector .* got shape \(1, 1\)"),
        ([0.1, float("nan")], [0.1, 0.1], 1.645, "mu must hold finite numbers, got nan"),
        ([0.1, 0.2], [0.1, -0.5], 1.645, "sigma must not be negative, got -0.5"),
        ([0.1, 0.2], [0.1, 0.1], 0.0, "threshold must be above 0, got 0.0"),
        ([0.1, 0.2], [0.1, 0.1], float("nan"), "threshold must be a finite number, got nan"),
    ],
)
def test_bad_input_is_named(mu: list[float], sigma: list[float], threshold: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_with_uncertainty(mu, sigma, threshold)


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
    first, won = np.array([0, 1] * 60), (np.random.default_rng(5).random(120) < 0.6).astype(float)
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
