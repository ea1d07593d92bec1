"""Scores and their uncertainty: both priors, outcomes known beforehand, and questions with weights."""

from dataclasses import replace

import core_oracle as oracle
import numpy as np
import pytest
from core_runs import BINARY, Answers, result_of, straight

from adaptive_eval.core import Baseline, Bench, Best, Plan, PrecisionOf, Threshold, Trials
from adaptive_eval.core.evidence import Estimates, Prior, estimate, update, weigh_evidence
from adaptive_eval.core.evidence_source import EvidenceSource
from adaptive_eval.core.policies import Weighted, question_weights
from scorio.moments import FloatArray, average_moments, bayes_moments, relative_weights
from scorio.sinf import coupling, difference_values, paired_moments, sampled_covariance, sampled_variance

PRIORS: tuple[Prior, ...] = ("uniform", "self")
NAMES = Estimates.__slots__
priors = pytest.mark.parametrize("prior", ["uniform", "self"])


def some_counts(models: int, questions: int, categories: int = 2, seed: int = 0) -> np.ndarray:
    counts = np.random.default_rng(seed).integers(0, 9, (models, questions, categories))
    counts[..., 0] += counts.sum(axis=-1) == 0
    return counts


def test_only_the_models_of_a_round_are_estimated_anew() -> None:
    bench = Bench(3, 4, BINARY, benchmark_of=np.array([0, 0, 1, 1]), gates=((1, 0.1),))
    first, second = some_counts(3, 4, seed=1), some_counts(3, 4, seed=2)
    before = update(Estimates.nothing(bench), np.arange(3), first, bench, "self", 80)
    after = update(before, np.array([1]), second, bench, "self", 80)
    for name in NAMES:
        assert np.array_equal(getattr(after, name)[[0, 2]], getattr(before, name)[[0, 2]])
        assert not np.array_equal(getattr(after, name)[1], getattr(before, name)[1])


@priors
def test_outcomes_known_beforehand_count_as_trials(prior: Prior) -> None:
    """On both scales, and the horizon is as many trials further away."""
    earlier, new = some_counts(2, 5, seed=3), some_counts(2, 5, seed=4)
    bench = Bench(2, 5, BINARY, prior_counts=earlier)
    estimates = update(Estimates.nothing(bench), np.arange(2), new, bench, prior, 80)
    plain = estimate(earlier + new, BINARY, prior, earlier.sum(axis=-1) + 80)
    for name in NAMES:
        np.testing.assert_array_equal(getattr(estimates, name), getattr(plain, name))
    full = new + 80 * np.array([1, 0]) - new.sum(axis=-1, keepdims=True) * np.array([1, 0])
    at_end = update(Estimates.nothing(bench), np.arange(2), full, bench, prior, 80)
    np.testing.assert_allclose(at_end.noise, at_end.noise_at_horizon, rtol=1e-12)


@priors
def test_a_model_is_estimated_from_its_own_counts_alone(prior: Prior) -> None:
    """Enough models for several blocks, compared with one model at a time."""
    bench, counts = Bench(40, 9_000, BINARY), some_counts(40, 9_000)
    estimates = update(Estimates.nothing(bench), np.arange(40), counts, bench, prior, 80)
    for model in (0, 13, 14, 15, 28, 39):
        alone = estimate(counts[[model]], BINARY, prior, np.array(80))
        for name in NAMES:
            np.testing.assert_allclose(getattr(estimates, name)[model], getattr(alone, name)[0], rtol=1e-9)


