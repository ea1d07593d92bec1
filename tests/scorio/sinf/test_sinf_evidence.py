"""Comparisons, information, loss, multiplicity, futility and the single-look helpers, against their definitions."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from scorio.sinf import (
    ci_from_mu_sigma,
    compare,
    ebh,
    expected_loss,
    holm,
    holm_adjusted,
    information_fraction,
    predictive_power,
    ranking_confidence,
    sampled_covariance,
    sampled_variance,
    should_stop,
    should_stop_top1,
    smallest_delta,
    suggest_next_allocation,
    tied,
    trial_variance,
    trials_needed,
    variance_at,
)


def test_z_has_the_sign_of_the_difference_and_rho_is_the_order_confidence():
    pair = compare(np.array([0.6, 0.4]), 0.03**2, np.array([0.5, 0.5]), 0.04**2)
    np.testing.assert_allclose(pair.difference, [0.1, -0.1])
    np.testing.assert_allclose(pair.sigma, 0.05)
    np.testing.assert_allclose(pair.z, [2.0, -2.0])
    np.testing.assert_allclose(pair.rho, norm.cdf(2.0))


def test_without_any_variance_a_difference_is_certain_and_a_tie_is_a_tie():
    pair = compare(np.array([0.5, 0.5, 0.4]), 0.0, np.array([0.4, 0.5, 0.5]), 0.0)
    np.testing.assert_array_equal(pair.z, [np.inf, 0.0, -np.inf])
    np.testing.assert_array_equal(pair.rho, [1.0, 0.5, 1.0])


def test_the_sampled_variance_is_that_of_a_mean_and_needs_two_questions_or_clusters():
    d = np.random.default_rng(0).normal(size=(4, 7))
    np.testing.assert_allclose(sampled_variance(d), d.var(axis=1, ddof=1) / 7)
    d = np.random.default_rng(1).normal(size=(3, 6))
    np.testing.assert_allclose(sampled_variance(d, np.array([3, 1, 0, 2, 5, 4])), sampled_variance(d))
    assert sampled_variance(np.array([0.3])) == np.inf
    assert sampled_variance(np.array([0.3, 0.1]), np.array([0, 0])) == np.inf
    np.testing.assert_array_equal(sampled_covariance(np.array([[0.3], [0.4]])), [[np.inf, 0.0], [0.0, np.inf]])


def test_clustered_variance_covers_cluster_effects():
    """Mean of the estimate over worlds with cluster effects against the true variance of the mean."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(40), 3)
    d = rng.normal(size=(4000, 40))[:, clusters] + rng.normal(size=(4000, 120))
    truth = d.mean(axis=1).var()
    assert sampled_variance(d, clusters).mean() == pytest.approx(truth, rel=0.08)
    assert sampled_variance(d).mean() < 0.6 * truth


@pytest.mark.parametrize("clusters", [None, np.arange(50) % 7], ids=["alone", "in clusters"])
def test_covariances_say_what_differences_do(clusters: np.ndarray | None):
    values = np.random.default_rng(5).random((6, 50))
    shared = sampled_covariance(values, clusters)
    first, second = np.triu_indices(6, k=1)
    of_pairs = shared[first, first] + shared[second, second] - 2 * shared[first, second]
    np.testing.assert_allclose(of_pairs, sampled_variance(values[first] - values[second], clusters), rtol=1e-9)
    np.testing.assert_allclose(np.diag(shared), sampled_variance(values, clusters))


@given(
    trials=st.integers(1, 80),
    v=st.lists(st.floats(0.01, 0.25), min_size=1, max_size=6),
    u=st.lists(st.floats(0.01, 0.25), min_size=1, max_size=6),
)
def test_equal_trials_give_their_share_of_the_horizon_whatever_the_variances(trials: int, v: list, u: list):
    sums = [variance_at(np.array(v), n) + variance_at(np.array(u), n) for n in (80, trials)]
    assert information_fraction(*sums) == pytest.approx(trials / 80, rel=1e-12)


