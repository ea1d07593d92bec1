"""Ranking by a metric: each model scored alone by `scorio.eval`, then ranked."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import scorio.eval
import scorio.rank
from scorio.counts import Counts
from scorio.rank import rank_scores

WORLD = np.random.default_rng(8)
BINARY = WORLD.integers(0, 2, (5, 6, 9))
LEVELS = WORLD.integers(0, 3, (5, 6, 9))
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
    alone = [scorio.eval.bayes(model, W, prior) for model, prior in zip(LEVELS, priors, strict=True)]
    z = 0.0 if quantile is None else NormalDist().inv_cdf(quantile)
    expected = [mu + z * sigma for mu, sigma in alone]
    ranking, scores = scorio.rank.bayes(LEVELS, W, R0, quantile, "dense", True)
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
    assert scorio.rank.avg(LEVELS, W, return_scores=True)[1] == pytest.approx(np.array(W)[LEVELS].mean(axis=(1, 2)))


def test_equal_totals_tie_however_they_are_spread() -> None:
    """The same number of successes on other questions is the same score to the last relevant digit."""
    R = np.array([WORLD.permutation(BINARY[0].ravel()).reshape(6, 9) for _ in range(40)])
    assert scorio.rank.bayes(R).tolist() == [1] * 40
    assert scorio.rank.avg(R).tolist() == [1] * 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scorio.rank.bayes(BINARY, method="best"), "method must be one of competition, .* got 'best'"),
        (lambda: scorio.rank.bayes(BINARY, quantile=1.5), r"quantile must lie in \[0, 1\], got 1.5"),
        (lambda: scorio.rank.bayes(LEVELS), "w is omitted"),
        (lambda: scorio.rank.avg([0, 1, 1]), r"R must have 3 axes, got shape \(3,\)"),
        (lambda: scorio.rank.pass_at_k(BINARY, 10), r"k must be an integer in \[1, 9\] .* got 10"),
        (
            lambda: scorio.rank.avg(Counts.from_outcomes(BINARY[0])),
            r"R must hold counts of shape \(models, questions, categories\), got \(6, 2\)",
        ),
        (lambda: scorio.rank.bayes(Counts.from_tensor(BINARY), w=[0, 1]), "w must be omitted where R is a Counts"),
    ],
)
def test_bad_input_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
