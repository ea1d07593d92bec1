"""Rank models by a metric of `scorio.eval`, computed for each of them alone; higher is better.

Every function takes an (L, M, N) tensor of categories, an (L, M) matrix (one trial of each question) or a `Counts`
with a batch of L models, whose questions may have different numbers of trials. It returns the ranks of the models by
`method` (see `rank_scores`), or with `return_scores` the ranks and the scores.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

import scorio.eval
from scorio import _validate
from scorio._tables import frame_outcomes, html_table, is_frame
from scorio.counts import Counts
from scorio.eval._inputs import as_counts
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import check_method, rank_scores

DEFAULT = "competition"


class Ranked(NamedTuple):
    """The ranks of L models and the scores they come from.

    Attributes:
        ranking: The rank of each model, 1 for the best.
        scores: The score of each model.

    Examples:
        >>> from scorio import rank
        >>> ranked = rank.avg([[[0, 0, 1, 1]], [[1, 1, 1, 0]]], return_scores=True)
        >>> ranked.ranking, ranked.scores
        (array([2, 1]), array([0.5 , 0.75]))
    """

    ranking: IntArray | FloatArray
    scores: FloatArray

    def _repr_html_(self) -> str:
        return html_table(self)


Ranking = IntArray | FloatArray | Ranked


def bayes(
    R: Any,
    w: Any = None,
    R0: Any = None,
    quantile: float | None = None,
    method: str = DEFAULT,
    return_scores: bool = False,
) -> Ranking:
    """Rank by Bayes@N: s = mu, or with a quantile q in [0, 1] s = mu + Phi^-1(q) sigma.

    R0 holds prior outcomes, (M, D) for all models or (L, M, D). A q below 1/2 ranks by what a model has shown for sure.
    At q = 0 and 1 every model with sigma > 0 has the score -inf or inf, and they tie. The prior draws models with fewer
    trials closer to its mean: where the numbers of trials differ between models, `avg` is the fair order.

    Args:
        R: An (L, M, N) tensor of categories, an (L, M) matrix (one trial of each question), or `Counts` of L models.
        w: What each category is worth; omit it for zeros and ones and for `Counts`.
        R0: Prior outcomes, (M, D) or (L, M, D); omit it for none and for `Counts`.
        quantile: The q above, in [0, 1]; None to rank by mu.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.bayes([weak, strong])
        array([2, 1])
    """
    z = None if quantile is None else float(ndtri(_validate.fraction(quantile, "quantile")))

    def score(counts: Counts) -> FloatArray:
        mu, sigma = (np.asarray(value, dtype=float) for value in scorio.eval.bayes(counts))
        if z is not None:
            mu[sigma > 0.0] += z * sigma[sigma > 0.0]  # without uncertainty there is nothing to add, be z infinite
        return mu

    return _rank(score, _models(R, w, R0), method, return_scores)


def avg(R: Any, w: Any = None, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by avg@N, the mean weight of the trials.

    Args:
        R: An (L, M, N) tensor of categories, an (L, M) matrix (one trial of each question), or `Counts` of L models.
        w: What each category is worth; omit it for zeros and ones and for `Counts`.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.avg([weak, strong], return_scores=True)
        Ranked(ranking=array([2, 1]), scores=array([0.25, 0.75]))
    """
    return _rank(lambda counts: scorio.eval.avg(counts)[0], _models(R, w), method, return_scores)


def pass_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Pass@k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.pass_at_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.pass_at_k(counts, k), _models(R), method, return_scores)


def pass_hat_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Pass^k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.pass_hat_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.pass_hat_k(counts, k), _models(R), method, return_scores)


unanimous_at_k = pass_hat_k
g_pass_at_k = pass_hat_k


def naive_pass_hat_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by naive Pass^k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws, at least 1; there may be fewer trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.naive_pass_hat_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.naive_pass_hat_k(counts, k), _models(R), method, return_scores)


def g_pass_at_k_tau(R: Any, k: int, tau: float, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by G-Pass@k_tau.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        tau: Share of the draws that must succeed, in [0, 1].
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.g_pass_at_k_tau([weak, strong], k=3, tau=0.5)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.g_pass_at_k_tau(counts, k, tau), _models(R), method, return_scores)


def mg_pass_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by mG-Pass@k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.mg_pass_at_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.mg_pass_at_k(counts, k), _models(R), method, return_scores)


def maj_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Maj@k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.maj_at_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.maj_at_k(counts, k), _models(R), method, return_scores)


