"""Category probabilities as independent yes-or-no questions: is it the best category? if not, the second best? ...

With the categories ordered by weight, the best first, P(category j) = x_j (1 - x_(j-1)) ... (1 - x_1): a stick that is
broken K - 1 times (Sethuraman 1994). Counts of categories are then counts of K - 1 separate experiments
with successes and trials each, so that whatever holds for right and wrong answers serves every rubric.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from scorio.moments import FloatArray, IntArray


class Stick(NamedTuple):
    """Successes and trials (L, M) of one of the questions."""

    successes: IntArray
    trials: IntArray


def sticks_of(counts: IntArray, weights: FloatArray) -> tuple[Stick, ...]:
    """The K - 1 experiments that counts (L, M, K) stand for."""
    ordered = counts[..., _best_first(weights)]
    left = ordered[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return tuple(Stick(ordered[..., number], left[..., number]) for number in range(len(weights) - 1))


def chances_of(logits: FloatArray, weights: FloatArray) -> FloatArray:
    """Category probabilities (..., K) of the logits (..., K - 1) of the sticks."""
    broken, kept = expit(logits), expit(-logits)
    before = np.concatenate([np.ones_like(kept[..., :1]), kept.cumprod(axis=-1)], axis=-1)
    ordered = before.copy()
    ordered[..., :-1] *= broken
    chances = np.empty_like(ordered)
    chances[..., _best_first(weights)] = ordered
    return chances


def logits_of(chances: FloatArray, weights: FloatArray) -> FloatArray:
    """The logits (..., K - 1) that `chances_of` turns into these probabilities."""
    ordered = chances[..., _best_first(weights)]
    after = ordered[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]
    tiny = np.finfo(float).tiny
    return np.asarray(np.log(np.maximum(ordered[..., :-1], tiny)) - np.log(np.maximum(after, tiny)))


def _best_first(weights: FloatArray) -> NDArray[np.intp]:
    return np.argsort(-weights, kind="stable")
