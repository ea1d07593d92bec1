"""Scores to ranks, agreement of rankings, letters, and ranking by a metric: against scipy and by property."""

import re
import warnings
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import rankdata

import scorio.eval
import scorio.rank
from scorio.counts import Counts
from scorio.rank import compare_rankings, letter_display, rank_scores

SCIPY_NAME = {"competition": "min", "competition_max": "max", "dense": "dense", "fractional": "average"}
LEVELS = st.lists(st.integers(-4, 4), min_size=1, max_size=9)


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
    assert rank_scores([once, sum(terms[order].tolist()), 0.0]).tolist() == [1, 1, 3]


def test_differences_above_rounding_count_and_infinite_scores_tie() -> None:
    assert rank_scores([0.5, 0.5 + 1e-11]).tolist() == [2, 1]
    assert rank_scores([5e-20, 6e-20]).tolist() == [2, 1]
    assert rank_scores([-np.inf, 0.25, np.inf, -np.inf, np.inf]).tolist() == [4, 3, 1, 4, 1]


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
def test_agrees_with_the_definition_and_with_scipy(rankings: tuple[list[int], list[int]]) -> None:
    agreement = compare_rankings(*rankings)
    assert agreement[:2] == pytest.approx(counted(*rankings), abs=1e-14, nan_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        assert agreement.tau_b == pytest.approx(stats.kendalltau(*rankings).statistic, abs=1e-12, nan_ok=True)
        assert agreement.spearman == pytest.approx(stats.spearmanr(*rankings).statistic, abs=1e-12, nan_ok=True)


def letters(text: str) -> set[str]:
    return set(re.findall(r"[a-zA-Z]\d*", text))


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[np.bool_]:
    models = draw(st.integers(1, 9))
    apart = np.zeros((models, models), bool)
    for first, second in combinations(range(models), 2):
        apart[first, second] = apart[second, first] = draw(st.booleans())
    return apart


@given(matrices())
def test_the_groups_are_all_that_cannot_grow(apart: NDArray[np.bool_]) -> None:
    """By brute force over all sets of models: maximal sets without a separated pair."""
    models = len(apart)
    alike = [
        frozenset(group)
        for size in range(1, models + 1)
        for group in combinations(range(models), size)
        if not apart[np.ix_(group, group)].any()
    ]
    largest = {group for group in alike if not any(group < other for other in alike)}
    shown = [letters(row) for row in letter_display(apart)]
    groups = {letter: frozenset(at for at in range(models) if letter in shown[at]) for letter in set().union(*shown)}
    assert set(groups.values()) == largest
    assert len(groups) == len(largest)


@pytest.mark.parametrize(
    ("apart", "shown"),
    [
        ([], ("a", "a", "a")),
        ([(0, 2)], ("a", "ab", "b")),
        ([(0, 1), (0, 2), (1, 2)], ("a", "b", "c")),
        ([(0, 1), (0, 2)], ("a", "b", "b")),
    ],
)
def test_the_best_model_has_the_first_letter(apart: list[tuple[int, int]], shown: tuple[str, ...]) -> None:
    matrix = np.zeros((3, 3), bool)
    for first, second in apart:
        matrix[first, second] = matrix[second, first] = True
    assert letter_display(matrix) == shown


def test_letters_past_the_alphabet_stay_apart() -> None:
    shown = letter_display(~np.eye(120, dtype=bool))
    assert shown[:2] + shown[51:53] + shown[104:105] == ("a", "b", "Z", "a2", "a3")
    assert len(set(shown)) == 120


WORLD = np.random.default_rng(8)
BINARY = WORLD.integers(0, 2, (5, 6, 9))
GRADED = WORLD.integers(0, 3, (5, 6, 9))
W = [0.0, 0.5, 1.0]

FAMILY: list[tuple[str, dict[str, Any]]] = [
    ("pass_at_k", {"k": 3}),
    ("pass_hat_k", {"k": 3}),
    ("naive_pass_hat_k", {"k": 12}),
    ("unanimous_at_k", {"k": 3}),
    ("g_pass_at_k", {"k": 3}),
    ("g_pass_at_k_tau", {"k": 4, "tau": 0.6}),
    ("mg_pass_at_k", {"k": 4}),
    ("maj_at_k", {"k": 3}),
    ("auc_at_k", {"k": 4}),
    ("geom_at_k", {"k": 2, "pass_power": 0.3, "unanimous_power": 0.7}),
    ("geom_ds_at_k", {"k": 2, "pass_power": 0.3, "unanimous_power": 0.7}),
    ("geo_spectrum_at_k", {"k": 3, "lam": 0.2}),
    ("geo_spectrum_at_k", {"k": 3, "weights": [0.2, 0.3, 0.5], "lambda_": 0.7}),
    ("geo_spectrum_star_at_k", {"k": 3}),
    ("threshold_spectrum_at_k", {"k": 3, "weights": [0.2, 0.3, 0.5]}),
    ("max_at_k", {"k": 3}),
]


@pytest.mark.parametrize(("name", "arguments"), FAMILY, ids=[name for name, _ in FAMILY])
def test_the_family_ranks_by_its_namesakes(name: str, arguments: dict[str, Any]) -> None:
    alone = [getattr(scorio.eval, name)(model, **arguments) for model in BINARY]
    rank = getattr(scorio.rank, name)
    for method in ("competition", "competition_max", "dense", "fractional"):
        ranking, scores = rank(BINARY, **arguments, method=method, return_scores=True)
        assert scores == pytest.approx(alone)
        assert np.array_equal(ranking, rank_scores(alone, method)), method
        assert np.array_equal(ranking, rank(BINARY, **arguments, method=method)), method


def test_every_point_metric_can_rank() -> None:
    points = {name for name in scorio.eval.__all__ if name.islower() and not name.endswith("_ci")} - {"corrected"}
    assert points <= set(scorio.rank.__all__)
    assert {name for name, _ in FAMILY} == points - {"bayes", "avg"}


@pytest.mark.parametrize("R0", [None, WORLD.integers(0, 3, (6, 2)), WORLD.integers(0, 3, (5, 6, 2))])
@pytest.mark.parametrize("quantile", [None, 0.05, 0.5, 0.9])
def test_bayes_ranks_by_mean_or_quantile(quantile: float | None, R0: np.ndarray | None) -> None:
    priors = [None] * 5 if R0 is None else np.broadcast_to(R0, (5, 6, 2))
    alone = [scorio.eval.bayes(model, W, prior) for model, prior in zip(GRADED, priors, strict=True)]
    z = 0.0 if quantile is None else NormalDist().inv_cdf(quantile)
    expected = [mu + z * sigma for mu, sigma in alone]
    ranking, scores = scorio.rank.bayes(GRADED, W, R0, quantile, "dense", True)
    assert scores == pytest.approx(expected, abs=1e-12)
    assert np.array_equal(ranking, rank_scores(expected, "dense"))


@pytest.mark.parametrize("quantile", [0.0, 1.0])
def test_the_extreme_quantiles_tie_all_that_is_uncertain(quantile: float) -> None:
    assert scorio.rank.bayes(BINARY, quantile=quantile).tolist() == [1] * 5
    assert scorio.rank.bayes(BINARY, w=[0.5, 0.5], quantile=quantile, return_scores=True)[1].tolist() == [0.5] * 5


def test_avg_ranks_by_the_plain_mean() -> None:
    ranking, scores = scorio.rank.avg(BINARY, return_scores=True)
    assert scores == pytest.approx(BINARY.mean(axis=(1, 2)))
    assert np.array_equal(ranking, rank_scores(scores))
    assert scorio.rank.avg(GRADED, W, return_scores=True)[1] == pytest.approx(np.array(W)[GRADED].mean(axis=(1, 2)))


def test_equal_totals_tie_however_they_are_spread() -> None:
    """The same number of successes on other questions is the same score to the last relevant digit."""
    R = np.array([WORLD.permutation(BINARY[0].ravel()).reshape(6, 9) for _ in range(40)])
    assert scorio.rank.bayes(R).tolist() == [1] * 40
    assert scorio.rank.avg(R).tolist() == [1] * 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_scores([0.1, 0.2], "ordinal"), "method must be one of competition, .* got 'ordinal'"),
        (lambda: rank_scores([0.1, float("nan")], "dense"), "scores must not be NaN"),
        (lambda: rank_scores([], "dense"), r"scores must hold one score .* got shape \(0,\)"),
        (lambda: rank_scores(0.5, "dense"), r"scores must hold one score .* got shape \(\)"),
        (lambda: compare_rankings([1, 2, 3], [1, 2]), "first and second must rank the same models, got 3 and 2"),
        (lambda: compare_rankings([1], [1]), r"first must be a vector of ranks of at least 2 .* got shape \(1,\)"),
        (lambda: compare_rankings([1, 2], [[1, 2]]), r"second must be a vector of ranks .* got shape \(1, 2\)"),
        (lambda: compare_rankings([1, 2], [1, float("nan")]), "second must hold finite numbers, got nan"),
        (lambda: scorio.rank.bayes(BINARY, method="best"), "method must be one of competition, .* got 'best'"),
        (lambda: scorio.rank.bayes(BINARY, quantile=1.5), r"quantile must lie in \[0, 1\], got 1.5"),
        (lambda: scorio.rank.bayes(GRADED), "w is omitted"),
        (lambda: scorio.rank.avg([0, 1, 1]), r"R must have 3 axes, got shape \(3,\)"),
        (lambda: scorio.rank.pass_at_k(BINARY, 10), r"k must be an integer in \[1, 9\] .* got 10"),
        (
            lambda: scorio.rank.avg(Counts.from_outcomes(BINARY[0])),
            r"R must hold counts of shape \(models, questions, categories\), got \(6, 2\)",
        ),
        (lambda: scorio.rank.bayes(Counts.from_tensor(BINARY), w=[0, 1]), "w must be omitted where R is a Counts"),
    ],
)
def test_bad_values_are_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
