"""Worlds from the prior and from pilots: the sampler against quadrature and itself, and how often forecasts hold."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom, kstest, norm, sem
from scipy.stats import t as student
from thoroughness import examples, sizes

from adaptive_eval.core import NO_COST, Bench, Pace, Plan, Trials
from adaptive_eval.simulate.worlds import (
    BINARY,
    COIN_CONCENTRATION,
    COIN_MEANS,
    beta_profile,
    binary,
    shared_difficulty,
    with_mean,
)
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.simulated import simulate_run
from adaptive_eval.study.types import median_range
from adaptive_eval.study.worlds import (
    BURN_IN,
    CENTRE_SD,
    FREEDOM,
    SCALES,
    Sampler,
    Stick,
    WorldPrior,
    category_chances,
    make_sticks,
    posterior_chances,
    prior_chances,
)
from scorio.moments import FloatArray

WEIGHTS = [np.array(weights) for weights in ([0.0, 1.0], [1.0, 0.0], [0.0, 0.0, 0.5, 1.0], [-1.0, 3.0, 0.25])]


def logits_of(chances: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The logits (..., K - 1) that `category_chances` turns into these probabilities."""
    ordered = chances[..., np.argsort(-weights, kind="stable")]
    after = ordered[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]
    return np.asarray(np.log(ordered[..., :-1]) - np.log(after))


def world(seed: int, models: int, weights: np.ndarray) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(len(weights), 0.7), (models, 9))


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@given(st.integers(0, 10**6))
@settings(max_examples=examples(20), deadline=None)
def test_probabilities_become_logits_and_back(weights: np.ndarray, seed: int) -> None:
    chances = world(seed, 3, weights)
    assert category_chances(logits_of(chances, weights), weights) == pytest.approx(chances, abs=1e-12)


def test_counts_are_experiments_the_best_category_first() -> None:
    right, half = make_sticks(np.array([[[5, 2, 3], [1, 0, 0]]]), np.array([0.0, 1.0, 0.5]))
    assert right.successes.tolist() == [[2, 0]] and right.trials.tolist() == [[10, 1]]
    assert half.successes.tolist() == [[3, 0]] and half.trials.tolist() == [[8, 1]]


def test_the_likelihood_of_the_sticks_is_that_of_the_categories() -> None:
    rng, weights = np.random.default_rng(1), WEIGHTS[2]
    counts, chances = rng.multinomial(6, world(1, 2, weights)), world(2, 2, weights)
    logits = logits_of(chances, weights)
    by_sticks = sum(
        float((stick.successes * logits[..., k] - stick.trials * np.logaddexp(0.0, logits[..., k])).sum())
        for k, stick in enumerate(make_sticks(counts, weights))
    )
    assert by_sticks == pytest.approx(float((counts * np.log(chances)).sum()))


def test_the_prior_has_the_spreads_that_it_states() -> None:
    """With known variances, the variance of a logit is the sum of the four, and covariances are sums of shared ones."""
    prior = WorldPrior(level=1.0, ability=0.5, difficulty=2.0, taste=0.8, doubt=0.0)
    weights, rng = WEIGHTS[0], np.random.default_rng(3)
    logits = np.array([logits_of(draw, weights)[..., 0] for draw in prior_chances(prior, 2, 2, weights, 6_000, rng)])
    cov = np.cov(logits.reshape(-1, 4).T)
    level, ability, difficulty, taste = 1.0, 0.25, 4.0, 0.64
    assert np.diag(cov) == pytest.approx(level + ability + difficulty + taste, rel=0.07)
    assert cov[0, 1] == pytest.approx(level + ability, rel=0.1), "one model on two questions"
    assert cov[0, 2] == pytest.approx(level + difficulty, rel=0.07), "two models on one question"
    assert cov[0, 3] == pytest.approx(level, rel=0.15)


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


FOUR, QUESTIONS, HORIZON = 4, 16, 24
WORLDS, DRAWS = 100, 19
REAL = 1 << 30
"""The number of the real world's answers among those of simulated runs."""

PLAN = Plan(Bench(FOUR, QUESTIONS, BINARY), trials=Trials(min=4, max=HORIZON), pace=Pace(lookahead=2))
UNKNOWN = np.full((FOUR, 2), np.nan)
SERVED = ServiceCosts(
    AnswerUsage(UNKNOWN, UNKNOWN, UNKNOWN, np.zeros(FOUR)), [[NO_COST, NO_COST]] * FOUR, slots=[64] * FOUR
)

Kind = Callable[[np.random.Generator], FloatArray]


def alike(rng: np.random.Generator, spread: float, taste: float, low: float, high: float) -> FloatArray:
    """Questions that are hard or easy for everyone, and models of random ability."""
    difficulty = rng.normal(0.0, spread, QUESTIONS)
    means = rng.uniform(low, high, FOUR)
    return binary(np.array([with_mean(expit(rng.normal(0.0, taste, QUESTIONS) - difficulty), mean) for mean in means]))


def some_coins(rng: np.random.Generator) -> FloatArray:
    """Some of the paper's coins, two of them exactly tied, with nothing shared between questions."""
    means = rng.choice(COIN_MEANS, FOUR, replace=False)
    return binary(np.array([beta_profile(mean, QUESTIONS, COIN_CONCENTRATION, rng) for mean in means]))


def typical(rng: np.random.Generator) -> FloatArray:
    """A world drawn from the stated prior."""
    return next(prior_chances(WorldPrior(), FOUR, QUESTIONS, BINARY, 1, rng))


AIME_LIKE = partial(alike, spread=3.5, taste=0.8, low=0.16, high=0.38)
CLOSE = partial(alike, spread=3.0, taste=0.5, low=0.40, high=0.43)
CASES: dict[str, tuple[Kind, int]] = {
    "AIME-like, 4 trials": (AIME_LIKE, 4),
    "AIME-like, 12 trials": (AIME_LIKE, 12),
    "coins, 4 trials": (some_coins, 4),
    "close models, 4 trials": (CLOSE, 4),
    "the prior, no pilot": (typical, 0),
}


def forecast_from(chances: FloatArray, pilot: int, rng: np.random.Generator) -> Iterable[FloatArray]:
    """Worlds as a forecast draws them, from a pilot with this many trials a question, or without a pilot."""
    if pilot == 0:
        return prior_chances(WorldPrior(), FOUR, QUESTIONS, BINARY, DRAWS, rng)
    return posterior_chances(rng.multinomial(pilot, chances), BINARY, DRAWS, rng)


@pytest.mark.release
@pytest.mark.parametrize(("kind", "pilot"), CASES.values(), ids=CASES.keys())
def test_the_cost_lies_in_the_interval(kind: Kind, pilot: int) -> None:
    held = 0
    for seed in range(WORLDS):
        rng = np.random.default_rng([seed, pilot])
        chances = kind(rng)
        drawn = forecast_from(chances, pilot, rng)
        forecast = median_range(
            [simulate_run(PLAN, world, SERVED, (seed, number)).trials for number, world in enumerate(drawn)]
        )
        held += forecast.low <= simulate_run(PLAN, chances, SERVED, (seed, REAL)).trials <= forecast.high
    assert 0.7 <= held / WORLDS <= 0.9
