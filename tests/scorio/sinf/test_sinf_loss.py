"""Expected loss."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from scorio.sinf import expected_loss


@pytest.mark.parametrize(("d", "s"), [(0.02, 0.03), (-0.02, 0.03), (0.0, 0.01), (0.1, 0.02)])
def test_expected_loss_is_the_mean_of_the_rivals_advantage(d: float, s: float):
    expected, _ = quad(lambda x: -x * norm.pdf(x, d, s), -1.0, 0.0, points=[min(d, 0.0)], epsabs=1e-13)
    assert expected_loss(d, s) == pytest.approx(expected, abs=1e-10)


def test_without_uncertainty_expected_loss_is_the_loss_itself():
    np.testing.assert_array_equal(expected_loss(np.array([0.2, 0.0, -0.2]), np.zeros(3)), [0.0, 0.0, 0.2])
