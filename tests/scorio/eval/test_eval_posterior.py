"""Posterior moments, intervals and corrected scores against quadrature, enumeration and the formulas of the paper."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from eval_oracles import best_reward, beta_mean, binary_scores, latent, posterior_mean_var, share_score, spectrum_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtrc
from scipy.stats import binom

import scorio.eval as scorio_eval
from scorio._normal import normal_interval, one_sided_z, two_sided_z
from scorio.eval import corrected
from scorio.eval._posterior import posterior_moments
from scorio.eval._scores import Score, above_half, all_successes, any_success, area, distinct, majority, share, spectrum

OUTCOMES = np.array([[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1]])


@pytest.mark.parametrize("name", sorted(binary_scores(1)))
@pytest.mark.parametrize(("k", "alpha0", "beta0"), [(1, "0.5", "0.5"), (2, "1.25", "3"), (3, "1", "1")])
def test_a_summary_is_that_of_polyas_urn(name: str, k: int, alpha0: str, beta0: str) -> None:
    score = binary_scores(k)[name]
    means, variances = [], []
    for row in OUTCOMES:
        parameters = [Fraction(beta0) + 3 - int(row.sum()), Fraction(alpha0) + int(row.sum())]
        mean, var = posterior_mean_var(parameters, k, score)
        means.append(mean)
        variances.append(var)
    mu, sigma, lo, hi = getattr(scorio_eval, name + "_ci")(
        OUTCOMES, k, bounds=None, alpha0=float(Fraction(alpha0)), beta0=float(Fraction(beta0))
    )
    assert mu == pytest.approx(float(sum(means)) / 4, rel=1e-12, abs=1e-15)
    assert sigma == pytest.approx(math.sqrt(sum(variances)) / 4, rel=1e-12, abs=1e-15)
    assert (lo, hi) == pytest.approx((mu - 1.959963984540054 * sigma, mu + 1.959963984540054 * sigma), abs=1e-14)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("tau", ["0", "0.5", "2/3", "1"])
def test_thresholds_by_polyas_urn(k: int, tau: str) -> None:
    mean, var = posterior_mean_var([Fraction(3), Fraction(2)], k, share_score(k, Fraction(tau)))
    mu, sigma, _, _ = scorio_eval.g_pass_at_k_tau_ci([[1, 0, 0]], k, float(Fraction(tau)))
    assert (mu, sigma) == pytest.approx((float(mean), float(var) ** 0.5), rel=1e-12)


def test_a_spectrum_by_polyas_urn_takes_more_draws_than_there_are_trials() -> None:
    weights = [Fraction(1, 10), Fraction(3, 10), Fraction(1, 10), Fraction(2, 10)]
    mean, var = posterior_mean_var([Fraction(3), Fraction(2)], 4, spectrum_of(weights))
    mu, sigma, _, _ = scorio_eval.threshold_spectrum_at_k_ci([[1, 0, 0]], 4, [float(w) for w in weights])
    assert (mu, sigma) == pytest.approx((float(mean), float(var) ** 0.5), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("w", [["0", "0.5", "1"], ["1", "-2", "0.3"], ["1", "0", "1"]])
def test_the_best_reward_by_polyas_urn(k: int, w: list[str]) -> None:
    outcomes, prior = [[0, 2, 1, 1], [2, 2, 2, 0]], [[1], [0]]
    weights = [Fraction(x) for x in w]
    moments = [
        posterior_mean_var([Fraction(1 + row.count(c) + early.count(c)) for c in range(3)], k, best_reward(weights))
        for row, early in zip(outcomes, prior, strict=True)
    ]
    mu, sigma, lo, hi = scorio_eval.max_at_k_ci(outcomes, k, [float(x) for x in weights], prior)
    assert mu == pytest.approx(float(sum(mean for mean, _ in moments)) / 2, rel=1e-12)
    assert sigma == pytest.approx(math.sqrt(sum(var for _, var in moments)) / 2, rel=1e-12)
    assert float(min(weights)) <= lo <= mu <= hi <= float(max(weights))


def test_max_at_one_is_bayes() -> None:
    outcomes, w, prior = [[0, 3, 1, 1], [2, 2, 2, 0]], [0.3, -1.0, 0.3, 2.0], [[1, 3], [0, 0]]
    for bounds in (None, (0.0, 0.5)):
        best = scorio_eval.max_at_k_ci(outcomes, 1, w, prior, 0.9, bounds or (-1.0, 2.0))
        assert best == pytest.approx(scorio_eval.bayes_ci(outcomes, w, prior, 0.9, bounds or (-1.0, 2.0)), rel=1e-12)


MEMBERS: dict[str, Callable[[int], Score]] = {
    "any": any_success,
    "all": all_successes,
    "majority": majority,
    "share": lambda k: share(k, 0.3),
    "above_half": above_half,
    "area": area,
    "spectrum": lambda k: spectrum(np.full(k, 0.7 / k)),
}


@pytest.mark.parametrize("member", sorted(MEMBERS))
@pytest.mark.parametrize(
    ("successes", "failures", "k", "alpha0", "beta0"),
    [(0, 80, 32, 1.0, 1.0), (63, 17, 32, 1.0, 1.0), (5, 0, 7, 0.1, 0.5), (40, 3, 12, 2.5, 40.0), (1, 1, 20, 0.9, 1e-3)],
)
def test_moments_by_quadrature(member: str, successes: int, failures: int, k: int, alpha0: float, beta0: float) -> None:
    score = MEMBERS[member](k)
    scores = score.dense().tolist()
    a, b = alpha0 + successes, beta0 + failures

    def value(p: float) -> float:
        return latent(k, scores, p)

    mean = beta_mean(a, b, value)
    var = beta_mean(a, b, lambda p: (value(p) - mean) ** 2)
    got = posterior_moments((score,), distinct(np.array([successes]), np.array([failures])), alpha0, beta0)
    assert got.mean[0, 0] == pytest.approx(mean, rel=1e-9, abs=1e-13)
    assert got.cov[0, 0, 0] == pytest.approx(var, rel=1e-8, abs=1e-15)


@pytest.mark.parametrize("k", [1, 2, 9])
def test_blends_by_quadrature(k: int) -> None:
    outcomes = np.array([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]])
    powers = 0.3, 0.6
    any_of, all_of = any_success(k).dense().tolist(), all_successes(k).dense().tolist()
    moments = []
    for row in outcomes:
        a, b = 1.0 + row.sum(), 5.0 - row.sum()
        x, y = (beta_mean(a, b, lambda p, s=s: latent(k, s, p)) for s in (any_of, all_of))
        xx, yy, xy = (
            beta_mean(a, b, lambda p, s=s, t=t: latent(k, s, p) * latent(k, t, p))
            for s, t in ((any_of, any_of), (all_of, all_of), (any_of, all_of))
        )
        moments.append((x, y, xx - x * x, yy - y * y, xy - x * y))

    def blend(x: float, y: float, vx: float, vy: float, c: float) -> tuple[float, float]:
        g = x ** powers[0] * y ** powers[1]
        dx, dy = powers[0] * g / x, powers[1] * g / y
        return g, dx * dx * vx + dy * dy * vy + 2.0 * dx * dy * c

    blends = [blend(*row) for row in moments]
    mu, sigma, _, _ = scorio_eval.geom_at_k_ci(outcomes, k, *powers)
    assert mu == pytest.approx(sum(g for g, _ in blends) / 3, rel=1e-9)
    assert sigma == pytest.approx(math.sqrt(sum(v for _, v in blends)) / 3, rel=1e-8)
    x, y = (sum(column) / 3 for column in list(zip(*moments, strict=True))[:2])
    pooled = [sum(column) / 9 for column in list(zip(*moments, strict=True))[2:]]
    g, var = blend(x, y, *pooled)
    mu, sigma, _, _ = scorio_eval.geom_ds_at_k_ci(outcomes, k, *powers)
    assert (mu, sigma) == pytest.approx((g, math.sqrt(var)), rel=1e-8)


def test_a_spectrum_blend_at_its_ends_is_pass_or_the_spectrum() -> None:
    outcomes, k = [[1, 0, 0, 1], [1, 1, 0, 1]], 3
    weights = [0.2, 0.3, 0.5]
    assert scorio_eval.geo_spectrum_at_k_ci(outcomes, k, 1.0) == pytest.approx(scorio_eval.pass_at_k_ci(outcomes, k))
    assert scorio_eval.geo_spectrum_at_k_ci(outcomes, k, 0.0) == pytest.approx(scorio_eval.mg_pass_at_k_ci(outcomes, k))
    assert scorio_eval.geo_spectrum_at_k_ci(outcomes, k, lambda_=0.0, weights=weights) == pytest.approx(
        scorio_eval.threshold_spectrum_at_k_ci(outcomes, k, weights)
    )


def test_a_spectrum_that_is_always_zero_has_no_uncertainty() -> None:
    assert scorio_eval.mg_pass_at_k_ci([[1, 0]], 1) == (0.0, 0.0, 0.0, 0.0)
    assert scorio_eval.geo_spectrum_star_at_k_ci([[1, 0]], 1) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("n", "k", "needed"),
    [
        (100_000, 3, 2),
        pytest.param(50, 50_000, 20_000, marks=pytest.mark.slow),
        pytest.param(100_000, 50_000, 30_000, marks=pytest.mark.slow),
    ],
)
def test_many_trials_and_draws_by_quadrature(n: int, k: int, needed: int) -> None:
    """P(at least `needed` of k) is the binomial tail, which is known without summing 50,000 terms."""
    successes = int(n * needed / k)
    score = share(k, needed / k)
    assert score.first == needed
    got = posterior_moments((score,), distinct(np.array([successes]), np.array([n - successes])))
    mean = beta_mean(1.0 + successes, 1.0 + n - successes, lambda p: float(bdtrc(needed - 1, k, p)))
    var = beta_mean(1.0 + successes, 1.0 + n - successes, lambda p: (float(bdtrc(needed - 1, k, p)) - mean) ** 2)
    assert got.mean[0, 0] == pytest.approx(mean, rel=1e-8)
    assert got.cov[0, 0, 0] == pytest.approx(var, rel=1e-7)


def test_tables_are_cut_into_blocks_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = area(40), any_success(40), majority(40)
    successes, failures = np.arange(60), np.arange(60)[::-1]
    in_one_block = posterior_moments(scores, distinct(successes, failures))
    monkeypatch.setattr("scorio.eval._posterior.CELLS", 300)
    cut = posterior_moments(scores, distinct(successes, failures))
    assert cut.mean == pytest.approx(in_one_block.mean, rel=1e-13)
    assert cut.cov == pytest.approx(in_one_block.cov, rel=1e-12)


def test_the_quantiles_of_the_paper() -> None:
    assert round(one_sided_z(0.95), 3) == 1.645
    assert round(one_sided_z(0.975), 2) == 1.96
    assert round(two_sided_z(0.95), 2) == 1.96
    assert two_sided_z(0.9) == pytest.approx(one_sided_z(0.95))


@given(confidence=st.floats(1e-6, 1.0 - 1e-6))
def test_quantiles_invert_the_normal_distribution(confidence: float) -> None:
    assert 0.5 * math.erfc(-one_sided_z(confidence) / math.sqrt(2.0)) == pytest.approx(confidence, rel=1e-9)
    assert math.erf(two_sided_z(confidence) / math.sqrt(2.0)) == pytest.approx(confidence, rel=1e-9)


def test_a_mean_outside_the_bounds_gives_the_bound() -> None:
    assert normal_interval(1.2, 0.01, 0.95, (0.0, 1.0)) == (1.0, 1.0)
    assert normal_interval(-3.0, 0.01, 0.95, (0.0, 1.0)) == (0.0, 0.0)


@given(
    mean=st.floats(-5, 5),
    sigma=st.floats(0, 5),
    confidence=st.floats(0.01, 0.99),
    ends=st.tuples(st.floats(-5, 5), st.floats(-5, 5)),
)
def test_an_interval_is_never_inverted(mean: float, sigma: float, confidence: float, ends: tuple[float, float]) -> None:
    low, high = sorted(ends)
    lo, hi = normal_interval(mean, sigma, confidence, (low, high))
    assert low <= lo <= hi <= high
    los, his = normal_interval(np.full(3, mean), np.full(3, sigma), confidence, (low, high))
    np.testing.assert_array_equal(los, lo)
    np.testing.assert_array_equal(his, hi)


def graded_trials(seed: int, questions: int = 30, trials: int = 16, errs: tuple[float, float] = (0.05, 0.15)):  # type: ignore[no-untyped-def]
    """The truth by question, the label a person would give each trial, and the grade."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(1.2, 1.2, questions)
    right = rng.random((questions, trials)) < chance[:, None]
    wrong = np.where(right, rng.random(right.shape) < errs[0], rng.random(right.shape) < errs[1])
    return chance, right.astype(float), (right ^ wrong).astype(float)


