"""Ranking with uncertainty (paper, section 2.9): models that the data cannot tell apart share a rank."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scorio import _validate
from scorio.moments import FloatArray, IntArray
from scorio.rank.pairwise import check_scores
from scorio.sinf.compare import compare


class Tiers(NamedTuple):
    """A ranking in which a rank is shared by models that are not separated."""

    ranking: IntArray
    """The rank of each model, 1 for the best, with no gaps."""
    order: IntArray
    """The models from the highest mu to the lowest; equal mu in the order of the models."""
    z: FloatArray
    """z-score of each model in that order against the next: L - 1 values."""


def rank_with_uncertainty(mu: ArrayLike, sigma: ArrayLike, threshold: float = 1.645) -> Tiers:
    """Order models by mu; two consecutive ones share a rank when their z-score is below the threshold.

    Ranks chain through consecutive models, so that the ends of a long tier may well differ by more than the threshold.
    The default is the paper's 95% confidence in the order of one pair (its Table 1, third row).
    """
    means, sds = check_scores(mu, sigma)
    if means.ndim != 1:
        raise ValueError(f"mu must be a vector with one value for each model, got shape {means.shape}")
    order = np.argsort(-means, kind="stable")
    high, low, var = order[:-1], order[1:], sds * sds
    z = compare(means[high], var[high], means[low], var[low]).z
    ranking = np.empty_like(order)
    ranking[order] = np.cumsum(np.concatenate([[True], z >= _validate.positive(threshold, "threshold")]))
    return Tiers(ranking, order, z)
