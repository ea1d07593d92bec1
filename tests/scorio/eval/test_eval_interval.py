"""The normal interval and its quantiles."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorio._normal import normal_interval, one_sided_z, two_sided_z


def test_the_quantiles_of_the_paper() -> None:
    assert round(one_sided_z(0.95), 3) == 1.645
    assert round(one_sided_z(0.975), 2) == 1.96
    assert round(two_sided_z(0.95), 2) == 1.96
    assert two_sided_z(0.9) == pytest.approx(one_sided_z(0.95))


@given(confidence=st.floats(1e-6, 1.0 - 1e-6))
def test_quantiles_invert_the_normal_distribution(confidence: float) -> None:
    assert 0.5 * math.erfc(-one_sided_z(confidence) / math.sqrt(2.0)) == pytest.approx(confidence, rel=1e-9)
    assert math.erf(two_sided_z(confidence) / math.sqrt(2.0)) == pytest.approx(confidence, rel=1e-9)


def test_a_mean_outside_the_bounds_gives_the_bound() -> None:
    assert normal_interval(1.2, 0.01, 0.95, (0.0, 1.0)) == (1.0, 1.0)
    assert normal_interval(-3.0, 0.01, 0.95, (0.0, 1.0)) == (0.0, 0.0)


@given(
    mean=st.floats(-5, 5),
    sigma=st.floats(0, 5),
    confidence=st.floats(0.01, 0.99),
    ends=st.tuples(st.floats(-5, 5), st.floats(-5, 5)),
)
def test_an_interval_is_never_inverted(mean: float, sigma: float, confidence: float, ends: tuple[float, float]) -> None:
    low, high = sorted(ends)
    lo, hi = normal_interval(mean, sigma, confidence, (low, high))
    assert low <= lo <= hi <= high
    los, his = normal_interval(np.full(3, mean), np.full(3, sigma), confidence, (low, high))
    np.testing.assert_array_equal(los, lo)
    np.testing.assert_array_equal(his, hi)