def test_the_model_with_few_trials_holds_the_pair_back():
    v = np.full(30, 0.2)
    few, many = variance_at(v, 4), variance_at(v, 80)
    assert information_fraction(2 * many, few + many) == pytest.approx(2 / 80 / (1 / 4 + 1 / 80))
    assert information_fraction(2 * many, np.array(np.inf)) == 0.0


def test_trial_variance_is_the_variance_of_a_draw_from_the_predictive_shares():
    nu, w = np.array([[1.0, 4.0, 2.0], [9.0, 1.0, 1.0]]), np.array([0.0, 0.5, 1.0])
    share = nu / nu.sum(axis=1, keepdims=True)
    expected = share @ w**2 - (share @ w) ** 2
    np.testing.assert_allclose(trial_variance(nu, w), expected)
    assert np.all(trial_variance(np.array([[81.0, 1.0]]), np.array([0.0, 1.0])) > 0.01)


@pytest.mark.parametrize(("d", "s"), [(0.02, 0.03), (-0.02, 0.03), (0.0, 0.01), (0.1, 0.02)])
def test_expected_loss_is_the_mean_of_the_rivals_advantage(d: float, s: float):
    expected, _ = quad(lambda x: -x * norm.pdf(x, d, s), -1.0, 0.0, points=[min(d, 0.0)], epsabs=1e-13)
    assert expected_loss(d, s) == pytest.approx(expected, abs=1e-10)


def test_without_uncertainty_expected_loss_is_the_loss_itself():
    np.testing.assert_array_equal(expected_loss(np.array([0.2, 0.0, -0.2]), np.zeros(3)), [0.0, 0.0, 0.2])


P_VALUES = st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.0124, 0.02, 0.04, 0.3, 1.0]), min_size=1, max_size=5)


def closed_testing(p: list[float], level: float) -> list[bool]:
    """Rejected: every intersection hypothesis that contains it has a p-value below its Bonferroni level."""
    places = range(len(p))
    sets = [s for size in range(1, len(p) + 1) for s in combinations(places, size)]
    return [all(min(p[j] for j in s) <= level / len(s) for s in sets if i in s) for i in places]


@given(p=P_VALUES)
def test_holm_is_closed_testing_with_bonferroni(p: list[float]):
    assert holm(np.array(p), 0.05).tolist() == closed_testing(p, 0.05)


def test_adjusted_p_values():
    np.testing.assert_allclose(holm_adjusted(np.array([0.01, 0.9, 0.02, 0.03])), [0.04, 0.9, 0.06, 0.06])
    assert holm(np.empty(0), 0.05).shape == (0,)


@given(e=st.lists(st.sampled_from([0.0, 0.5, 5.0, 20.0, 26.0, 100.0, float("inf")]), min_size=1, max_size=6))
def test_ebh_rejects_the_largest_set_whose_members_all_reach_m_over_k_alpha(e: list[float]):
    alpha, m = 0.05, len(e)
    best = max((k for k in range(m + 1) if k == 0 or sum(x >= m / (k * alpha) for x in e) >= k), default=0)
    rejected = ebh(np.array(e), alpha)
    assert rejected.sum() == best
    assert best == 0 or min(np.array(e)[rejected]) >= max([x for x, r in zip(e, rejected, strict=True) if not r] or [0])


def test_ebh_controls_the_false_discovery_rate():
    rng, runs, m, nulls = np.random.default_rng(4), 4000, 20, 15
    z = rng.standard_normal((runs, m))
    z[:, nulls:] += 3.5
    e = np.exp(2.5 * z - 2.5**2 / 2)
    false = np.array([ebh(row, 0.1)[:nulls].sum() / max(ebh(row, 0.1).sum(), 1) for row in e])
    power = np.mean([ebh(row, 0.1)[nulls:].mean() for row in e])
    assert false.mean() <= 0.1
    assert power == pytest.approx(0.5, abs=0.3)


BOUND = 2.1


