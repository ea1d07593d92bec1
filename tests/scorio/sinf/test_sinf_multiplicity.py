"""Holm and e-BH against their definitions."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorio.sinf import ebh, holm, holm_adjusted

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
