"""Worlds drawn without a pilot, from what benchmarks and models are usually like.

On the scale of the logits, as in `posterior`: theta_lq = mu + a_l + b_q + e_lq, with

    mu ~ N(0, 1)                     the level: scores between 25% and 75%, mostly
    a_l ~ N(0, A^2), A about 0.5     the models: neighbours among ten lie about two points apart
    b_q ~ N(0, B^2), B about 2       the questions: some are nearly always right, some nearly never
    e_lq ~ N(0, E^2), E about 0.8    what one model knows of one question beyond that

A, B and E themselves are log-normal around these medians, with standard deviation 0.4, drawn anew for every world. On
AIME'24 they were measured as about 0.5, 3.5 and 0.8, on the coins as 0.6, 0 and 0.9.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.forecast.sticks import chances_of

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prior:
    """The medians of the spreads, in logits."""

    level: float = 1.0
    ability: float = 0.5
    difficulty: float = 2.0
    taste: float = 0.8
    doubt: float = 0.4
    """Standard deviation of the logarithm of the last three."""

    def __str__(self) -> str:
        return (
            f"on the logit scale: level 0 ± {self.level:g}, models ± {self.ability:g}, questions ± "
            f"{self.difficulty:g}, each model on each question ± {self.taste:g}; these three known to a factor of "
            f"{np.exp(self.doubt):.1f}"
        )


def prior_chances(
    prior: Prior, models: int, questions: int, weights: FloatArray, draws: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """`draws` worlds: probabilities (L, M, K)."""
    for _ in range(draws):
        sticks = [_theta(prior, models, questions, rng) for _ in weights[1:]]
        yield chances_of(np.stack(sticks, axis=-1), weights)


def _theta(prior: Prior, models: int, questions: int, rng: np.random.Generator) -> FloatArray:
    """Logits (L, M) of one experiment."""
    ability, difficulty, taste = (
        median * np.exp(prior.doubt * rng.standard_normal())
        for median in (prior.ability, prior.difficulty, prior.taste)
    )
    a = rng.normal(rng.normal(0.0, prior.level), ability, (models, 1))
    b = rng.normal(0.0, difficulty, questions)
    return np.asarray(a + b + rng.normal(0.0, taste, (models, questions)))
