"""Paired differences, compared with counting by hand, the spread of simulations, and the guaranteed error rates."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import norm, poisson

from scorio.sinf import (
    Coupling,
    WangTsiatis,
    coupling,
    difference_values,
    paired_counts,
    paired_moments,
    variance_against,
)

BINARY = np.array([0.0, 1.0])
QUESTIONS = 30


def test_every_pair_of_categories_has_its_difference() -> None:
    w = np.array([0.0, 0.1, 0.3, 1.0])
    differences = difference_values(w)
    for first in range(4):
        for second in range(4):
            assert differences.values[differences.category[first, second]] == pytest.approx(
                w[first] - w[second], abs=1e-11
            )
    assert len(differences.values) == 13  # no two of the twelve are alike, and 0
    assert np.array_equal(differences.values, -differences.values[::-1])
    assert len(difference_values(np.array([0.1, 0.2, 0.3])).values) == 5  # whatever 0.3 - 0.2 is in binary


def test_counts_are_those_by_hand() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 4, (2, 7, 9))  # 3 is no category
    w = np.array([0.0, 0.5, 1.0])
    differences = difference_values(w)
    counts = paired_counts(first, second, differences)
    for question in range(7):
        both = zip(first[question].tolist(), second[question].tolist(), strict=True)
        by_hand = Counter(
            float(w[category_a] - w[category_b]) for category_a, category_b in both if max(category_a, category_b) < 3
        )
        assert counts[question].tolist() == [by_hand[value] for value in differences.values.tolist()]


def worlds(kind: str, runs: int, trials: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes (runs, questions, trials) of two models of equal chances."""
    chance = rng.beta(0.6, 0.6, (runs, QUESTIONS, 1))
    noise = rng.random((runs, QUESTIONS, trials))
    if kind == "apart":
        return noise < chance, rng.random(noise.shape) < chance
    if kind == "against":
        return noise < chance, noise > 1.0 - chance
    share = {"close": 0.08, "closer": 0.01, "closest": 0.001}[kind]
    differ, side, same = rng.random(noise.shape) < share, rng.random(noise.shape) < 0.5, noise < chance
    return np.where(differ, side, same), np.where(differ, ~side, same)


def counted(first: np.ndarray, second: np.ndarray, trials: int) -> np.ndarray:
    ahead, behind = (is_ahead[..., :trials].sum(-1) for is_ahead in (first & ~second, second & ~first))
    return np.stack([behind, trials - ahead - behind, ahead], axis=-1)


@pytest.mark.parametrize("kind", ["apart", "against", "close", "closer"])
@pytest.mark.parametrize("trials", [4, 12])
def test_the_paired_variance_matches_the_variance_of_differences(kind: str, trials: int) -> None:
    """Except for the three extra maximally different trials, which are stated separately."""
    first, second = worlds(kind, 1500, trials, np.random.default_rng(2))
    moments = paired_moments(counted(first, second, trials), BINARY, difference_values(BINARY).values, 80)
    assert moments.mean == pytest.approx((first * 1.0 - second).mean(axis=(1, 2)), abs=1e-12)
    unseen = 3.0 / (QUESTIONS * trials) ** 2
    prior = 1.2 if kind == "closer" and trials == 4 else 1.0  # a further trial of all kinds, beside one or two seen
    assert (moments.var - unseen).mean() / moments.mean.var() == pytest.approx(prior, rel=0.12)


def ever_called(kind: str, runs: int, seed: int) -> float:
    """The share of runs of two equal models that the boundary at 95% calls at one of its looks up to 80 trials."""
    rng, shape, values = np.random.default_rng(seed), WangTsiatis(0.25, 0.05), difference_values(BINARY).values
    first, second = worlds(kind, runs, 80, rng)
    called = np.zeros(runs, dtype=bool)
    for trials in (4, 5, 6, 8, 10, 13, 16, 20, 26, 33, 42, 54, 66, 80):
        moments = paired_moments(counted(first, second, trials), BINARY, values, 80)
        assert moments.noise_at_horizon / moments.noise == pytest.approx(trials / 80)
        boundary = shape.critical(0.1) * (trials / 80) ** -0.25
        called |= np.abs(moments.mean) >= boundary * np.sqrt(moments.var)
    return float(called.mean())


@pytest.mark.parametrize("kind", ["apart", "against", "close", "closer", "closest"])
def test_exact_ties_are_called_no_more_often_than_promised(kind: str) -> None:
    assert ever_called(kind, 600, 3) <= 0.1 + 2.0 * np.sqrt(0.1 * 0.9 / 600)


def test_a_gate_at_its_margin_is_passed_no_more_often_than_promised() -> None:
    """Every difference counts against the build, and differences are rare: nothing shows before the first one."""
    delta, trials, runs = 0.02, 8, 4000
    rng, values = np.random.default_rng(5), difference_values(BINARY).values
    worse = rng.random((runs, QUESTIONS, trials)) < delta
    passed = np.zeros(runs, dtype=bool)
    shape = WangTsiatis(0.25, 0.5)
    for now in range(4, trials + 1):
        moments = paired_moments(counted(np.zeros_like(worse), worse, now), BINARY, values, trials)
        passed |= moments.mean + delta >= shape.critical(0.1) * (now / trials) ** -0.25 * np.sqrt(moments.var)
    assert passed.mean() <= 0.05


