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
    """The ranks of L models and the scores they come from."""

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
    """
    z = None if quantile is None else float(ndtri(_validate.fraction(quantile, "quantile")))

    def score(counts: Counts) -> FloatArray:
        mu, sigma = (np.asarray(value, dtype=float) for value in scorio.eval.bayes(counts))
        if z is not None:
            mu[sigma > 0.0] += z * sigma[sigma > 0.0]  # without uncertainty there is nothing to add, be z infinite
        return mu

    return _rank(score, _models(R, w, R0), method, return_scores)


def avg(R: Any, w: Any = None, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by avg@N, the mean weight of the trials."""
    return _rank(lambda counts: scorio.eval.avg(counts)[0], _models(R, w), method, return_scores)


def pass_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Pass@k."""
    return _rank(lambda counts: scorio.eval.pass_at_k(counts, k), _models(R), method, return_scores)


def pass_hat_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Pass^k."""
    return _rank(lambda counts: scorio.eval.pass_hat_k(counts, k), _models(R), method, return_scores)


unanimous_at_k = pass_hat_k
g_pass_at_k = pass_hat_k


def g_pass_at_k_tau(R: Any, k: int, tau: float, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by G-Pass@k_tau."""
    return _rank(lambda counts: scorio.eval.g_pass_at_k_tau(counts, k, tau), _models(R), method, return_scores)


def mg_pass_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by mG-Pass@k."""
    return _rank(lambda counts: scorio.eval.mg_pass_at_k(counts, k), _models(R), method, return_scores)


def maj_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Maj@k."""
    return _rank(lambda counts: scorio.eval.maj_at_k(counts, k), _models(R), method, return_scores)


def auc_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by AUC@K."""
    return _rank(lambda counts: scorio.eval.auc_at_k(counts, k), _models(R), method, return_scores)


def geom_at_k(
    R: Any,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    method: str = DEFAULT,
    return_scores: bool = False,
) -> Ranking:
    """Rank by Geom@k."""

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
    """Rank by the geometric blend of the data set's Pass@k and Pass^k."""

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
    """Rank by GeoSpectrum@k."""

    def score(counts: Counts) -> Any:
        return scorio.eval.geo_spectrum_at_k(counts, k, lam, weights, lambda_)

    return _rank(score, _models(R), method, return_scores)


def geo_spectrum_star_at_k(R: Any, k: int, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by GeoSpectrum*@k."""
    return _rank(lambda counts: scorio.eval.geo_spectrum_star_at_k(counts, k), _models(R), method, return_scores)


def threshold_spectrum_at_k(
    R: Any, k: int, weights: Any, method: str = DEFAULT, return_scores: bool = False
) -> Ranking:
    """Rank by the threshold spectrum S_w,k."""

    def score(counts: Counts) -> Any:
        return scorio.eval.threshold_spectrum_at_k(counts, k, weights)

    return _rank(score, _models(R), method, return_scores)


def max_at_k(R: Any, k: int, w: Any = None, method: str = DEFAULT, return_scores: bool = False) -> Ranking:
    """Rank by Max@k."""
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
