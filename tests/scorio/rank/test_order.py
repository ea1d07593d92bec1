"""Scores to ranks, against scipy and by property."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from scorio.rank import rank_scores

SCIPY_NAME = {"competition": "min", "competition_max": "max", "dense": "dense", "fractional": "average"}
LEVELS = st.lists(st.integers(-4, 4), min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("method", "ranks"),
    [
        ("competition", [4, 2, 1, 2]),
        ("competition_max", [4, 3, 1, 3]),
        ("dense", [3, 2, 1, 2]),
        ("fractional", [4.0, 2.5, 1.0, 2.5]),
    ],
)
def test_each_method_treats_a_tie_its_own_way(method: str, ranks: list[float]) -> None:
    assert rank_scores([0.1, 0.7, 0.9, 0.7], method).tolist() == ranks


@given(LEVELS, st.sampled_from(sorted(SCIPY_NAME)))
def test_agrees_with_scipy(levels: list[int], method: str) -> None:
    scores = np.array(levels) / 8
    assert np.array_equal(rank_scores(scores, method), rankdata(-scores, SCIPY_NAME[method]))


@given(st.lists(LEVELS.map(lambda row: (row * 9)[:5]), min_size=1, max_size=6), st.sampled_from(sorted(SCIPY_NAME)))
def test_rows_of_a_batch_are_ranked_alone(rows: list[list[int]], method: str) -> None:
    batch = rank_scores(np.array(rows)[:, None, :], method)
    assert np.array_equal(batch, [[rank_scores(row, method)] for row in rows])


@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
def test_sums_in_another_order_are_still_the_same_score(order: list[int], seed: int) -> None:
    terms = np.random.default_rng(seed).random(6)
    once = sum(terms.tolist())
    again = sum(terms[order].tolist())
    assert rank_scores([once, again, 0.0]).tolist() == [1, 1, 3]


def test_a_difference_above_rounding_is_a_difference() -> None:
    assert rank_scores([0.5, 0.5 + 1e-11]).tolist() == [2, 1]
    assert rank_scores([5e-20, 6e-20]).tolist() == [2, 1]


def test_infinite_scores_tie_with_their_like() -> None:
    assert rank_scores([-np.inf, 0.25, np.inf, -np.inf, np.inf]).tolist() == [4, 3, 1, 4, 1]


@pytest.mark.parametrize(
    ("scores", "method", "message"),
    [
        ([0.1, 0.2], "ordinal", "method must be one of competition, .* got 'ordinal'"),
        ([0.1, float("nan")], "dense", "scores must not be NaN"),
        ([], "dense", r"scores must hold one score .* got shape \(0,\)"),
        (0.5, "dense", r"scores must hold one score .* got shape \(\)"),
    ],
)
def test_bad_input_is_named(scores: object, method: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_scores(scores, method)  # type: ignore[arg-type]