@pytest.mark.parametrize("mostly", ["best", "worst"])
def test_with_six_categories_only_the_interval_that_decides_holds_the_truth_as_often_as_it_says(mostly: str) -> None:
    """Eq. 15 (Bayes@N) is drawn to the middle, Eq. 20 (the average with its variance) is far too wide."""
    rng, weights, trials, runs = np.random.default_rng(1), np.linspace(0.0, 1.0, 6), 8, 200
    centre = np.array([0.8, 0.1, 0.04, 0.02, 0.02, 0.02][:: -1 if mostly == "best" else 1])
    chances = rng.dirichlet(4.0 * centre + 0.02, 30)
    cells = np.stack([[rng.multinomial(trials, chance) for chance in chances] for _ in range(runs)])
    uniform, empirical = (estimate(cells, weights, prior, np.array(80), bayes=True) for prior in PRIORS)
    truth = float((chances @ weights).mean())

    def coverage(mean: FloatArray, sigma: FloatArray) -> float:
        return float(np.mean(np.abs(mean - truth) <= 1.96 * sigma))

    assert coverage(uniform.bayes, np.sqrt(uniform.bayes_var)) <= 0.15
    assert coverage(uniform.score, uniform.sigma()) == 1.0
    assert 0.93 <= coverage(empirical.score, empirical.sigma()) <= 0.99


HALVES = np.array([0.0, 0.5, 1.0])
LABELS = np.repeat([0, 1], [4, 7])
WEIGHTS = np.where(LABELS == 0, 0.75 / 4, 0.25 / 7)
"""Two benchmarks of four and of seven questions, the first with three times the weight of the second."""


def test_moments_are_those_by_loops() -> None:
    weights = np.random.default_rng(1).uniform(0.1, 5.0, 11)
    for tally in some_counts(3, 11, 3).tolist():
        mean = var = bayes = bayes_var = 0.0
        for share, row in zip((weights / weights.sum()).tolist(), tally, strict=True):
            t, n = sum(row) + 3, sum(row)
            mean += share * oracle.average([row], HALVES.tolist())
            bayes += share * oracle.bayes([row], HALVES.tolist())[0]
            bayes_var += share**2 * oracle.trial_var(row, HALVES.tolist()) / (t + 1)
            var += share**2 * (t / n) ** 2 * oracle.trial_var(row, HALVES.tolist()) / (t + 1)
        n = np.array(tally)
        of = relative_weights(weights)
        np.testing.assert_allclose(average_moments(n, n + 1.0, HALVES, of), (mean, var), rtol=1e-12)
        np.testing.assert_allclose(bayes_moments(n + 1.0, HALVES, of), (bayes, bayes_var), rtol=1e-12)


def test_scores_of_simulated_trials_spread_as_the_self_centred_sigma_says() -> None:
    """Easy and hard benchmarks of unequal weight: each benchmark's variance is estimated from itself alone."""
    rng, labels, n = np.random.default_rng(3), np.repeat([0, 1], [30, 300]), 4
    g = relative_weights(np.where(labels == 0, 10.0, 1.0))
    chance = np.where(labels == 0, rng.beta(40.0, 40.0, 330), rng.beta(38.0, 2.0, 330))
    right = rng.binomial(n, chance, (1500, 330))
    counts = np.stack([n - right, right], axis=-1)
    truth = float((g**2 * chance * (1.0 - chance) / n).sum()) / 330**2
    apart = estimate(counts, BINARY, "self", np.array(80), g=g, groups=labels).var.mean()
    assert apart == pytest.approx(truth, rel=0.12)
    assert estimate(counts, BINARY, "self", np.array(80), g=g).var.mean() < 0.85 * truth, "one prior for both is not"


