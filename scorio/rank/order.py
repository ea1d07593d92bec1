"""From scores to ranks: 1 is the best, equal scores share a rank.

Only equal scores tie. But the same number, reached by two sums, may differ in its last digits, so scores closer than
`ROUNDING` of the largest |score| of their row count as equal; models that differ by noise are the business of
`scorio.rank.rank_with_uncertainty`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorio.moments import FloatArray, IntArray

ROUNDING = 1e-12
METHODS = ("competition", "competition_max", "dense", "fractional")


def rank_scores(scores: ArrayLike, method: str = "competition") -> IntArray | FloatArray:
    """Rank scores (..., L) along the last axis, higher is better.

    Scores 0.9, 0.7, 0.7, 0.5 have the ranks 1, 2, 2, 4 (competition), 1, 3, 3, 4 (competition_max), 1, 2, 2, 3 (dense)
    and 1, 2.5, 2.5, 4 (fractional, the mean of the positions).
    """
    check_method(method)
    values = np.asarray(scores, dtype=float)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"scores must hold one score for each of at least one model, got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError("scores must not be NaN: a model without a score cannot be ranked, leave it out")
    order = np.argsort(-values, axis=-1, kind="stable")
    first = _first_of_its_score(np.take_along_axis(values, order, axis=-1))
    ranks: IntArray | FloatArray = np.empty_like(order, dtype=float if method == "fractional" else np.int64)
    np.put_along_axis(ranks, order, _ranks_in_order(first, method), axis=-1)
    return ranks


def check_method(method: str) -> None:
    """Raise unless `method` is one of the four."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def rounding_error(scores: FloatArray) -> FloatArray:
    """The difference (..., 1) up to which scores of a row are the same number."""
    size = np.abs(scores)
    largest: FloatArray = np.max(size, axis=-1, keepdims=True, initial=0.0, where=np.isfinite(size))
    return ROUNDING * largest


def _first_of_its_score(ordered: FloatArray) -> NDArray[np.bool_]:
    """Mark where a new score begins, in scores ordered from high to low; infinities are equal to themselves."""
    higher, lower = ordered[..., :-1], ordered[..., 1:]
    with np.errstate(invalid="ignore"):  # inf - inf, decided by the equality
        new = (higher - lower > rounding_error(ordered)) & (higher != lower)
    starts: NDArray[np.bool_] = np.concatenate([np.ones((*ordered.shape[:-1], 1), dtype=bool), new], axis=-1)
    return starts


def _ranks_in_order(first: NDArray[np.bool_], method: str) -> IntArray | FloatArray:
    """Ranks of models that stand in order, given where each new score begins."""
    if method == "dense":
        return np.cumsum(first, axis=-1, dtype=np.int64)
    size = first.shape[-1]
    position = np.arange(1, size + 1)
    lowest = np.maximum.accumulate(np.where(first, position, 1), axis=-1)
    if method == "competition":
        return lowest
    last = np.concatenate([first[..., 1:], np.ones_like(first[..., :1])], axis=-1)
    highest = np.minimum.accumulate(np.where(last, position, size)[..., ::-1], axis=-1)[..., ::-1]
    if method == "competition_max":
        return highest
    return (lowest + highest) / 2.0
