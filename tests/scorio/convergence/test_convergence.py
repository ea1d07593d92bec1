"""Convergence@n and mean Kendall tau curves against the definitions, and the guarantees of the bootstrap."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from convergence_oracle import average, converged_at, pass_at, rankings, resampled
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau
from thoroughness import examples

import scorio.eval
from scorio.convergence import (
    BAYES,
    NEVER,
    Metric,
    Study,
    convergence_at_n,
    convergence_of_subsets,
    tau_curve,
    tau_of_tensors,
    trajectory,
)
from scorio.convergence import scoring as replicates
from scorio.convergence.scoring import Tabled
from scorio.convergence.study import MEANS
from scorio.counts import Counts
from scorio.rank import rank_scores

WORLD = np.random.default_rng(7)
TRUTH = np.array([0.75, 0.6, 0.55, 0.3])
R = (WORLD.random((4, 5, 8)) < TRUTH[:, None, None]).astype(int)
LEVELS = WORLD.integers(0, 4, (4, 5, 8))

TENSORS = st.tuples(st.integers(2, 4), st.integers(1, 3), st.integers(2, 5)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 1))
)


def draws_of(seed: int, count: int, cells: int, trials: int = 8) -> np.ndarray:
    """The draws that the bootstrap makes from a generator with this seed."""
    return np.random.default_rng(seed).integers(trials, size=(count, trials, cells), dtype=np.int32)


@given(TENSORS)
def test_the_recorded_trajectory_is_the_definition(tensor: np.ndarray) -> None:
    history = rankings(tensor, average())
    recorded = trajectory(Study.of(tensor))
    assert recorded.trials.tolist() == list(range(1, tensor.shape[2] + 1))
    assert recorded.ranks.tolist() == history
    assert recorded.converged_at == converged_at(history, history[-1])


@settings(max_examples=examples(40))
@given(TENSORS, st.sampled_from(["columns", "rows"]), st.integers(0, 2**20))
def test_every_replicate_is_the_definition(tensor: np.ndarray, resample: str, seed: int) -> None:
    _, questions, trials = tensor.shape
    result = convergence_at_n(Study.of(tensor), 6, np.random.default_rng(seed), resample)
    draws = draws_of(seed, 6, questions if resample == "rows" else 1, trials)
    gold = rankings(tensor, average())[-1]
    assert result.at.tolist() == [converged_at(rankings(resampled(tensor, d), average()), gold) for d in draws]


@pytest.mark.parametrize("resample", ["columns", "rows"])
@pytest.mark.parametrize("text", [("0", "0.1", "0.2", "0.3"), ("0", "1/3", "2/3", "1"), ("-1", "0", "0.5", "2")])
def test_weights_whose_sums_tie_only_in_exact_arithmetic(text: tuple[str, ...], resample: str) -> None:
    w = [float(Fraction(t)) for t in text]
    result = convergence_at_n(Study.of(LEVELS, w=w), 40, np.random.default_rng(3), resample)
    draws = draws_of(3, 40, 5 if resample == "rows" else 1)
    score = average(text)
    gold = rankings(LEVELS, score)[-1]
    histories = [rankings(resampled(LEVELS, d), score) for d in draws]
    assert result.at.tolist() == [converged_at(history, gold) for history in histories]
    assert any(len(set(ranking)) < 4 for history in histories for ranking in history)


def test_prior_outcomes_count_from_the_first_step_but_not_in_the_gold_ranking() -> None:
    R0 = WORLD.integers(0, 2, (4, 5, 3))
    scores = [average(prior=prior.tolist()) for prior in R0]
    result = convergence_at_n(Study.of(R, R0=R0), 40, np.random.default_rng(5))
    gold = rankings(R, average())[-1]
    expected = [converged_at(rankings(resampled(R, d), scores), gold) for d in draws_of(5, 40, 1)]
    assert result.at.tolist() == expected


@pytest.mark.parametrize("resample", ["columns", "rows"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_pass_at_k_starts_at_k_and_is_compared_with_bayes(k: int, resample: str) -> None:
    study = Study.of(R, metric=Metric.of(scorio.eval.pass_at_k, k=k))
    result = convergence_at_n(study, 30, np.random.default_rng(11), resample)
    gold = rankings(R, average())[-1]
    draws = draws_of(11, 30, 5 if resample == "rows" else 1)
    expected = [converged_at(rankings(resampled(R, d), pass_at(k), first=k), gold, first=k) for d in draws]
    assert result.at.tolist() == expected
    assert study.steps.tolist() == list(range(k, 9))


@pytest.mark.parametrize("resample", ["columns", "rows"])
@pytest.mark.parametrize("w", [None, [0.0, 1.0, 2.0, 5.0], [0.0, 2**-0.5, 0.9, 1.0]])
def test_totals_and_posterior_means_rank_alike(w: list[float] | None, resample: str) -> None:
    """The fast ranking for Bayes@N agrees with evaluating Bayes@N on the counts of each step."""
    outcomes, R0 = (R if w is None else LEVELS), WORLD.integers(0, 2, (5, 2))
    slow = Metric.of(lambda counts: scorio.eval.bayes(counts))
    for prior in (None, R0):
        quick_study, slow_study = Study.of(outcomes, w, prior), Study.of(outcomes, w, prior, metric=slow)
        quick, plain = (
            convergence_at_n(study, 50, np.random.default_rng(2), resample) for study in (quick_study, slow_study)
        )
        assert np.array_equal(quick.at, plain.at)
        assert np.array_equal(quick.worst.ranks, plain.worst.ranks)


@pytest.mark.parametrize(
    "metric",
    [
        Metric.of(scorio.eval.avg),
        Metric.of(scorio.eval.pass_hat_k, k=3),
        Metric.of(scorio.eval.g_pass_at_k_tau, k=3, tau=0.5),
        Metric.of(scorio.eval.mg_pass_at_k, k=3),
        Metric.of(scorio.eval.auc_at_k, k=3),
        Metric.of(scorio.eval.geo_spectrum_at_k, k=3),
        Metric.of(scorio.eval.max_at_k, k=3),
        Metric.of(scorio.eval.pass_at_k_ci, k=3),
    ],
    ids=lambda metric: metric.function.__name__,
)
def test_any_metric_ranks_each_step_by_its_own_score(metric: Metric) -> None:
    recorded = trajectory(Study.of(R, metric=metric))
    for trials, ranking in zip(recorded.trials, recorded.ranks, strict=True):
        scores = [metric(Counts.from_outcomes(model[:, :trials])).item() for model in R]
        assert np.array_equal(ranking, rank_scores(scores))


def test_agreement_at_the_last_trial_alone_is_no_convergence() -> None:
    """s* <= N - 1: here the order is settled by the fourth trial of four."""
    assert trajectory(Study.of([[[1, 1, 0, 1]], [[1, 1, 0, 0]]])).converged_at == NEVER
    assert trajectory(Study.of([[[1, 1, 1, 1]], [[1, 1, 0, 0]]])).converged_at == 3
    assert trajectory(Study.of([[[1, 1, 1, 1]], [[0, 0, 0, 0]]])).converged_at == 1


def test_ties_in_the_gold_ranking_must_be_met_and_a_known_truth_may_be_gold() -> None:
    study = Study.of([[[1, 0, 1, 1]], [[0, 1, 1, 1]], [[0, 0, 0, 0]]])
    assert study.gold.tolist() == [1, 1, 3]
    assert trajectory(study).converged_at == 2
    result = convergence_at_n(Study.of(R, gold=[2, 1, 3, 4]), 30, np.random.default_rng(1))
    expected = [converged_at(rankings(resampled(R, d), average()), [2, 1, 3, 4]) for d in draws_of(1, 30, 1)]
    assert result.at.tolist() == expected


@pytest.mark.parametrize("resample", ["columns", "rows"])
@pytest.mark.parametrize("metric", [Metric.of(scorio.eval.bayes), Metric.of(scorio.eval.pass_at_k, k=2)])
def test_the_size_of_a_chunk_changes_nothing(metric: Metric, resample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_one_chunk = convergence_at_n(Study.of(R, metric=metric), 50, np.random.default_rng(9), resample)
    monkeypatch.setattr(replicates, "MEMORY", 30_000)
    calls: list[tuple[int, int]] = []
    parts = convergence_at_n(
        Study.of(R, metric=metric), 50, np.random.default_rng(9), resample, lambda *call: calls.append(call)
    )
    assert len(calls) > 3
    assert np.array_equal(in_one_chunk.at, parts.at)
    assert np.array_equal(in_one_chunk.worst.ranks, parts.worst.ranks)


def test_the_distribution_adds_up() -> None:
    result = convergence_at_n(Study.of(R), 400, np.random.default_rng(12))
    converged = result.at[result.at != NEVER]
    assert 0.0 < result.never < 1.0
    assert result.steps.tolist() == list(range(1, 8))
    assert result.pmf.sum() == pytest.approx(1.0 - result.never)
    assert result.pmf[2] == pytest.approx(np.mean(result.at == 3))
    assert result.cdf == pytest.approx(np.cumsum(result.pmf))
    assert result.mean == pytest.approx(converged.mean())
    assert result.mean_capped == pytest.approx((1 - result.never) * result.mean + result.never * 8)


@pytest.mark.parametrize("gold", [None, [2, 1, 3, 4]])
def test_the_worst_replicate_is_the_first_of_the_slowest(gold: list[int] | None) -> None:
    result = convergence_at_n(Study.of(R, gold=gold), 30, np.random.default_rng(4))
    slowest = int(np.where(result.at == NEVER, 8, result.at).argmax())
    assert result.worst.converged_at == result.at[slowest]
    assert result.worst.ranks.tolist() == rankings(resampled(R, draws_of(4, 30, 1)[slowest]), average())


@pytest.mark.parametrize("resample", ["columns", "rows"])
@pytest.mark.parametrize("k", [None, 2])
def test_a_subset_converges_as_if_the_others_were_not_there(k: int | None, resample: str) -> None:
    metric = Metric.of(scorio.eval.pass_at_k, k=k) if k else Metric.of(scorio.eval.bayes)
    subsets = [[3, 0], [0, 1, 2], [0, 1, 2, 3]]
    results = convergence_of_subsets(Study.of(R, metric=metric), subsets, 40, np.random.default_rng(4), resample)
    for subset, result in zip(subsets, results, strict=True):
        alone = convergence_at_n(Study.of(R[subset], metric=metric), 40, np.random.default_rng(4), resample)
        assert result.at.tolist() == alone.at.tolist() and result.worst.ranks.tolist() == alone.worst.ranks.tolist()


@pytest.mark.parametrize("resample", ["columns", "rows"])
@pytest.mark.parametrize("function", [mean for mean in MEANS if mean is not scorio.eval.g_pass_at_k_tau])
def test_looking_a_metric_up_gives_what_evaluating_it_gives(function: Callable[..., Any], resample: str) -> None:
    study = Study.of(R, metric=Metric.of(function, k=3))
    draws = draws_of(9, 12, 5 if resample == "rows" else 1)
    looked_up, evaluated = Tabled.of(study).scores(draws), replicates.Evaluated(study).scores(draws)
    assert looked_up == pytest.approx(evaluated, abs=1e-13)
    assert isinstance(replicates.scoring(study, by_question=False), Tabled)


DRAWN = np.random.default_rng(21)
SKILLED = (DRAWN.random((5, 4, 7)) < np.array([0.8, 0.6, 0.6, 0.4, 0.2])[:, None, None]).astype(int)


def draws_for(seed: int, count: int, cells: int) -> np.ndarray:
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
    curve = tau_curve(Study.of(SKILLED, metric=metric, gold=gold), 25, np.random.default_rng(6), resample)
    draws = draws_for(6, 25, 4 if resample == "rows" else 1)
    expected = mean_tau(
        [rankings(resampled(SKILLED, d), score, first) for d in draws], gold or rankings(SKILLED, average())[-1]
    )
    assert curve.tau == pytest.approx(expected)
    assert curve.trials.tolist() == list(range(first, 8))


def test_rankings_of_ties_alone_have_no_tau() -> None:
    always = np.zeros((2, 1, 6), dtype=int)
    always[0, 0, 5] = 1
    curve = tau_curve(Study.of(always), 200, np.random.default_rng(0))
    assert curve.tau == pytest.approx(1 - (5 / 6) ** np.arange(1, 7), abs=0.1)
    with pytest.raises(ValueError, match="gold must order at least two models"):
        tau_curve(Study.of(SKILLED, gold=[1, 1, 1, 1, 1]), 10, np.random.default_rng(0))


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("gold", [[1, 2, 3, 4, 5], [1, 2, 2, 4, 5]])
def test_independent_tensors_are_each_judged_by_scipy(gold: list[int], k: int | None) -> None:
    tensors = np.stack([SKILLED, SKILLED[::-1], SKILLED[:, :, ::-1]])
    metric = Metric.of(scorio.eval.pass_at_k, k=k) if k else Metric.of(scorio.eval.avg)
    score = pass_at(k) if k else average()
    curve = tau_of_tensors(tensors, metric, gold)
    histories = [rankings(tensor, score, k or 1) for tensor in tensors]
    assert curve.tau == pytest.approx(mean_tau(histories, gold))
    assert curve.trials.tolist() == list(range(k or 1, 8))


def of(function: Callable[..., Any], k: int) -> Metric:
    return Metric.of(function, k=k)


ONE, RANKS = SKILLED[np.newaxis], [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: Study.of(R[:1]), r"R must have at least 2 models and 2 trials, .* got \(1, 5, 8\)"),
        (lambda _: Study.of(R[:, :, :1]), r"at least 2 models and 2 trials, .* got \(4, 5, 1\)"),
        (lambda _: Study.of(R[0]), "R must have 3 axes"),
        (lambda _: Study.of(LEVELS), "w is omitted"),
        (lambda _: Study.of(R, gold=[1, 2, 3]), r"one rank for each of the 4 models of R, got shape \(3,\)"),
        (lambda _: Study.of(R, metric=of(scorio.eval.pass_at_k, 8)), "k must be below the 8 trials of R, .* got 8"),
        (lambda rng: convergence_at_n(Study.of(R), 10, rng, "cells"), "'columns' or 'rows', got 'cells'"),
        (lambda rng: convergence_at_n(Study.of(R), 0, rng), "replicates must be an integer >= 1, got 0"),
        *(
            (lambda rng, subset=subset: convergence_of_subsets(Study.of(R), [subset], 5, rng), "2 of the 4 models")
            for subset in ([1], [1, 1], [0, 4], [-1, 0])
        ),
        (lambda _: tau_of_tensors(SKILLED, BAYES, RANKS), "R must have 4 axes"),
        (lambda _: tau_of_tensors(ONE[..., :2], of(scorio.eval.pass_at_k, 3), RANKS), "at least 3 trials"),
        (lambda _: tau_of_tensors(ONE, of(scorio.eval.max_at_k, 3), RANKS), "mean over the questions"),
        (lambda _: tau_of_tensors(ONE, BAYES, [1] * 5), "tau is undefined"),
    ],
)
def test_what_is_impossible_is_refused(call: Callable[[np.random.Generator], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.random.default_rng(0))