def test_with_one_question_the_estimate_is_the_formula_of_the_paper() -> None:
    _, right, graded = graded_trials(1, questions=1, trials=4000)
    at = np.arange(800)
    estimate = (float(graded.mean()), float(graded.std(ddof=1) / np.sqrt(graded.size)))
    estimated = corrected(
        estimate, graded[0, at], right[0, at], np.zeros(800, dtype=int), means=graded.mean(axis=1), trials=[4000]
    )
    rectifier = right[0, at] - graded[0, at]
    assert estimated.mu == pytest.approx(graded.mean() + rectifier.mean())
    assert estimated.shift_sigma**2 == pytest.approx(rectifier.var(ddof=1) / 800, rel=0.04)
    # the paper's has its labels beside the predictions, so that the two are independent; what they share narrows it
    independent = np.sqrt(graded.var() / graded.size + rectifier.var(ddof=1) / 800)
    shared = 2.0 * np.cov(graded[0, at], rectifier)[0, 1] / graded.size
    assert estimated.sigma == pytest.approx(np.sqrt(independent**2 + shared), rel=0.02)


def test_with_every_trial_labelled_the_estimate_is_the_mean_label() -> None:
    _, right, graded = graded_trials(2)
    where = np.repeat(np.arange(30), 16)
    inner = np.sqrt((graded.var(axis=1, ddof=1) / 16).sum()) / 30
    estimated = corrected(
        (float(graded.mean()), float(inner)),
        graded.ravel(),
        right.ravel(),
        where,
        means=graded.mean(axis=1),
        trials=np.full(30, 16),
    )
    assert estimated.mu == pytest.approx(right.mean())
    truth = np.sqrt((right.var(axis=1, ddof=1) / 16).sum()) / 30
    assert estimated.sigma == pytest.approx(truth, rel=0.12)


