"""Predictive power, and the trials still needed."""

import numpy as np
import pytest
from scipy.stats import norm

from scorio.sinf import predictive_power, smallest_delta, tied, trials_needed

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
    future = rng.normal(truth, np.sqrt(unit / (horizon - t)))
    final = (t * d + (horizon - t) * future) / horizon
    s = np.sqrt(unit / horizon)
    settled = (np.abs(final) >= BOUND * s) | ((delta > 0) & tied(final, s, BOUND, delta))
    power = predictive_power(np.array(z), np.array(t), BOUND, np.array(sigma), delta, horizon)
    assert power == pytest.approx(settled.mean(), abs=4 * 0.5 / np.sqrt(runs))


def test_the_formula_of_the_design_without_a_zone():
    z, q = 1.3, 4.0
    expected = norm.cdf((z * 2 - BOUND) / 3**0.5) + norm.cdf((-z * 2 - BOUND) / 3**0.5)
    assert predictive_power(np.array(-z), np.array(1 / q), BOUND) == pytest.approx(expected)


def test_at_the_horizon_power_says_whether_the_pair_is_settled():
    z = np.array([2.2, -2.2, 1.0, 0.0, 1.0])
    sigma = np.array([0.01, 0.01, 0.01, 0.01, 0.0])
    np.testing.assert_array_equal(predictive_power(z, np.array(1.0), BOUND, sigma, 0.03), [1, 1, 0, 1, 1])
    np.testing.assert_array_equal(predictive_power(z, np.array(1.7), BOUND), [1, 1, 0, 0, 0])


def test_certain_differences_and_certain_ties_are_settled():
    zero = np.zeros(2)
    np.testing.assert_allclose(predictive_power(np.array([np.inf, 0.0]), np.array(0.5), BOUND, zero, 0.01), 1.0)


def test_a_zone_needs_sigma():
    with pytest.raises(ValueError, match="delta > 0 needs sigma"):
        predictive_power(np.array(1.0), np.array(0.5), BOUND, delta=0.02)


def test_trials_needed_bring_todays_difference_to_the_bound():
    needed = trials_needed(np.array([1.0, -2.0, 0.0]), np.array([10.0, 10.0, 10.0]), 2.0)
    np.testing.assert_allclose(needed, [40.0, 10.0, np.inf])


def test_the_smallest_zone_is_certified_by_a_difference_of_zero_and_no_smaller_one_is():
    delta = smallest_delta(np.array(0.013), BOUND)
    assert tied(0.0, 0.013, BOUND, delta)
    assert not tied(0.0, 0.013, BOUND, 0.999 * delta)


def test_ties_are_intervals_inside_the_zone():
    d, s = np.array([0.01, -0.01, 0.01, 0.03, 0.0]), np.array([0.01, 0.01, 0.03, 0.0, 0.0])
    np.testing.assert_array_equal(tied(d, s, 2.0, 0.03), [True, True, False, True, True])
    assert not tied(0.0, 0.0, np.inf, 0.03), "no tie before the first look that may call"
