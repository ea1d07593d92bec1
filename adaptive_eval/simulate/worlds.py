"""Worlds with known success probabilities, for testing rules and policies.

A world defines the probability of each category for each model and question, so the true scores are known exactly.
Profiles are deterministic functions of their seed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import inf

import numpy as np
from scipy.special import betaincinv, expit, logit

from scorio.moments import FloatArray

MODELS = 12
QUESTIONS = 30
COIN_CONCENTRATION = 5.0
"""Spread of the coins over the questions. The paper has only the means, and that coins 9 and 10 need 199 trials to
reach z = 1.645 (section 2.9). So p(1 - p) averages 0.195, which Beta profiles have at this concentration."""

COIN_MEANS = (0.2332, 0.2545, 0.3604, 0.3642, 0.3642, 0.4466, 0.5418, 0.5276, 0.608, 0.6213, 0.7327)
BINARY = np.array([0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Latency:
    """Log-normal answer times in seconds; an answer of less than full weight takes `wrong_factor` times as long."""

    median: float = 0.05
    sigma: float = 0.5
    wrong_factor: float = 2.0
    longest: float = inf
    """Maximum answer time, in medians."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Models, questions and the true category probabilities `p` (L, M, K) with the rubric's weights `w` (K,)."""

    name: str
    p: FloatArray
    w: FloatArray = field(default_factory=lambda: BINARY)
    latency: Latency = field(default_factory=Latency)
    models: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    shares_noise: bool = False
    """Whether the random numbers of an answer depend only on question and seed, as on servers that sample by Gumbel-max
    with noise keyed by the seed. Near copies then give similar answers."""

    def __post_init__(self) -> None:
        models, questions, categories = self.p.shape
        if categories != len(self.w):
            raise ValueError(
                f"p must have one column per weight: got {categories} categories and {len(self.w)} weights"
            )
        if np.any(self.p < 0.0) or not np.allclose(self.p.sum(axis=-1), 1.0):
            raise ValueError("p must hold probabilities that sum to 1 over the categories of each question")
        if not self.models:
            object.__setattr__(self, "models", tuple(f"model-{index + 1:02d}" for index in range(models)))
        if not self.questions:
            object.__setattr__(self, "questions", tuple(f"q{index + 1}" for index in range(questions)))

    @property
    def truth(self) -> FloatArray:
        """Each model's true score: the mean over questions of sum_k w_k p_qk."""
        return np.asarray((self.p @ self.w).mean(axis=1))


def binary(success: FloatArray) -> FloatArray:
    """Success probabilities (L, M) as category probabilities (L, M, 2)."""
    return np.stack([1.0 - success, success], axis=-1)


def with_mean(profile: FloatArray, mean: float) -> FloatArray:
    """The profile, shifted on the logit scale to this exact mean."""
    from scipy.optimize import brentq  # only on demand, since it loads slowly and few worlds need it

    scale = logit(np.clip(profile, 1e-9, 1.0 - 1e-9))
    shift = brentq(lambda by: float(expit(scale + by).mean()) - mean, -30.0, 30.0, xtol=1e-13)
    return np.asarray(expit(scale + shift))


def beta_profile(mean: float, questions: int, concentration: float, rng: np.random.Generator) -> FloatArray:
    """Success probabilities spread as Beta(mean * c, (1 - mean) * c) over the questions, in random order."""
    grid = (np.arange(questions) + 0.5) / questions
    spread = betaincinv(mean * concentration, (1.0 - mean) * concentration, grid)
    return with_mean(rng.permutation(spread), mean)


def coins() -> World:
    """The paper's eleven biased coins, the tie at 0.3642 included; question difficulties are not shared."""
    rng = np.random.default_rng(1)
    profiles = [beta_profile(mean, QUESTIONS, COIN_CONCENTRATION, rng) for mean in COIN_MEANS]
    return World("coins", binary(np.array(profiles)), models=tuple(f"coin-{i + 1:02d}" for i in range(len(profiles))))


def shared_difficulty(models: int = MODELS, questions: int = QUESTIONS) -> World:
    """A benchmark like AIME: questions are hard or easy for all models, most of them nearly always or never right."""
    means = np.linspace(0.16, 0.38, models)[::-1]
    return World("shared_difficulty", _around_difficulties(means, questions, 3.5, 0.8, 2))