def test_identical_outcomes_give_no_difference_and_no_certainty() -> None:
    n = np.zeros((QUESTIONS, 3), dtype=int)
    n[:, 1] = 80
    moments = paired_moments(n, BINARY, difference_values(BINARY).values, 80)
    assert moments.mean == 0.0
    assert 3.0 / (QUESTIONS * 80) ** 2 < moments.var < 4.5 / (QUESTIONS * 80) ** 2


def test_swapping_the_models_changes_only_the_sign() -> None:
    rng, w = np.random.default_rng(6), np.array([0.0, 0.2, 1.0])
    n = rng.integers(0, 5, (QUESTIONS, len(difference_values(w).values))) + 1
    forward, backward = (paired_moments(counts, w, difference_values(w).values, 80) for counts in (n, n[:, ::-1]))
    assert forward.mean == pytest.approx(-backward.mean, abs=1e-12)
    assert (forward.var, forward.noise) == (
        pytest.approx(backward.var, rel=1e-9),
        pytest.approx(backward.noise, rel=1e-9),
    )


def test_a_question_without_shared_trials_leaves_everything_open() -> None:
    n = np.ones((QUESTIONS, 3), dtype=int)
    n[4] = 0
    moments = paired_moments(n, BINARY, difference_values(BINARY).values, 80)
    assert np.isnan(moments.mean) and np.isinf(moments.var) and np.isinf(moments.noise)


def coupled(first: np.ndarray, second: np.ndarray) -> Coupling:
    """Of outcomes (questions, trials)."""
    return coupling(np.repeat(np.arange(len(first)), first.shape[1]), first.ravel() * 1.0, second.ravel() * 1.0)


def test_coupling_is_the_formula_question_by_question() -> None:
    rng = np.random.default_rng(4)
    both, numbers = rng.normal(size=(2, 9, 5)), rng.integers(0, 6, 9)
    together = apart = noise = 0.0
    for question, n in enumerate(numbers.tolist()):
        if n > 1:
            x, y = both[:, question, :n]
            together += np.var(x - y, ddof=1) / n
            apart += (np.var(x, ddof=1) + np.var(y, ddof=1)) / n
            noise += np.var(x, ddof=1) * np.var(y, ddof=1) / (n * n * (n - 1))
    present = np.arange(5) < numbers[:, np.newaxis]
    result = coupling(np.nonzero(present)[0], both[0][present], both[1][present])
    assert result.trials == numbers[numbers > 1].sum()
    assert (result.variance, result.sigma) == pytest.approx((together / apart, 2.0 * np.sqrt(noise) / apart))


def test_coupling_of_identical_trials_is_unknown() -> None:
    assert np.isnan(coupled(np.ones((QUESTIONS, 4)), np.ones((QUESTIONS, 4))).variance)


@pytest.mark.parametrize("trials", [0, 1])
def test_coupling_needs_two_trials_of_a_question(trials: int) -> None:
    assert coupled(np.ones((QUESTIONS, trials)), np.zeros((QUESTIONS, trials))).trials == 0


@pytest.mark.parametrize("expected", [6.0, 9.0, 16.0, 30.0])
def test_absent_rare_differences_count_as_a_poisson_count(expected: float) -> None:
    """Near calls, the exact probability of so few differences is hardly larger than z states, and not far smaller."""
    trials, questions = 400, 25
    w = np.array([0.0, 1.0])
    values = difference_values(w).values
    edge = expected / (trials * questions)
    for came in range(int(expected / 2) + 1):
        n = np.zeros((questions, 3), dtype=int)
        n[:, 1] = trials
        n[:came, 0], n[:came, 1] = 1, trials - 1
        moments = paired_moments(n, w, values, trials)
        z = (float(moments.mean) + edge) / np.sqrt(float(variance_against(moments, np.array(edge), values)))
        exact = -norm.ppf(poisson.cdf(came, expected))
        assert exact < 2.0 or exact - 0.9 < z < exact + 0.1
        assert z <= (float(moments.mean) + edge) / np.sqrt(float(moments.var)) + 1e-9


def test_an_edge_never_reduces_the_variance() -> None:
    rng = np.random.default_rng(4)
    w = np.array([0.0, 0.5, 1.0])
    values = difference_values(w).values
    n = rng.integers(1, 9, (7, 12, len(values)))
    moments = paired_moments(n, w, values, 80)
    assert variance_against(moments, np.zeros(7), values).tolist() == moments.var.tolist()
    for edge in (-0.02, 0.02, 0.6):
        assert np.all(variance_against(moments, np.full(7, edge), values) >= moments.var)
    n[3, 5] = 0
    assert np.isinf(variance_against(paired_moments(n, w, values, 80), np.full(7, 0.02), values)[3])
