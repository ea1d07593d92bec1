"""From scores to ranks: 1 is the best, equal scores share a rank.

Only equal scores tie. But the same number, reached by two sums, may differ in its last digits, so scores closer than
`ROUNDING` of the largest |score| of their row count as equal; models that differ by noise are the business of
`scorio.rank.rank_with_uncertainty`.

How far two rankings of the same models agree: Kendall's tau-a and tau-b, Spearman's rho.

A pair of models is concordant when both rankings order it the same way, discordant when they order it in opposite
ways, and neither when one of them ties it. With n_c and n_d such pairs, n_0 = L(L-1)/2 pairs in all, and n_1, n_2
pairs tied in the first and in the second ranking (paper, Eq. 25 and 26):

    tau_a = (n_c - n_d) / n_0,    tau_b = (n_c - n_d) / sqrt((n_0 - n_1)(n_0 - n_2)).

Every model against every other (paper, section 2.5).

Ranking with uncertainty (paper, section 2.9): models that the data cannot tell apart share a rank.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorio import _validate
from scorio.moments import FloatArray, IntArray
from scorio.sinf.compare import Comparison, compare


def pairwise(mu: ArrayLike, sigma: ArrayLike) -> Comparison:
    """Compare all pairs of L scores (..., L): matrices (..., L, L) of differences, their sigma, z and rho.

    z[i, j] = (mu_i - mu_j) / sqrt(sigma_i^2 + sigma_j^2), positive where i is ahead of j, and rho[i, j] = Phi(|z|), the
    confidence in the order of the two. On the diagonal z is 0 and rho 1/2.

    Args:
        mu: The score of each model, (..., L).
        sigma: The standard deviation of each score, (..., L), none negative.

    Returns:
        A `Comparison` (difference, sigma, z, rho) of matrices (..., L, L).

    Examples:
        >>> import numpy as np
        >>> from scorio.rank import pairwise
        >>> pairs = pairwise(mu=[0.7, 0.5], sigma=[0.03, 0.04])
        >>> np.round(pairs.z, 2)
        array([[ 0.,  4.],
               [-4.,  0.]])
    """
    means, sds = check_scores(mu, sigma)
    var = sds * sds
    return compare(
        means[..., :, np.newaxis], var[..., :, np.newaxis], means[..., np.newaxis, :], var[..., np.newaxis, :]
    )


def check_scores(mu: ArrayLike, sigma: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Both as arrays of finite floats of one shape (..., L), sigma not negative."""
    means, sds = _validate.floats(mu, "mu"), _validate.floats(sigma, "sigma")
    if means.ndim == 0 or means.shape[-1] == 0 or means.shape != sds.shape:
        raise ValueError(f"mu and sigma must hold one value for each model, got shapes {means.shape} and {sds.shape}")
    if sds.min() < 0.0:
        raise ValueError(f"sigma must not be negative, got {sds.min()}")
    return means, sds


class Tiers(NamedTuple):
    """A ranking in which a rank is shared by models that are not separated.

    Examples:
        >>> from scorio.rank import rank_with_uncertainty
        >>> tiers = rank_with_uncertainty(mu=[0.5, 0.7, 0.51], sigma=[0.03, 0.03, 0.03])
        >>> tiers.ranking, tiers.order
        (array([2, 1, 2]), array([1, 2, 0]))
    """

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

    Args:
        mu: The score of each model, (L,).
        sigma: The standard deviation of each score, (L,), none negative.
        threshold: The z-score from which two neighbours are apart, above 0.

    Returns:
        `Tiers` (ranking, order, z).

    Examples:
        >>> import numpy as np
        >>> from scorio.rank import rank_with_uncertainty
        >>> ranking, order, z = rank_with_uncertainty(mu=[0.5, 0.7, 0.51], sigma=[0.03, 0.03, 0.03])
        >>> ranking
        array([2, 1, 2])
        >>> np.round(z, 2)
        array([4.48, 0.24])
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


ROUNDING = 1e-12
METHODS = ("competition", "competition_max", "dense", "fractional")


