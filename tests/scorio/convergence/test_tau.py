"""Mean Kendall tau curves against scipy, ranking by ranking."""

import numpy as np
import pytest
from convergence_oracle import average, pass_at, rankings, resampled
from scipy.stats import kendalltau

import scorio.eval
from scorio.convergence import BAYES, Metric, Study, tau_curve, tau_of_tensors

WORLD = np.random.default_rng(21)
R = (WORLD.random((5, 4, 7)) < np.array([0.8, 0.6, 0.6, 0.4, 0.2])[:, None, None]).astype(int)


def draws_of(seed: int, count: int, cells: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(7, size=(count, 7, cells), dtype=np.int32)


def mean_tau(histories: list[list[list[int]]], gold: list[int]) -> list[float]:
    """Mean over replicates of scipy's tau-b, 0 where a ranking ties all models."""
    return [
        float(np.mean([kendalltau(h[s], gold).statistic if len(set(h[s])) > 1 else 0.0 for h in histories]))
        for s in range(len(histories[0]))
    ]


@pytest.mark.parametrize(
    ("gold", "k", "resample"),
    [(None, None, "columns"), (None, 3, "rows"), ([1, 2, 2, 4, 5], None, "rows"), ([1, 2, 2, 4, 5], 3, "columns")],
)
def test_the_curve_is_the_mean_of_scipys_tau(gold: list[int] | None, k: int | None, resample: str) -> None:
    metric = Metric.of(scorio.eval.pass_at_k, k=k) if k else Metric.of(scorio.eval.bayes)
    score, first = (pass_at(k), k) if k else (average(), 1)
    curve = tau_curve(Study.of(R, metric=metric, gold=gold), 25, np.random.default_rng(6), resample)
    draws = draws_of(6, 25, 4 if resample == "rows" else 1)
    expected = mean_tau([rankings(resampled(R, d), score, first) for d in draws], gold or rankings(R, average())[-1])
    assert curve.tau == pytest.approx(expected)
    assert curve.trials.tolist() == list(range(first, 8))


def test_a_ranking_that_ties_every_model_counts_as_zero() -> None:
    always = np.zeros((2, 1, 6), dtype=int)
    always[0, 0, 5] = 1
    curve = tau_curve(Study.of(always), 200, np.random.default_rng(0))
    assert curve.tau == pytest.approx(1 - (5 / 6) ** np.arange(1, 7), abs=0.1)


def test_a_gold_ranking_of_ties_has_no_tau() -> None:
    with pytest.raises(ValueError, match="gold must order at least two models"):
        tau_curve(Study.of(R, gold=[1, 1, 1, 1, 1]), 10, np.random.default_rng(0))


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("gold", [[1, 2, 3, 4, 5], [1, 2, 2, 4, 5]])
def test_independent_tensors_are_each_judged_by_scipy(gold: list[int], k: int | None) -> None:
    tensors = np.stack([R, R[::-1], R[:, :, ::-1]])
    metric = Metric.of(scorio.eval.pass_at_k, k=k) if k else Metric.of(scorio.eval.avg)
    score = pass_at(k) if k else average()
    curve = tau_of_tensors(tensors, metric, gold)
    histories = [rankings(tensor, score, k or 1) for tensor in tensors]
    assert curve.tau == pytest.approx(mean_tau(histories, gold))
    assert curve.trials.tolist() == list(range(k or 1, 8))


@pytest.mark.parametrize(
    ("tensors", "metric", "gold", "message"),
    [
        (R, BAYES, [1, 2, 3, 4, 5], "R must have 4 axes"),
        (R[np.newaxis, ..., :2], Metric.of(scorio.eval.pass_at_k, k=3), [1, 2, 3, 4, 5], "at least 3 trials"),
        (R[np.newaxis], Metric.of(scorio.eval.max_at_k, k=3), [1, 2, 3, 4, 5], "mean over the questions"),
        (R[np.newaxis], BAYES, [1, 1, 1, 1, 1], "tau is undefined"),
    ],
)
def test_what_independent_tensors_must_be(tensors: np.ndarray, metric: Metric, gold: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tau_of_tensors(tensors, metric, gold)