def auc_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by AUC@K.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.auc_at_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.auc_at_k(counts, k), _models(R), method, return_scores)


def geom_at_k(
    R: Any,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    method: str = DEFAULT,
    return_scores: bool = False,
) -> Ranking:
    """Rank by Geom@k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        pass_power: The power a of Pass@k, not negative.
        unanimous_power: The power b of Pass^k, not negative.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.geom_at_k([weak, strong], k=2)
        array([2, 1])
    """

    def score(counts: Counts) -> Any:
        return scorio.eval.geom_at_k(counts, k, pass_power, unanimous_power)

    return _rank(score, _models(R), method, return_scores)


def geom_ds_at_k(
    R: Any,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    method: str = DEFAULT,
    return_scores: bool = False,
) -> Ranking:
    """Rank by the geometric blend of the data set's Pass@k and Pass^k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        pass_power: The power a of Pass@k, not negative.
        unanimous_power: The power b of Pass^k, not negative.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.geom_ds_at_k([weak, strong], k=2)
        array([2, 1])
    """

    def score(counts: Counts) -> Any:
        return scorio.eval.geom_ds_at_k(counts, k, pass_power, unanimous_power)

    return _rank(score, _models(R), method, return_scores)


def geo_spectrum_at_k(
    R: Any,
    k: int,
    lam: float = 0.5,
    weights: Any = None,
    lambda_: float | None = None,
    method: str = DEFAULT,
    return_scores: bool = False,
) -> Ranking:
    """Rank by GeoSpectrum@k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        lam: The power lambda of Pass@k, in [0, 1].
        weights: The weights w_1, ..., w_k of the spectrum; None for mG-Pass@k.
        lambda_: Another name of `lam`; give only one of them.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.geo_spectrum_at_k([weak, strong], k=2)
        array([2, 1])
    """

    def score(counts: Counts) -> Any:
        return scorio.eval.geo_spectrum_at_k(counts, k, lam, weights, lambda_)

    return _rank(score, _models(R), method, return_scores)


def geo_spectrum_star_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by GeoSpectrum*@k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.geo_spectrum_star_at_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.geo_spectrum_star_at_k(counts, k), _models(R), method, return_scores)


def threshold_spectrum_at_k(
    R: Any, k: int, weights: Any, method: str = DEFAULT, return_scores: bool = False
) -> Ranking:
    """Rank by the threshold spectrum S_w,k.

    Args:
        R: An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
            L models.
        k: How many draws; every question needs as many trials.
        weights: The weights w_1, ..., w_k, none negative, with a sum of at most 1.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.threshold_spectrum_at_k([weak, strong], k=2, weights=[0.75, 0.25])
        array([2, 1])
    """

    def score(counts: Counts) -> Any:
        return scorio.eval.threshold_spectrum_at_k(counts, k, weights)

    return _rank(score, _models(R), method, return_scores)


def max_at_k(R: Any, k: int, w: Any = None, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Max@k.

    Args:
        R: An (L, M, N) tensor of categories, an (L, M) matrix (one trial of each question), or `Counts` of L models.
        k: How many draws; every question needs as many trials.
        w: The reward of each category; omit it for zeros and ones and for `Counts`.
        method: How equal scores share a rank, see `rank_scores`.
        return_scores: Whether to return the scores too.

    Returns:
        The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

    Examples:
        >>> from scorio import rank
        >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
        >>> rank.max_at_k([weak, strong], k=2)
        array([2, 1])
    """
    return _rank(lambda counts: scorio.eval.max_at_k(counts, k), _models(R, w), method, return_scores)


def _models(R: Any, w: Any = None, R0: Any = None) -> Counts:
    """Counts with one leading axis, the models."""
    if isinstance(R, Counts):
        counts = as_counts(R, w, R0)
        if counts.n.ndim != 3:
            raise ValueError(f"R must hold counts of shape (models, questions, categories), got {counts.n.shape}")
        return counts
    if is_frame(R):  # one trial of each question
        return Counts.from_ragged(frame_outcomes(R, "R")[..., np.newaxis], w, R0)
    outcomes = np.asarray(R)
    return Counts.from_tensor(outcomes[..., np.newaxis] if outcomes.ndim == 2 else outcomes, w, R0)


def _rank(score: Callable[[Counts], Any], counts: Counts, method: str, return_scores: bool) -> Ranking:
    check_method(method)
    scores = np.asarray(score(counts), dtype=float)
    ranking = rank_scores(scores, method)
    return Ranked(ranking, scores) if return_scores else ranking
