"""Worlds whose neighbours differ by a given gap: what does it take to tell apart models that are so close?

Each model keeps its profile over the questions; its logits are moved together until its true score on these questions
is exact: the middle of the scores, plus or minus whole gaps, in the order that the models had.
"""

import numpy as np

from adaptive_eval.errors import ConfigError
from adaptive_eval.forecast.sticks import chances_of, logits_of
from scorio.moments import FloatArray

MARGIN = 0.02
"""Of the range of scores, kept free at either end: there every question would be alike."""
FARTHEST = 40.0
HALVINGS = 60


def require_room(gap: float, models: int, weights: FloatArray) -> None:
    """Raise `ConfigError` where so many models so far apart do not fit between the lowest and the highest score."""
    room = (1.0 - 2.0 * MARGIN) * float(np.ptp(weights))
    if not 0.0 < gap * (models - 1) <= room:
        raise ConfigError(
            f"--gap must be positive, and {models} models that lie one gap apart must fit into {room:.0%} of the "
            f"scores, but got {gap:.2%}; give a gap of at most {room / max(models - 1, 1):.2%}"
        )


def spaced(chances: FloatArray, weights: FloatArray, gap: float) -> FloatArray:
    """The world (L, M, K) with its models `gap` apart."""
    truth = (chances @ weights).mean(axis=1)
    models, margin = len(truth), MARGIN * float(np.ptp(weights))
    half = gap * (models - 1) / 2.0
    middle = np.clip(truth.mean(), weights.min() + margin + half, weights.max() - margin - half)
    rank = np.empty(models)
    rank[np.argsort(-truth, kind="stable")] = np.arange(models)
    return with_scores(chances, weights, middle + half - gap * rank)


def with_scores(chances: FloatArray, weights: FloatArray, scores: FloatArray) -> FloatArray:
    """The world with these true scores (L,), by bisection: a score rises with the logits of its sticks."""
    logits = logits_of(chances, weights)
    low, high = np.full(len(scores), -FARTHEST), np.full(len(scores), FARTHEST)
    for _ in range(HALVINGS):
        shift = (low + high) / 2.0
        found = (chances_of(logits + shift[:, None, None], weights) @ weights).mean(axis=1)
        low, high = np.where(found < scores, shift, low), np.where(found < scores, high, shift)
    return chances_of(logits + ((low + high) / 2.0)[:, None, None], weights)