@pytest.mark.parametrize(
    ("z", "t", "sigma", "delta", "horizon"),
    [
        (0.4, 0.3, 0.020, 0.0, 1.0),
        (1.6, 0.5, 0.020, 0.0, 1.0),
        (-0.7, 0.3, 0.020, 0.030, 1.0),
        (0.2, 0.5, 0.020, 0.034, 1.0),
        (1.0, 0.2, 0.020, 0.028, 0.6),
        (0.3, 0.5, 0.020, 0.070, 1.0),
    ],
)
def test_power_is_the_share_of_simulated_futures_that_settle(z, t, sigma, delta, horizon):
    """Draw the truth from the flat-prior posterior, then the remaining data, then look once at the horizon."""
    rng, runs = np.random.default_rng(5), 200_000
    d, unit = z * sigma, sigma**2 * t  # variance of a difference at information t is unit/t
    truth = rng.normal(d, sigma, runs)
    final = (t * d + (horizon - t) * rng.normal(truth, np.sqrt(unit / (horizon - t)))) / horizon
    s = np.sqrt(unit / horizon)
    settled = (np.abs(final) >= BOUND * s) | ((delta > 0) & tied(final, s, BOUND, delta))
    power = predictive_power(np.array(z), np.array(t), BOUND, np.array(sigma), delta, horizon)
    assert power == pytest.approx(settled.mean(), abs=4 * 0.5 / np.sqrt(runs))


def test_the_formula_of_the_design_without_a_zone():
    z, q = 1.3, 4.0
    expected = norm.cdf((z * 2 - BOUND) / 3**0.5) + norm.cdf((-z * 2 - BOUND) / 3**0.5)
    assert predictive_power(np.array(-z), np.array(1 / q), BOUND) == pytest.approx(expected)


def test_power_says_of_what_is_certain_or_at_the_horizon_whether_it_is_settled():
    z = np.array([2.2, -2.2, 1.0, 0.0, 1.0])
    sigma = np.array([0.01, 0.01, 0.01, 0.01, 0.0])
    np.testing.assert_array_equal(predictive_power(z, np.array(1.0), BOUND, sigma, 0.03), [1, 1, 0, 1, 1])
    np.testing.assert_array_equal(predictive_power(z, np.array(1.7), BOUND), [1, 1, 0, 0, 0])
    zero = np.zeros(2)
    np.testing.assert_allclose(predictive_power(np.array([np.inf, 0.0]), np.array(0.5), BOUND, zero, 0.01), 1.0)
    with pytest.raises(ValueError, match="delta > 0 needs sigma"):
        predictive_power(np.array(1.0), np.array(0.5), BOUND, delta=0.02)


def test_zones_ties_and_trials_needed_meet_the_bound():
    needed = trials_needed(np.array([1.0, -2.0, 0.0]), np.array([10.0, 10.0, 10.0]), 2.0)
    np.testing.assert_allclose(needed, [40.0, 10.0, np.inf])
    delta = smallest_delta(np.array(0.013), BOUND)
    assert tied(0.0, 0.013, BOUND, delta)
    assert not tied(0.0, 0.013, BOUND, 0.999 * delta)
    d, s = np.array([0.01, -0.01, 0.01, 0.03, 0.0]), np.array([0.01, 0.01, 0.03, 0.0, 0.0])
    np.testing.assert_array_equal(tied(d, s, 2.0, 0.03), [True, True, False, True, True])
    assert not tied(0.0, 0.0, np.inf, 0.03), "no tie before the first look that may call"


MU, SIGMA = [0.55, 0.62, 0.60, 0.40], [0.02, 0.02, 0.015, 0.05]


def test_ranking_confidence_of_a_pair_and_of_an_exact_tie():
    assert ranking_confidence(0.6, 0.03, 0.55, 0.02) == pytest.approx((0.9172410706512647, 1.386750490563071))
    assert ranking_confidence(0.55, 0.02, 0.6, 0.03) == pytest.approx((0.9172410706512647, 1.386750490563071))
    assert ranking_confidence(0.5, 0.0, 0.4, 0.0) == (1.0, math.inf)
    assert ranking_confidence(0.5, 0.0, 0.5, 0.0) == (0.5, 0.0)
    assert should_stop_top1([0.5, 0.5], [0.0, 0.0], method="zscore")["ambiguous"] == [1]
    assert suggest_next_allocation([0.7, 0.7, 0.2], [0.0, 0.0, 0.0], method="zscore") == (0, 1)


