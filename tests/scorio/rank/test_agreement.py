"""Kendall and Spearman against scipy and against the definition, pair by pair."""

import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scorio.rank import compare_rankings

RANKINGS = st.integers(2, 8).flatmap(lambda n: st.tuples(*[st.lists(st.integers(1, 6), min_size=n, max_size=n)] * 2))


def counted(a: list[int], b: list[int]) -> tuple[float, float]:
    """Tau-a and tau-b from concordant, discordant and tied pairs: paper, Eq. 25 and 26."""
    concordant = discordant = tied_a = tied_b = 0
    pairs = list(combinations(range(len(a)), 2))
    for i, j in pairs:
        tied_a += a[i] == a[j]
        tied_b += b[i] == b[j]
        concordant += (a[i] - a[j]) * (b[i] - b[j]) > 0
        discordant += (a[i] - a[j]) * (b[i] - b[j]) < 0
    scale = ((len(pairs) - tied_a) * (len(pairs) - tied_b)) ** 0.5
    balance = concordant - discordant
    return balance / len(pairs), balance / scale if scale else float("nan")


@given(RANKINGS)
def test_agrees_with_the_definition(rankings: tuple[list[int], list[int]]) -> None:
    agreement = compare_rankings(*rankings)
    assert agreement[:2] == pytest.approx(counted(*rankings), abs=1e-14, nan_ok=True)


@given(RANKINGS)
def test_agrees_with_scipy(rankings: tuple[list[int], list[int]]) -> None:
    agreement = compare_rankings(*rankings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        assert agreement.tau_b == pytest.approx(stats.kendalltau(*rankings).statistic, abs=1e-12, nan_ok=True)
        assert agreement.spearman == pytest.approx(stats.spearmanr(*rankings).statistic, abs=1e-12, nan_ok=True)


def test_ties_lower_tau_a_but_not_tau_b_of_a_ranking_with_itself() -> None:
    assert compare_rankings([1, 2, 2, 4], [1, 2, 2, 4]) == pytest.approx((5 / 6, 1.0, 1.0))
    assert compare_rankings(np.arange(5), -np.arange(5)) == pytest.approx((-1.0, -1.0, -1.0))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1, 2, 3], [1, 2], "first and second must rank the same models, got 3 and 2"),
        ([1], [1], r"first must be a vector of ranks of at least 2 models, got shape \(1,\)"),
        ([1, 2], [[1, 2]], r"second must be a vector of ranks of at least 2 models, got shape \(1, 2\)"),
        ([1, 2], [1, float("nan")], "second must hold finite numbers, got nan"),
    ],
)
def test_bad_input_is_named(first: list[float], second: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_rankings(first, second)