@priors
def test_several_benchmarks_are_the_weighted_sum_of_each_by_itself(prior: Prior) -> None:
    counts = some_counts(3, 11, 3)
    together = estimate(counts, HALVES, prior, np.array(80), g=relative_weights(WEIGHTS), groups=LABELS)
    first, second = (estimate(counts[:, label == LABELS], HALVES, prior, np.array(80)) for label in (0, 1))
    for name in ("score", "bayes"):
        np.testing.assert_allclose(getattr(together, name), 0.75 * getattr(first, name) + 0.25 * getattr(second, name))
    np.testing.assert_allclose(together.bayes_var, 0.75**2 * first.bayes_var + 0.25**2 * second.bayes_var)
    np.testing.assert_allclose(together.trial_var, np.concatenate([first.trial_var, second.trial_var], axis=1))
    if prior == "self":
        return
    np.testing.assert_allclose(together.var, 0.75**2 * first.var + 0.25**2 * second.var)
    noise, at_end = (
        (0.75 / 4) ** 2 * getattr(first, name) + (0.25 / 7) ** 2 * getattr(second, name)
        for name in ("noise", "noise_at_horizon")
    )
    np.testing.assert_allclose((together.noise / 121.0, together.noise_at_horizon / 121.0), (noise, at_end))
    information = weigh_evidence(together).information
    assert information[0] == pytest.approx((at_end[0] + at_end[1]) / (noise[0] + noise[1]))


def test_variances_on_questions_like_these_are_those_of_each_benchmark() -> None:
    d = np.random.default_rng(5).normal(size=(2, 11)) + 3.0 * LABELS
    bench = Bench(2, 11, BINARY, question_weights=WEIGHTS, benchmark_of=LABELS)
    by_hand = [0.75**2 * row[:4].var(ddof=1) / 4 + 0.25**2 * row[4:].var(ddof=1) / 7 for row in d]
    np.testing.assert_allclose(EvidenceSource().sampled_variance(d, bench), by_hand)
    clusters = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4])
    variances = EvidenceSource().sampled_variance(d, replace(bench, clusters=clusters))
    apart = [sampled_variance(d[:, label == LABELS], clusters[label == LABELS]) for label in (0, 1)]
    np.testing.assert_allclose(variances, 0.75**2 * apart[0] + 0.25**2 * apart[1])


def test_the_variance_of_a_weighted_sample_matches_repeated_draws() -> None:
    """The variance of a weighted mean of questions drawn together with their weights."""
    rng = np.random.default_rng(6)
    weights = rng.uniform(0.2, 3.0, (4000, 60))
    d = rng.normal(0.3, 1.0, weights.shape) + 0.5 * weights
    means = (weights * d).sum(axis=1) / weights.sum(axis=1)
    variances = [
        sampled_variance(differences, g=relative_weights(row_weights))
        for differences, row_weights in zip(d, weights, strict=True)
    ]
    assert np.mean(variances) == pytest.approx(means.var(), rel=0.08)
    both = sampled_covariance(d[:2], g=relative_weights(weights[0]))
    alone = sampled_variance(d[0] - d[1], g=relative_weights(weights[0]))
    assert both[0, 0] + both[1, 1] - 2.0 * both[0, 1] == pytest.approx(float(alone))


def test_trials_with_shared_seeds_are_weighed_too() -> None:
    rng, g = np.random.default_rng(7), relative_weights([4.0, 1.0, 1.0])
    x, y = rng.integers(0, 2, (2, 3, 6)).astype(float)
    d, questions = x - y, np.repeat(np.arange(3), 6)
    counts = np.stack([(d == value).sum(axis=1) for value in (-1, 0, 1)], axis=-1)
    values = difference_values(BINARY).values
    moments, flat = (paired_moments(counts, BINARY, values, 80, weights) for weights in (g, None))
    assert moments.mean == pytest.approx((g * d.mean(axis=1)).mean())
    assert moments.unit_var == pytest.approx((g**2 / 6).sum() / 9)
    single = [paired_moments(counts[:, None][at], BINARY, values, 80) for at in range(3)]
    assert flat.mean == pytest.approx(np.mean([part.mean for part in single]))
    assert moments.noise != pytest.approx(flat.noise)
    coupled = coupling(questions, x.ravel(), y.ravel(), g)
    terms = [[((part - part.mean()) ** 2).sum() / 30 for part in rows] for rows in (x, y, d)]
    of_x, of_y, of_both = (g**2 @ np.array(part) for part in terms)
    assert coupled.variance == pytest.approx(of_both / (of_x + of_y))
    root = np.sqrt(sum(g[q] ** 4 * terms[0][q] * terms[1][q] * 900 / (900 * 5) for q in range(3)))
    assert coupled.sigma == pytest.approx(2.0 * root / (of_x + of_y))