def test_intervals_are_clipped_and_never_inverted():
    assert ci_from_mu_sigma(0.6, 0.03) == pytest.approx((0.5412010804637983, 0.6587989195362016))
    assert ci_from_mu_sigma(0.97, 0.03, 0.9, (0.0, 1.0)) == pytest.approx((0.9206543911914558, 1.0))
    assert ci_from_mu_sigma(1.2, 0.01, clip=(0.0, 1.0)) == (1.0, 1.0)
    assert ci_from_mu_sigma(-0.2, 0.01, clip=(0.0, 1.0)) == (0.0, 0.0)


def test_should_stop_on_either_width():
    assert should_stop(0.01, max_half_width=0.02) is True
    assert should_stop(0.01, max_ci_width=0.03) is False
    assert should_stop(0.01, confidence=0.8, max_ci_width=0.03) is True


@pytest.mark.parametrize(
    ("method", "confidence", "ambiguous"),
    [
        ("ci_overlap", 0.95, [0, 2]),
        ("ci_overlap", 0.90, [2]),
        ("ci_overlap", 0.50, [2]),
        ("zscore", 0.95, [2]),
        ("zscore", 0.50, []),
    ],
)
def test_top1(method, confidence: float, ambiguous: list[int]):
    decision = should_stop_top1(MU, SIGMA, confidence, method)
    assert decision == {"stop": not ambiguous, "leader": 1, "ambiguous": ambiguous}
    assert suggest_next_allocation(MU, SIGMA, confidence, method) == (1, 2)


def test_a_model_alone_is_the_best_and_no_leader_is_its_own_rival():
    assert should_stop_top1([0.3], [0.1]) == {"stop": True, "leader": 0, "ambiguous": []}
    with pytest.raises(ValueError, match="at least two models.*got 1"):
        suggest_next_allocation([0.3], [0.1])
    assert suggest_next_allocation([0.9, 0.5, 0.7], [0.0, 0.0, 0.0], method="zscore") == (0, 1)
    assert suggest_next_allocation([0.9, 0.9], [0.1, 0.0]) == (0, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ranking_confidence(0.5, -0.1, 0.5, 0.1), "sigma_a must be >= 0, got -0.1"),
        (lambda: ranking_confidence(float("nan"), 0.1, 0.5, 0.1), "mu_a must be a finite number, got nan"),
        (lambda: ci_from_mu_sigma(0.5, 0.1, 1.0), "confidence must lie strictly between 0 and 1, got 1.0"),
        (lambda: ci_from_mu_sigma(0.5, 0.1, clip=(1.0, 0.0)), "low <= high"),
        (lambda: should_stop(0.1), "exactly one of max_ci_width and max_half_width, got None and None"),
        (lambda: should_stop(0.1, 0.9, 0.1, 0.1), "exactly one of max_ci_width and max_half_width"),
        (lambda: should_stop(-0.1, max_ci_width=0.1), "sigma must be >= 0, got -0.1"),
        (lambda: should_stop_top1([], []), r"at least 1, got shapes \(0,\) and \(0,\)"),
        (lambda: should_stop_top1([0.5], [0.1, 0.1]), r"got shapes \(1,\) and \(2,\)"),
        (lambda: should_stop_top1([0.5, 0.4], [0.1, -0.2]), "sigmas_in_id_order must be >= 0, got -0.2"),
        (lambda: should_stop_top1([0.5, 0.4], [0.1, 0.1], method="t-test"), "'ci_overlap' or 'zscore', got 't-test'"),
        (lambda: should_stop_top1([0.5, 0.4], [0.1, 0.1], 95.0, "zscore"), "strictly between 0 and 1, got 95.0"),
    ],
)
def test_bad_arguments_are_refused(call, words: str):
    with pytest.raises(ValueError, match=words):
        call()
