"""The self-centred prior and paired differences: by hand, by simulation, and the guaranteed error rates."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import norm, poisson

from scorio.counts import Counts
from scorio.moments import average_moments
from scorio.sinf import (
    Coupling,
    WangTsiatis,
    coupling,
    difference_values,
    paired_counts,
    paired_moments,
    self_centred_average_moments,
    self_centred_avg,
    self_centred_prior,
    variance_against,
)

BINARY = np.array([0.0, 1.0])


def moments(n: np.ndarray, w: np.ndarray = BINARY):
    return self_centred_average_moments(n, n + self_centred_prior(n, w)[..., None, :], w)


def searched_concentration(n: np.ndarray) -> float:
    """The most probable s by a search over the Dirichlet-multinomial likelihood in gamma functions."""
    share = (n.sum(axis=0) + 1 / n.shape[1]) / (n.sum() + 1)
    trials = n.sum(axis=1)

    def cost(x: float) -> float:
        s = np.exp(x)
        likelihood = (gammaln(s) - gammaln(s + trials)).sum() + (gammaln(s * share + n) - gammaln(s * share)).sum()
        return -(likelihood + x - 2 * np.log1p(s))

    grid = np.linspace(-8.5, 13.5, 200)
    best = grid[np.argmin([cost(x) for x in grid])]
    return float(np.exp(minimize_scalar(cost, bounds=(best - 0.2, best + 0.2), options={"xatol": 1e-9}).x))


@pytest.mark.parametrize("seed", range(6))
def test_the_fit_is_the_top_of_the_likelihood_on_ragged_counts_of_four_categories(seed: int):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(rng.uniform(0.1, 2.0, 4), size=40)
    n = np.stack([rng.multinomial(rng.integers(1, 40), share) for share in shares])
    n[:, 0] += n[:, 3] * (seed % 2)
    n[:, 3] *= 1 - seed % 2  # in every second world a category never occurs
    assert self_centred_prior(n).sum() == pytest.approx(searched_concentration(n), rel=1e-4)


@pytest.mark.parametrize("w", [BINARY, np.array([0.0, 0.3, 1.0])])
def test_one_trial_of_each_question_has_the_variance_of_all_answers_together(w: np.ndarray):
    """Whether questions are alike cannot be seen, and any other assumption could give too small a sigma."""
    answers = np.random.default_rng(2).integers(0, len(w), 500)
    average, var = moments(np.eye(len(w), dtype=np.int64)[answers], w)
    assert average == pytest.approx(w[answers].mean())
    assert var == pytest.approx(w[answers].var() / 500 + 3.0 / 500**2, rel=0.005)


@pytest.mark.parametrize("repeated", [1, 5, 20, 100, 250])
@pytest.mark.parametrize("p", [0.5, 0.9])
def test_a_few_repeated_trials_give_no_small_sigma(repeated: int, p: float):
    """With 1,000 questions that are alike; the prior by itself would halve the variance."""
    rng = np.random.default_rng(repeated)
    trials = np.ones((40, 1000), dtype=np.int64)
    trials[:, :repeated] = 2
    right = rng.binomial(trials, p)
    _, var = moments(np.stack([trials - right, right], axis=-1))
    assert np.median(var) >= 0.96 * p * (1.0 - p) * (1.0 / trials[0]).mean() / 1000


@pytest.mark.parametrize("w", [None, np.array([0.0, 0.5, 1.0])])
def test_no_models_give_no_prior(w: np.ndarray | None):
    assert self_centred_prior(np.zeros((0, 5, 3), int), w).shape == (0, 3)


@given(
    n=arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(2, 4)), elements=st.integers(0, 30))
)
def test_any_counts_give_a_finite_positive_sigma(n: np.ndarray):
    n[..., 0] += n.sum(axis=-1) == 0
    mean, var = moments(n, np.linspace(0.0, 1.0, n.shape[-1]))
    assert np.all(np.isfinite(var)) and np.all(var > 0.0)
    assert np.all((mean >= 0.0) & (mean <= 1.0))


def test_weights_move_and_scale_sigma_as_they_should():
    n = np.random.default_rng(6).multinomial(9, [0.2, 0.3, 0.5], size=30)
    w = np.array([0.0, 0.4, 1.0])
    assert moments(n, 3.0 * w - 5.0).var == pytest.approx(9.0 * moments(n, w).var)
    assert moments(n[:, ::-1], w[::-1]).var == pytest.approx(moments(n, w).var)


def test_a_model_that_never_failed_is_not_certain():
    n = np.stack([np.zeros((30, 2), dtype=int) + [0, trials] for trials in (1, 8, 80)])
    sigma = np.sqrt(moments(n).var)
    one_failure = 1 / (30 * np.array([1, 8, 80]))
    assert np.all(sigma > 1.5 * one_failure)
    assert np.all(sigma < 3.0 * one_failure)


@pytest.mark.parametrize("mean", [0.2, 0.5])
@pytest.mark.parametrize("trials", [4, 8, 20, 80])
def test_the_variance_is_calibrated_on_aime_like_questions(mean: float, trials: int):
    """E[sigma^2] over the true variance is 1, but for the three further deviating trials: 1 + 3/(M N v).

    With M = 30 and a mean of 0.5: 1.26, 1.13, 1.05 and 1.01; the uniform prior has 2.3, 1.7, 1.3 and 1.1.
    """
    rng = np.random.default_rng(8)
    p = rng.beta(0.6 * mean, 0.6 * (1 - mean), size=(2000, 30))
    right = rng.binomial(trials, p)
    n = np.stack([trials - right, right], axis=-1)
    v = (p * (1 - p)).mean()
    truth = v / trials / 30
    empirical, uniform = moments(n).var.mean() / truth, average_moments(n, n + 1.0, BINARY).var.mean() / truth
    assert empirical - 3 / (30 * trials * v) == pytest.approx(1.0, abs=0.03)
    assert empirical < uniform


def test_it_is_calibrated_for_a_rubric_on_ragged_counts():
    rng = np.random.default_rng(9)
    w = np.array([0.0, 0.2, 0.5, 1.0])
    pi = rng.dirichlet([0.2, 0.1, 0.1, 0.3], size=(800, 30))
    trials = np.where(np.arange(30) % 2 == 0, 8, 20) * np.ones((800, 1), dtype=int)
    n = rng.multinomial(trials, pi)
    truth = ((pi @ w**2 - (pi @ w) ** 2) / trials).sum(axis=1).mean() / 30**2
    assert 0.98 <= moments(n, w).var.mean() / truth <= 1.25


ALIKE_BESIDE = "right answers are alike in how sure they are, on questions that are nearly always right or wrong"
FORM_DIFFERS = "questions differ in what is worth little, and are alike in what is worth most"


@pytest.mark.parametrize("case", [ALIKE_BESIDE, FORM_DIFFERS])
@pytest.mark.parametrize("trials", [8, 20])
def test_it_is_calibrated_where_distinctions_differ_in_how_alike_questions_are(case: str, trials: int):
    """Within 6%, except for the three extra trials; one common concentration is up to 49% above or 16% below."""
    rng = np.random.default_rng(11)
    shares = rng.beta(0.3, 0.3, (800, 30))
    if case == ALIKE_BESIDE:
        w, pi = (
            np.array([0.0, 0.2, 0.7, 1.0]),
            np.stack([0.3 * (1 - shares), 0.7 * (1 - shares), 0.1 * shares, 0.9 * shares], -1),
        )
    else:
        w, pi = np.array([0.0, 0.9, 1.0]), np.stack([np.full_like(shares, 0.3), 0.7 * shares, 0.7 * (1 - shares)], -1)
    n = rng.multinomial(trials, pi)
    spread = (pi @ w**2 - (pi @ w) ** 2).mean()

    def off(mean_var: float) -> float:
        return abs(mean_var / (spread / trials / 30) - 3 / (30 * trials * spread) - 1.0)

    assert off(moments(n, w).var.mean()) < 0.06
    of_all = self_centred_average_moments(n, n + self_centred_prior(n)[..., None, :], w)
    assert off(of_all.var.mean()) > 0.06


def test_the_concentration_is_that_of_trials_above_and_below_the_average():
    rng = np.random.default_rng(12)
    n, w = rng.multinomial(9, rng.dirichlet([0.5, 0.5, 1.0, 1.0], size=25)), np.array([0.0, 1.0, 0.2, 0.7])
    average = (n.sum(axis=0) + 0.25) / (n.sum() + 1) @ w
    halves = np.stack([n[:, w < average].sum(axis=1), n[:, w >= average].sum(axis=1)], axis=1)
    assert self_centred_prior(n, w).sum() == pytest.approx(searched_concentration(halves), rel=1e-4)
    two = n[:, :2]
    np.testing.assert_array_equal(self_centred_prior(two, w[:2]), self_centred_prior(two))
    assert np.all(np.isfinite(self_centred_prior(n, np.ones(4))))


def test_the_front_door_takes_counts_and_counts_prior_outcomes_as_trials():
    rng = np.random.default_rng(10)
    before, after = rng.integers(0, 2, (30, 3)), rng.integers(0, 2, (30, 5))
    with_prior = self_centred_avg(Counts.from_outcomes(after, R0=before))
    assert with_prior == self_centred_avg(Counts.from_outcomes(np.hstack([before, after])))
    with pytest.raises(ValueError, match="at least one trial of every question"):
        self_centred_avg(Counts.from_ragged([[0, 1], [-1, -1]]))


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
    first, second = np.random.default_rng(1).integers(0, 4, (2, 7, 9))  # 3 is no category
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
