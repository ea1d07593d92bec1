"""A hundred thousand trials and fifty thousand draws: nothing overflows, and the digits stay."""

import math

import numpy as np
import pytest
from eval_calls import binary

import scorio.eval as scorio_eval
from scorio.counts import Counts

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
    rng = np.random.default_rng(11)
    kinds = rng.integers(0, 9, (5, 4))
    kinds[:, 0] += 40 - kinds.sum(axis=1)
    times = np.array([1, 10_000, 49_999, 30_000, 10_000])
    w = [0.0, 0.2, 0.5, 1.0]
    mu, sigma, _, _ = scorio_eval.max_at_k_ci(Counts(n=np.repeat(kinds, times, axis=0), w=w), 8)
    by_kind = [scorio_eval.max_at_k_ci(Counts(n=[kind], w=w), 8) for kind in kinds]
    assert mu == pytest.approx(sum(t * row[0] for t, row in zip(times, by_kind, strict=True)) / 100_000, rel=1e-11)
    var = sum(t * row[1] ** 2 for t, row in zip(times, by_kind, strict=True))
    assert sigma == pytest.approx(math.sqrt(var) / 100_000, rel=1e-10)
