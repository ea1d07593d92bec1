"""The finite-bank estimates against the mean over all subsets of the trials."""

import math
from fractions import Fraction

import numpy as np
import pytest
from eval_oracles import bank_mean, best_reward, binary_scores, integral_of_half, share_score, spectrum_of

import scorio.eval as scorio_eval
from scorio.counts import Counts
from scorio.eval._scores import (
    all_successes,
    area,
    bank_values,
    distinct,
    majority,
    share,
)

OUTCOMES = np.array(
    [[0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]
)


@pytest.mark.parametrize("name", sorted(binary_scores(1)))
def test_a_metric_is_its_mean_over_all_subsets(name: str) -> None:
    for k in range(1, 7):
        expected = bank_mean(OUTCOMES, k, binary_scores(k)[name])
        assert getattr(scorio_eval, name)(OUTCOMES, k) == pytest.approx(float(expected), rel=1e-13, abs=1e-15), k


@pytest.mark.parametrize("k", [2, 4, 6])
def test_mg_pass_is_the_integral_over_thresholds_where_k_is_even(k: int) -> None:
    expected = bank_mean(OUTCOMES, k, spectrum_of(integral_of_half(k)))
    assert scorio_eval.mg_pass_at_k(OUTCOMES, k) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("tau", ["0", "0.01", "1/3", "0.5", "2/3", "0.75", "1"])
def test_thresholds(tau: str) -> None:
    for k in range(1, 7):
        expected = bank_mean(OUTCOMES, k, share_score(k, Fraction(tau)))
        got = scorio_eval.g_pass_at_k_tau(OUTCOMES, k, float(Fraction(tau)))
        assert got == pytest.approx(float(expected), rel=1e-13, abs=1e-15), k


def test_a_threshold_that_is_whole_but_for_rounding_is_whole() -> None:
    assert 0.28 * 25 > 7.0
    assert scorio_eval.g_pass_at_k_tau([[1] * 7 + [0] * 18], 25, 0.28) == 1.0
    for k in range(2, 200):
        assert share(k, (k // 2 + 1) / k).dense().tolist() == majority(k).dense().tolist()


@pytest.mark.parametrize("k", range(1, 7))
def test_a_threshold_spectrum(k: int) -> None:
    weights = [Fraction(r, k * k) for r in range(1, k + 1)]
    expected = bank_mean(OUTCOMES, k, spectrum_of(weights))
    got = scorio_eval.threshold_spectrum_at_k(OUTCOMES, k, [float(w) for w in weights])
    assert got == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.parametrize("k", range(1, 7))
def test_blends(k: int) -> None:
    scores = binary_scores(k)
    chance = {name: float(bank_mean(OUTCOMES, k, scores[name])) for name in ("pass_at_k", "pass_hat_k", "mg_pass_at_k")}
    values = [
        float(bank_mean([row], k, scores["pass_at_k"])) ** 0.3 * float(bank_mean([row], k, scores["pass_hat_k"])) ** 0.6
        for row in OUTCOMES
    ]
    assert scorio_eval.geom_at_k(OUTCOMES, k, 0.3, 0.6) == pytest.approx(math.fsum(values) / len(values), rel=1e-13)
    assert scorio_eval.geom_ds_at_k(OUTCOMES, k, 0.3, 0.6) == pytest.approx(
        chance["pass_at_k"] ** 0.3 * chance["pass_hat_k"] ** 0.6, rel=1e-13
    )
    star = math.sqrt(chance["pass_at_k"] * chance["mg_pass_at_k"])
    assert scorio_eval.geo_spectrum_star_at_k(OUTCOMES, k) == pytest.approx(star, rel=1e-13)
    assert scorio_eval.geo_spectrum_at_k(OUTCOMES, k, lam=1.0) == pytest.approx(chance["pass_at_k"], rel=1e-13)
    weights = [Fraction(1, 2 * k)] * k
    other = float(bank_mean(OUTCOMES, k, spectrum_of(weights)))
    assert scorio_eval.geo_spectrum_at_k(OUTCOMES, k, 0.2, [1 / (2 * k)] * k) == pytest.approx(
        chance["pass_at_k"] ** 0.2 * other**0.8, rel=1e-13
    )


@pytest.mark.parametrize("k", range(1, 6))
@pytest.mark.parametrize("w", [["0", "1", "2", "3"], ["1", "-2", "0.3", "0.3"], ["0.5", "0.5", "0.5", "0.5"]])
def test_the_best_reward_of_a_subset(k: int, w: list[str]) -> None:
    outcomes = np.array([[0, 1, 2, 3, 3], [0, 0, 0, 0, 0], [3, 1, 1, 0, 2]])
    expected = bank_mean(outcomes, k, best_reward([Fraction(x) for x in w]))
    assert scorio_eval.max_at_k(outcomes, k, [float(x) for x in w]) == pytest.approx(float(expected), rel=1e-13)


def test_max_at_k_of_a_binary_reward_is_pass_at_k() -> None:
    for k in range(1, 7):
        assert scorio_eval.max_at_k(OUTCOMES, k) == pytest.approx(scorio_eval.pass_at_k(OUTCOMES, k), rel=1e-14)


def test_a_table_is_cut_into_blocks_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    successes, failures = np.arange(40), np.arange(40)[::-1] + 3
    in_one_block = bank_values((all_successes(3), area(3)), distinct(successes, failures))
    monkeypatch.setattr("scorio.eval._scores.CELLS", 12)
    assert bank_values((all_successes(3), area(3)), distinct(successes, failures)) == pytest.approx(
        in_one_block, rel=1e-14
    )


@pytest.mark.parametrize("k", [1, 2, 9])
def test_the_naive_pass_hat_takes_shares_for_chances(k: int) -> None:
    rows = [[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]
    exact = sum(1 - (1 - Fraction(sum(row), 4)) ** k for row in rows) / 4
    assert scorio_eval.naive_pass_hat_k(rows, k) == pytest.approx(float(exact), rel=1e-14)
    ragged = Counts(n=[[1, 3], [2, 1]], w=[0, 1])
    missed = Fraction(1, 4) ** k + Fraction(2, 3) ** k
    assert scorio_eval.naive_pass_hat_k(ragged, k) == pytest.approx(float(1 - missed / 2))
    with pytest.raises(ValueError, match="R must have a trial of every question"):
        scorio_eval.naive_pass_hat_k(Counts(n=[[1, 3], [0, 0]], w=[0, 1]), k)
