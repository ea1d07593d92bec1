"""Scores and their uncertainty: both priors, outcomes known beforehand, and models without a trial."""

import core_oracle as oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.core import Bench
from adaptive_eval.core.evidence import Estimates, Prior, estimate, update
from scorio.moments import FloatArray

PRIORS: tuple[Prior, ...] = ("uniform", "self")
BINARY = np.array([0.0, 1.0])
NAMES = Estimates.__slots__
priors = pytest.mark.parametrize("prior", ["uniform", "self"])


def some_counts(models: int, questions: int, categories: int = 2, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, (models, questions, categories))
    counts[..., 0] += counts.sum(axis=-1) == 0
    return counts


@priors
@pytest.mark.parametrize("weights", [[0.0, 1.0], [-1.0, 0.25, 3.0], [2.0, -2.0, 0.5, 1.0]])
def test_the_prior_supplies_the_variance_only(prior: Prior, weights: list[float]) -> None:
    counts = some_counts(4, 6, len(weights))
    estimates = estimate(counts, np.array(weights), prior, np.array(80))
    expected = [oracle.average(tally, weights) for tally in counts.tolist()]
    np.testing.assert_allclose(estimates.score, expected, rtol=1e-12)
    np.testing.assert_allclose(
        estimates.bayes, [oracle.bayes(tally, weights)[0] for tally in counts.tolist()], rtol=1e-12
    )
    assert np.all(estimates.var > 0.0)
    assert np.all(estimates.trial_var > 0.0)


@priors
@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100.0), shift=st.floats(-10.0, 10.0))
def test_another_unit_of_the_weights_is_another_unit_of_the_scores(
    prior: Prior, seed: int, scale: float, shift: float
) -> None:
    counts, weights = some_counts(3, 4, 3, seed), np.array([0.0, 0.5, 1.0])
    plain = estimate(counts, weights, prior, np.array(80))
    other = estimate(counts, shift + scale * weights, prior, np.array(80))
    np.testing.assert_allclose(other.score, shift + scale * plain.score, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.var, scale**2 * plain.var, rtol=1e-6)


@priors
def test_a_model_is_estimated_from_its_own_counts_alone(prior: Prior) -> None:
    """The other models in a block make no difference."""
    counts = some_counts(9, 7)
    together = estimate(counts, BINARY, prior, np.array(80))
    for model in range(9):
        alone = estimate(counts[[model]], BINARY, prior, np.array(80))
        for name in NAMES:
            np.testing.assert_allclose(getattr(alone, name)[0], getattr(together, name)[model], rtol=1e-9)


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


def test_blocks_of_models_make_no_difference() -> None:
    """Enough models for several blocks, compared with one model at a time."""
    bench = Bench(40, 9_000, BINARY)
    counts = some_counts(40, 9_000)
    estimates = update(Estimates.nothing(bench), np.arange(40), counts, bench, "self", 80)
    for model in (0, 13, 14, 15, 28, 39):
        alone = estimate(counts[[model]], BINARY, "self", np.array(80))
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