def near_deterministic() -> World:
    """Exact ties on questions answered nearly always or nearly never, where variances are easy to get wrong."""
    rng = np.random.default_rng(3)
    profile = np.where(rng.random(QUESTIONS) < 0.5, 0.02, 0.98)
    profile[::6] = 0.5
    return World("near_deterministic", binary(np.tile(profile, (MODELS, 1))))


def exact_ties() -> World:
    """Copies of one model, with the difficulties of a real benchmark."""
    rng = np.random.default_rng(4)
    profile = with_mean(expit(rng.normal(0.0, 3.0, QUESTIONS)), 0.35)
    return World("exact_ties", binary(np.tile(profile, (MODELS, 1))))


def unequal_profiles() -> World:
    """Equal means with different profiles: some models are flat, others excel at half of the questions."""
    rng = np.random.default_rng(5)
    spreads = np.linspace(0.2, 5.0, MODELS)
    profiles = [with_mean(expit(rng.normal(0.0, spread, QUESTIONS)), 0.5) for spread in spreads]
    return World("unequal_profiles", binary(np.array(profiles)))


def many_close(models: int = 30, questions: int = QUESTIONS) -> World:
    """A long leaderboard with half a point between neighbours."""
    means = np.linspace(0.45, 0.45 - 0.005 * (models - 1), models)
    return World("many_close", _around_difficulties(means, questions, 3.0, 0.5, 6))


def _around_difficulties(means: FloatArray, questions: int, hard: float, taste: float, seed: int) -> FloatArray:
    """Probabilities (L, M, 2) with these means: questions are hard or easy for all models, with slight differences."""
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0.0, hard, questions)
    return binary(np.array([with_mean(expit(rng.normal(0.0, taste, questions) - difficulty), mean) for mean in means]))


def copies(questions: int = QUESTIONS) -> World:
    """A model and three copies of decreasing similarity, on servers whose sampling depends only on the seed."""
    rng = np.random.default_rng(9)
    original = with_mean(expit(rng.normal(0.0, 2.0, questions)), 0.6)
    shifts = ((0.0, 0.0), (0.01, 0.0), (0.03, -0.02), (0.06, -0.08))
    profiles = [
        with_mean(np.clip(original + spread * rng.normal(size=questions), 0.001, 0.999), 0.6 + lost)
        for spread, lost in shifts
    ]
    names = ("original", "int8", "int6", "int4")
    return World("copies", binary(np.array(profiles)), models=names, shares_noise=True)


def rubric(models: int = 8, questions: int = QUESTIONS, seed: int = 7) -> World:
    """Four categories with partial credit: invalid, wrong, right but badly formatted, right."""
    rng = np.random.default_rng(seed)
    w = np.array([0.0, 0.0, 0.5, 1.0])
    difficulty = rng.normal(0.0, 1.5, questions)
    ability = np.linspace(1.0, -1.0, models)
    right = expit(ability[:, None] - difficulty)
    tidy = rng.beta(8.0, 2.0, (models, 1))
    valid = rng.beta(20.0, 2.0, (models, 1))
    p = np.stack([(1 - valid) * (1 - right), valid * (1 - right), right * (1 - tidy), right * tidy], axis=-1)
    return World("rubric", p, w)


def many_questions(questions: int = 2000) -> World:
    """Six models on a large benchmark: questions are hard or easy for all models, and two models are exactly tied."""
    means = np.array([0.70, 0.62, 0.58, 0.58, 0.50, 0.42])
    return World("many_questions", _around_difficulties(means, questions, 2.5, 0.7, 10))


def own_questions(models: tuple[str, ...], questions: tuple[str, ...], longest: float) -> World:
    """Models and questions with these names; scores from 70% down, three points apart; `longest` as in `Latency`."""
    p = _around_difficulties(np.maximum(0.7 - 0.03 * np.arange(len(models)), 0.05), len(questions), 2.5, 0.7, 11)
    return World("your configuration", p, latency=Latency(longest=longest), models=models, questions=questions)


WORLDS: dict[str, Callable[..., World]] = {
    make.__name__: cache(make)
    for make in (
        coins,
        shared_difficulty,
        near_deterministic,
        exact_ties,
        unequal_profiles,
        many_close,
        copies,
        many_questions,
        rubric,
    )
}
"""Worlds by name, each created once."""