def test_trials_go_where_weight_times_spread_is() -> None:
    v = np.full((3, 11), 0.25)
    given = question_weights(v, relative_weights(WEIGHTS))
    np.testing.assert_allclose(given, np.tile(relative_weights(WEIGHTS), (3, 1)))
    assert question_weights(v[:1], relative_weights(WEIGHTS))[0, 0] > 2.0, "of a model alone, too"
    v[:, 0] = 0.04
    given = question_weights(v, relative_weights(WEIGHTS))
    low, high = (0.75 * sd / (5.2 / 11) + 0.25 for sd in (0.2, 0.5))
    assert given[0, 0] / given[0, 1] == pytest.approx(low / high)


def weighted_plan(**changed: object) -> Plan:
    bench = Bench(3, 11, BINARY, question_weights=WEIGHTS, benchmark_of=LABELS)
    base = Plan(bench, policy=Weighted(), trials=Trials(min=4, max=40))
    return replace(base, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("coupled", [False, True])
def test_a_run_with_equal_weights_takes_the_looks_of_one_without(coupled: bool) -> None:
    plain = replace(weighted_plan(), bench=Bench(3, 11, BINARY), coupled=coupled)
    equal = replace(plain, bench=Bench(3, 11, BINARY, question_weights=np.full(11, 0.1)))
    plain_run, equal_run = (straight(plan, Answers(plan, 5)) for plan in (plain, equal))
    assert plain_run.looks == equal_run.looks
    assert plain_run.result() == equal_run.result()


@pytest.mark.parametrize("objective", [Best(), Baseline(0), Threshold(0.55), PrecisionOf(0.08)])
def test_a_look_is_at_weighted_scores_and_a_run_asks_more_where_the_weight_is(objective) -> None:  # type: ignore[no-untyped-def]
    plan = weighted_plan(objective=objective)
    run = straight(plan, Answers(plan, 2, lambda model, question: (0.5, 0.55, 0.6)[model]))
    result, share = result_of(run), WEIGHTS / WEIGHTS.sum()
    means = run.counts[..., 1] / run.counts.sum(axis=-1)
    for row in result.models:
        assert row.score == pytest.approx(float(means[row.model] @ share))
    for comparison in result.comparisons:
        if comparison.verdict.second is not None and objective.reference is None:
            apart = (means[comparison.verdict.first] - means[comparison.verdict.second]) @ share
            assert comparison.difference == pytest.approx(float(apart))
    trials = run.counts.sum(axis=-1)
    heavy, light = trials[:, LABELS == 0].mean(), trials[:, LABELS == 1].mean()
    assert heavy > 2.0 * light


@pytest.mark.parametrize("trials", [(6, 60), (20, 20)])
def test_equal_models_are_called_no_more_often_than_promised(trials: tuple[int, int]) -> None:
    """Rare failures in the heavy benchmark, and models with unequal numbers of trials; promised: 10%."""
    rng, runs = np.random.default_rng(9), 4000
    labels = np.repeat([0, 1], [30, 120])
    g, chance = relative_weights(np.where(labels == 0, 4.0, 1.0)), np.where(labels == 0, 0.02, 0.5)
    right = [rng.binomial(n, chance, (runs, 150)) for n in trials]
    first, second = (
        estimate(np.stack([n - successes, successes], axis=-1), BINARY, "self", np.array(80), g=g, groups=labels)
        for n, successes in zip(trials, right, strict=True)
    )
    z = (first.score - second.score) / np.sqrt(first.var + second.var)
    assert np.mean(z > 1.645) < 0.056
    assert np.mean(z < -1.645) < 0.056
