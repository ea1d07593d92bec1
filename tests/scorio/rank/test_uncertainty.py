"""z-scores, probabilities and tiers: the paper's Table 1 and the rule of its section 2.9."""

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scorio.rank import pairwise, rank_with_uncertainty

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


def test_the_third_row_of_table_1() -> None:
    tiers = rank_with_uncertainty(MIMICS, [SIGMA] * 11)
    assert tiers.ranking.tolist() == [1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 7]
    assert tiers.order.tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 10]
    assert tiers.z[1] == pytest.approx(1.14)


def test_z_at_the_threshold_is_a_separation() -> None:
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