@pytest.mark.parametrize(("labels", "trials", "errs"), [(60, 8, (0.1, 0.1)), (200, 16, (0.05, 0.15))])
def test_corrected_intervals_cover_where_graded_may_not(labels: int, trials: int, errs: tuple[float, float]) -> None:
    held = alone = 0
    for seed in range(200):
        chance, right, graded = graded_trials(seed, trials=trials, errs=errs)
        rng = np.random.default_rng((seed, 1))
        order = rng.random(right.shape).argsort(axis=1)
        pairs = [(q, order[q, turn]) for turn in range(trials) for q in rng.permutation(30)][:labels]
        q, t = np.array(pairs).T
        shares = (graded.sum(axis=1) + 0.5) / (trials + 1)
        sigma = float(np.sqrt((shares * (1 - shares) / trials).sum()) / 30)
        estimated = corrected(
            (float(graded.mean()), sigma),
            graded[q, t],
            right[q, t],
            q,
            means=graded.mean(axis=1),
            trials=np.full(30, trials),
        )
        held += abs(estimated.mu - chance.mean()) <= 1.96 * estimated.sigma
        alone += abs(graded.mean() - chance.mean()) <= 1.96 * sigma
    assert 0.915 <= held / 200 <= 0.99
    assert errs[0] == errs[1] or alone / 200 < 0.6


