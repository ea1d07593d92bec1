"""Worlds drawn without a pilot, from what benchmarks and models are usually like.

On the scale of the logits, as in `posterior`: theta_lq = mu + a_l + b_q + e_lq, with

    mu ~ N(0, 1)                     the level: scores between 30% and 70%, mostly
    a_l ~ N(0, A^2), A about 0.7     the models: neighbours among ten lie about two points apart
    b_q ~ N(0, B^2), B about 2.5     the questions: some are nearly always right, some nearly never
    e_lq ~ N(0, E^2), E about 1.2    what one model knows of one question beyond that

A, B and E themselves are log-normal around these medians, with standard deviation 0.5, drawn anew for every world.
`posterior` finds A, B and E of 0.8, 3.9 and 1.9 for the twelve best models of a recorded AIME'24, of 0.8, 1.4 and 2.0
for a recorded GPQA, and of 0.8, 0.1 and 1.1 for the paper's coins, which share no difficulties.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adaptive_eval.forecast.sticks import chances_of
from scorio.moments import FloatArray


@dataclass(frozen=True, slots=True)
class Prior:
    """The medians of the spreads, in logits."""

    level: float = 1.0
    ability: float = 0.7
    difficulty: float = 2.5
    taste: float = 1.2
    doubt: float = 0.5
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
