"""Comparisons: the two variances of a difference, and what happens without any."""

import numpy as np
import pytest
from scipy.stats import norm

from scorio.sinf import compare, sampled_covariance, sampled_variance


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


def test_the_sampled_variance_is_that_of_a_mean():
    d = np.random.default_rng(0).normal(size=(4, 7))
    np.testing.assert_allclose(sampled_variance(d), d.var(axis=1, ddof=1) / 7)


def test_clusters_of_one_question_change_nothing():
    d = np.random.default_rng(1).normal(size=(3, 6))
    np.testing.assert_allclose(sampled_variance(d, np.array([3, 1, 0, 2, 5, 4])), sampled_variance(d))


def test_clustered_variance_covers_cluster_effects():
    """Mean of the estimate over worlds with cluster effects against the true variance of the mean."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(40), 3)
    d = rng.normal(size=(4000, 40))[:, clusters] + rng.normal(size=(4000, 120))
    truth = d.mean(axis=1).var()
    assert sampled_variance(d, clusters).mean() == pytest.approx(truth, rel=0.08)
    assert sampled_variance(d).mean() < 0.6 * truth


def test_one_question_or_one_cluster_says_nothing_about_others():
    assert sampled_variance(np.array([0.3])) == np.inf
    assert sampled_variance(np.array([0.3, 0.1]), np.array([0, 0])) == np.inf


@pytest.mark.parametrize("clusters", [None, np.arange(50) % 7], ids=["alone", "in clusters"])
def test_covariances_say_what_differences_do(clusters: np.ndarray | None):
    values = np.random.default_rng(5).random((6, 50))
    shared = sampled_covariance(values, clusters)
    first, second = np.triu_indices(6, k=1)
    of_pairs = shared[first, first] + shared[second, second] - 2 * shared[first, second]
    np.testing.assert_allclose(of_pairs, sampled_variance(values[first] - values[second], clusters), rtol=1e-9)
    np.testing.assert_allclose(np.diag(shared), sampled_variance(values, clusters))


def test_one_question_has_infinite_variances_and_no_covariance():
    np.testing.assert_array_equal(sampled_covariance(np.array([[0.3], [0.4]])), [[np.inf, 0.0], [0.0, np.inf]])