@pytest.mark.parametrize("labels", [20, 60, 240])
def test_intervals_hold_rare_errors_that_few_labels_may_not_show(labels: int) -> None:
    """A judge only errs in favour of the model, in any share of its answers; the score itself is exact."""
    where, seen = np.arange(labels), np.arange(labels + 1)
    found = [
        corrected((0.6, 0.0), np.ones(labels), where >= k, where, means=np.full(1000, 0.6), trials=np.full(1000, 100))
        for k in seen
    ]
    shift, sigma = np.array([(each.shift, each.sigma) for each in found]).T
    for errs in np.arange(0.2, 8.0, 0.1) / labels:
        holds = np.abs(shift + errs) <= 1.96 * sigma
        assert binom.pmf(seen, labels, errs) @ holds > 0.93


@pytest.mark.parametrize(
    ("graded", "labelled", "questions", "trials", "message"),
    [
        ([1.0], [1.0], [0], [3], "2 at least"),
        ([1.0, 0.0], [1.0], [0, 0], [3], "one length"),
        ([1.0, 0.0], [1.0, 0.0], [0, 1], [3], "each question"),
        ([1.0, 0.0], [1.0, 0.0], [0, 0], [0], "positive"),
        ([1.0, float("nan")], [1.0, 0.0], [0, 0], [3], "graded"),
    ],
)
def test_input_that_cannot_be_corrected_is_refused(
    graded: list[float], labelled: list[float], questions: list[int], trials: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        corrected((0.5, 0.1), graded, labelled, questions, means=[0.5], trials=trials)