def rank_scores(scores: ArrayLike, method: str = "competition") -> IntArray | FloatArray:
    """Rank scores (..., L) along the last axis, higher is better.

    Scores 0.9, 0.7, 0.7, 0.5 have the ranks 1, 2, 2, 4 (competition), 1, 3, 3, 4 (competition_max), 1, 2, 2, 3 (dense)
    and 1, 2.5, 2.5, 4 (fractional, the mean of the positions).

    Args:
        scores: The score of each model, (..., L), not NaN.
        method: "competition", "competition_max", "dense" or "fractional".

    Returns:
        The ranks (..., L), 1 for the best; floats for fractional ranks, else integers.

    Examples:
        >>> from scorio.rank import rank_scores
        >>> rank_scores([0.9, 0.7, 0.7, 0.5])
        array([1, 2, 2, 4])
        >>> rank_scores([0.9, 0.7, 0.7, 0.5], method="fractional")
        array([1. , 2.5, 2.5, 4. ])
    """
    check_method(method)
    values = np.asarray(scores, dtype=float)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"scores must hold one score for each of at least one model, got shape {values.shape}")
    if np.isnan(values).any():
        raise ValueError("scores must not be NaN: a model without a score cannot be ranked, leave it out")
    order = np.argsort(-values, axis=-1, kind="stable")
    first = _score_starts(np.take_along_axis(values, order, axis=-1))
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


def _score_starts(ordered: FloatArray) -> NDArray[np.bool_]:
    """Mark where a new score begins, in scores ordered from high to low; infinities are equal to themselves."""
    higher, lower = ordered[..., :-1], ordered[..., 1:]
    with np.errstate(invalid="ignore"):  # inf - inf, decided by the equality
        new = (higher - lower > rounding_error(ordered)) & (higher != lower)
    return np.concatenate([np.ones((*ordered.shape[:-1], 1), dtype=bool), new], axis=-1)


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


Signs = NDArray[np.int8]


class RankAgreement(NamedTuple):
    """Agreement of two rankings, each in [-1, 1]; NaN where one ranking ties every model and it is undefined.

    Attributes:
        tau_a: Kendall's tau-a.
        tau_b: Kendall's tau-b.
        spearman: Spearman's rho.

    Examples:
        >>> from scorio.rank import compare_rankings
        >>> round(compare_rankings([1, 2, 3, 4], [1, 3, 2, 4]).spearman, 4)
        0.8
    """

    tau_a: float
    tau_b: float
    spearman: float


def compare_rankings(first: ArrayLike, second: ArrayLike) -> RankAgreement:
    """Compare two rankings (ranks, or scores in the same direction) of the same models, ties allowed.

    Args:
        first: One value for each of at least 2 models.
        second: One value for each of the same models.

    Returns:
        The `RankAgreement` (tau_a, tau_b, spearman).

    Examples:
        >>> from scorio.rank import compare_rankings
        >>> agreement = compare_rankings([1, 2, 3, 4], [1, 3, 2, 4])
        >>> round(agreement.tau_a, 4), round(agreement.tau_b, 4)
        (0.6667, 0.6667)
    """
    a, b = _ranking("first", first), _ranking("second", second)
    if a.size != b.size:
        raise ValueError(f"first and second must rank the same models, got {a.size} and {b.size} of them")
    signs_a, signs_b = pair_signs(a), pair_signs(b)
    balance = int((signs_a * signs_b).sum())
    return RankAgreement(balance / signs_a.size, float(tau_b(signs_a, signs_b)), _spearman(a, b))


def pair_signs(values: FloatArray, tolerance: FloatArray | float = 0.0) -> Signs:
    """Sign of x_i - x_j for every pair i < j, 0 within the tolerance: (..., L) in, (..., L(L-1)/2) out."""
    i, j = np.triu_indices(values.shape[-1], k=1)
    difference = values[..., i] - values[..., j]
    return (difference > tolerance).astype(np.int8) - (difference < -tolerance).astype(np.int8)


def tau_b(first: Signs, second: Signs) -> FloatArray:
    """Kendall's tau-b from the signs of the pairs (last axis), NaN where one side ties every pair."""
    balance = (first * second).sum(axis=-1, dtype=np.int64)
    untied = np.count_nonzero(first, axis=-1) * np.count_nonzero(second, axis=-1)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN that is promised
        tau: FloatArray = balance / np.sqrt(untied)
    return tau


def _spearman(a: FloatArray, b: FloatArray) -> float:
    """Pearson correlation of the fractional ranks."""
    x, y = (rank_scores(values, "fractional") for values in (a, b))
    x, y = x - x.mean(), y - y.mean()
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / scale) if scale else float("nan")


def _ranking(name: str, values: ArrayLike) -> FloatArray:
    ranking = _validate.floats(values, name)
    if ranking.ndim != 1 or ranking.size < 2:
        raise ValueError(f"{name} must be a vector of ranks of at least 2 models, got shape {ranking.shape}")
    return ranking
