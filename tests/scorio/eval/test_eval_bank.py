"""The finite-bank estimates against the mean over all subsets of the trials, and with a hundred thousand of them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from eval_calls import binary
from eval_oracles import bank_mean, best_reward, binary_scores, integral_of_half, share_score, spectrum_of

import scorio.eval as scorio_eval
from scorio.counts import Counts
from scorio.eval._scores import all_successes, area, bank_values, distinct, majority, share

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


N, K = 100_000, 50_000


def model(*successes: int, trials: int = N) -> Counts:
    return Counts(n=[[trials - c, c] for c in successes], w=[0.0, 1.0])


def ratio(numerator: int, denominator: int) -> float:
    """The quotient of two huge integers."""
    return ((numerator << 200) // denominator) / (1 << 200)


@pytest.mark.slow
def test_every_function_is_finite() -> None:
    counts = model(0, 1, 7, 40_000, 50_000, N - 1, N)
    for name, call in binary(K).items():
        values = np.atleast_1d(call(counts))
        assert np.isfinite(values).all(), name
        assert -1e-12 <= values[0] <= 1.0 + 1e-12, name


@pytest.mark.parametrize(
    ("successes", "k"),
    [
        (1, K),
        pytest.param(20, K, marks=pytest.mark.slow),
        (N - 3, K),
        pytest.param(N - 1, 1, marks=pytest.mark.slow),
        (1, 1),
        (40_000, 5),
    ],
)
def test_all_and_any_of_the_bank(successes: int, k: int) -> None:
    every = ratio(math.comb(successes, k), math.comb(N, k))
    missed = ratio(math.comb(N - successes, k), math.comb(N, k))
    assert scorio_eval.pass_hat_k(model(successes), k) == pytest.approx(every, rel=1e-9)
    assert scorio_eval.pass_at_k(model(successes), k) == pytest.approx(1.0 - missed, rel=1e-9)
    assert scorio_eval.max_at_k(model(successes), k) == pytest.approx(1.0 - missed, rel=1e-9)


@pytest.mark.parametrize(
    ("successes", "k"), [(40_000, 5), (N - 1, 1), (1, 1), pytest.param(N - 5, K, marks=pytest.mark.slow)]
)
def test_all_and_any_of_the_posterior(successes: int, k: int) -> None:
    """E[p^m] = (a)_m / (a+b)_m, in integers."""
    a, total = successes + 1, N + 2

    def moment(m: int) -> int:
        return (math.perm(a + m - 1, m) << 400) // math.perm(total + m - 1, m)

    first, second = moment(k), moment(2 * k)
    mean, var = first / (1 << 400), (second - (first * first >> 400)) / (1 << 400)
    mu, sigma, _, _ = scorio_eval.pass_hat_k_ci(model(successes), k)
    assert (mu, sigma) == pytest.approx((mean, math.sqrt(var)), rel=1e-9)
    mu, sigma, _, _ = scorio_eval.pass_at_k_ci(model(N - successes), k)
    assert (mu, sigma) == pytest.approx((1.0 - mean, math.sqrt(var)), rel=1e-9)


@pytest.mark.parametrize("successes", [0, 1, 30, 50_000, N])
def test_one_draw_is_bayes_however_many_trials(successes: int) -> None:
    expected = scorio_eval.bayes(model(successes))
    for name in ("pass_at_k_ci", "pass_hat_k_ci", "auc_at_k_ci", "maj_at_k_ci", "geom_at_k_ci", "max_at_k_ci"):
        assert getattr(scorio_eval, name)(model(successes), 1)[:2] == pytest.approx(expected, rel=1e-9), name


@pytest.mark.slow
def test_the_area_under_fifty_thousand_points() -> None:
    """AUC@K from E[(1-p)^i] = (b)_i / (a+b)_i, and its square from the trapezoid's weights convolved."""
    from scipy.signal import fftconvolve  # here, since it loads slowly, and every worker reads this file

    trapezoid = np.full(K + 1, 1.0 / (K - 1))
    trapezoid[[1, K]] /= 2.0
    trapezoid[0] = 0.0
    successes, trials = 3, 50
    i = np.arange(2 * K)
    miss = np.concatenate([[1.0], np.cumprod((trials - successes + 1.0 + i) / (trials + 2.0 + i))])
    missed, both = trapezoid @ miss[: K + 1], np.maximum(fftconvolve(trapezoid, trapezoid), 0.0) @ miss
    mu, sigma, _, _ = scorio_eval.auc_at_k_ci(Counts(n=[[47, 3], [0, N]], w=[0, 1]), K)
    other = scorio_eval.auc_at_k_ci(model(N), K)
    assert 2.0 * mu - other[0] == pytest.approx(1.0 - missed, rel=1e-9)
    assert 4.0 * sigma**2 - other[1] ** 2 == pytest.approx(both - missed**2, rel=1e-6)


def test_many_questions_cost_no_more_than_their_distinct_counts() -> None:
    """A hundred thousand questions of four grades, against the same questions counted with multiplicity."""
    kinds = np.random.default_rng(11).integers(0, 9, (5, 4))
    kinds[:, 0] += 40 - kinds.sum(axis=1)
    times = np.array([1, 10_000, 49_999, 30_000, 10_000])
    w = [0.0, 0.2, 0.5, 1.0]
    mu, sigma, _, _ = scorio_eval.max_at_k_ci(Counts(n=np.repeat(kinds, times, axis=0), w=w), 8)
    by_kind = [scorio_eval.max_at_k_ci(Counts(n=[kind], w=w), 8) for kind in kinds]
    assert mu == pytest.approx(sum(t * row[0] for t, row in zip(times, by_kind, strict=True)) / 100_000, rel=1e-11)
    var = sum(t * row[1] ** 2 for t, row in zip(times, by_kind, strict=True))
    assert sigma == pytest.approx(math.sqrt(var) / 100_000, rel=1e-10)
