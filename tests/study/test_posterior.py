"""The sampler compared with quadrature and with itself: joint draws of data and unknowns keep the prior."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom, kstest, norm, sem
from scipy.stats import t as student
from thoroughness import sizes

from adaptive_eval.simulate.worlds import BINARY, shared_difficulty
from adaptive_eval.study.worlds import BURN_IN, CENTRE_SD, FREEDOM, SCALES, Sampler, Stick, posterior_chances

CHAINS = 1500


def half_t(scale: float, values: np.ndarray) -> np.ndarray:
    """Distribution function of a half-t variable."""
    return np.asarray(2.0 * student(FREEDOM, scale=scale).cdf(values) - 1.0)


def prior_theta(models: int, questions: int, rng: np.random.Generator) -> np.ndarray:
    """Logits (L, M) under the sampler's prior."""
    ability, difficulty, taste = (abs(student(FREEDOM, scale=scale).rvs(random_state=rng)) for scale in SCALES.values())
    a = rng.normal(rng.normal(0.0, CENTRE_SD), ability, (models, 1))
    b = rng.normal(0.0, difficulty, questions)
    return np.asarray(a + b + rng.normal(0.0, taste, (models, questions)))


def test_the_sampler_preserves_the_joint_distribution() -> None:
    """Geweke (2004): unknowns from their prior, data given unknowns, unknowns given data, and so on.

    Whatever step were wrong, the unknowns would drift away from their prior; chains are independent, so that a test of
    Kolmogorov and Smirnov says how far.
    """
    rng = np.random.default_rng(11)
    trials = np.array([[3, 0, 5, 1], [2, 4, 0, 1], [1, 1, 8, 0]])
    sampler = Sampler(Stick(np.zeros_like(trials), trials), CHAINS, rng)
    sampler.ability, sampler.difficulty, sampler.taste = (
        student(FREEDOM, scale=scale).rvs(CHAINS, random_state=rng) ** 2 for scale in SCALES.values()
    )
    sampler.mu = rng.normal(0.0, CENTRE_SD, CHAINS)
    sampler.a = sampler.mu[:, None] + np.sqrt(sampler.ability)[:, None] * rng.standard_normal((CHAINS, 3))
    sampler.b = np.sqrt(sampler.difficulty)[:, None] * rng.standard_normal((CHAINS, 4))
    taste = np.sqrt(sampler.taste)[:, None, None] * rng.standard_normal((CHAINS, 3, 4))
    sampler.theta = sampler.a[:, :, None] + sampler.b[:, None, :] + taste
    for _ in range(40):
        sampler._k = rng.binomial(trials, expit(sampler.theta)).astype(float)
        sampler.sweep()
    uniforms = {
        "ability": half_t(SCALES["ability"], np.sqrt(sampler.ability)),
        "difficulty": half_t(SCALES["difficulty"], np.sqrt(sampler.difficulty)),
        "taste": half_t(SCALES["taste"], np.sqrt(sampler.taste)),
        "mu": norm.cdf(sampler.mu / CENTRE_SD),
        "a": norm.cdf((sampler.a[:, 0] - sampler.mu) / np.sqrt(sampler.ability)),
        "b": norm.cdf(sampler.b[:, 1] / np.sqrt(sampler.difficulty)),
    }
    residuals = sampler.theta - sampler.a[:, :, None] - sampler.b[:, None, :]
    for model, question in ((0, 0), (0, 1), (2, 2)):
        uniforms[f"e{model}{question}"] = norm.cdf(residuals[:, model, question] / np.sqrt(sampler.taste))
    for name, uniform in uniforms.items():
        assert kstest(uniform, "uniform").pvalue > 1e-3, name


def test_one_question_of_one_model_against_quadrature() -> None:
    """Its logit is normal with the four variances together, averaged over quantiles of the half-t ones."""
    right, trials = 7, 9
    levels = (np.arange(12) + 0.5) / 12
    spreads = [student(FREEDOM, scale=scale).ppf(0.5 + levels / 2.0) ** 2 for scale in SCALES.values()]
    sd = np.sqrt(CENTRE_SD**2 + np.add.outer(np.add.outer(*spreads[:2]), spreads[2])).ravel()
    theta = np.linspace(-30.0, 30.0, 801)
    density = norm.pdf(theta[:, None], scale=sd).mean(axis=1) * binom.pmf(right, trials, expit(theta))
    density /= density.sum()
    mean = float(density @ expit(theta))
    sd_of = float(np.sqrt(density @ expit(theta) ** 2 - mean**2))
    stick = Stick(np.array([[right]]), np.array([[trials]]))
    sampler = Sampler(stick, CHAINS, np.random.default_rng(2))
    for _ in range(BURN_IN):
        sampler.sweep()
    draws = expit(sampler.theta)
    assert draws.mean() == pytest.approx(mean, abs=0.014)
    assert draws.std() == pytest.approx(sd_of, rel=0.07)


@pytest.mark.parametrize("worlds", sizes(15, 120))
def test_true_scores_have_uniform_ranks_among_the_draws(worlds: int) -> None:
    """Over pilots of many worlds: neither shrunk together, as by a flat prior a question, nor spread by their noise.

    Worlds come from the sampler's own prior, for then the rank of the truth among its draws is uniform to the digit
    (Talts et al. 2018): mean 1/2, and variance (1 + 2/draws)/12 of the share of draws below it.
    """
    rng = np.random.default_rng(4)
    draws = 40
    ranks, spread = [], []
    for _ in range(worlds):
        theta = prior_theta(8, 20, rng)
        world = np.stack([expit(-theta), expit(theta)], axis=-1)
        counts, truth = rng.multinomial(4, world), (world @ BINARY).mean(axis=1)
        scores = np.array([(draw @ BINARY).mean(axis=1) for draw in posterior_chances(counts, BINARY, draws, rng)])
        ranks.append((scores < truth).mean(axis=0))
        spread.append((scores.std(axis=1).mean(), truth.std()))
    off = np.subtract(ranks, 0.5)
    assert abs(off.mean()) < 4.0 * sem(off.mean(axis=1))
    apart = np.square(off).mean(axis=1) - (1.0 + 2.0 / draws) / 12.0
    assert abs(apart.mean()) < 4.0 * sem(apart)
    drawn, true = np.mean(spread, axis=0)
    assert drawn / true == pytest.approx(1.0, abs=0.05 * np.sqrt(120 / worlds))


@pytest.mark.slow
def test_a_model_without_trials_is_like_the_others_but_less_certain() -> None:
    rng = np.random.default_rng(5)
    counts = rng.multinomial(20, shared_difficulty(8, 20).p)
    counts[3] = 0
    scores = np.array([(draw @ BINARY).mean(axis=1) for draw in posterior_chances(counts, BINARY, 200, rng)])
    others = np.delete(scores, 3, axis=1)
    assert scores[:, 3].std() > 2.0 * others.std(axis=0).max()
    assert abs(scores[:, 3].mean() - others.mean()) < 2.0 * others.mean(axis=0).std()
