"""Rank models by a metric of `scorio.eval`, computed for each of them alone; higher is better.

Every function takes an (L, M, N) tensor of categories, an (L, M) matrix (one trial of each question) or a `Counts`
with a batch of L models, whose questions may have different numbers of trials. It returns the ranks of the models by
`method` (see `rank_scores`), or with `return_scores` the ranks and the scores.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

import scorio.eval
from scorio import _validate
from scorio._made import bound_arguments, present
from scorio._tables import frame_outcomes, is_frame
from scorio.counts import Counts
from scorio.eval._inputs import Value, as_counts
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


Ranking = IntArray | FloatArray | Ranked


_CATEGORIES = (
    "An (L, M, N) tensor of categories, an (L, M) matrix (one trial of each question), or `Counts` of L models."
)
_BINARY = """An (L, M, N) tensor of zeros and ones, an (L, M) matrix (one trial of each question), or binary `Counts` of
        L models."""
_DOCUMENTED = """Rank by {title}.

Args:
    R: {R}
{arguments}    method: How equal scores share a rank, see `rank_scores`.
    return_scores: Whether to return the scores too.

Returns:
    The rank of each model, 1 for the best; with `return_scores` a `Ranked` (ranking, scores).

Examples:
    >>> from scorio import rank
    >>> weak, strong = [[0, 0, 0, 1], [1, 0, 0, 0]], [[1, 1, 0, 1], [1, 1, 1, 0]]
    >>> rank.{name}([weak, strong], {given})
    array([2, 1])
"""


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


def _rank(
    score: Callable[[Counts], Any], counts: Counts, method: str = DEFAULT, return_scores: bool = False
) -> Ranking:
    check_method(method)
    scores = np.asarray(score(counts), dtype=float)
    ranking = rank_scores(scores, method)
    return Ranked(ranking, scores) if return_scores else ranking


_ENDS = ("method", "return_scores")


def _by(metric: Callable[..., Value], R: str = _BINARY, **example: Any) -> Callable[..., Ranking]:
    """A function that ranks by a metric with k draws, whose arguments are the metric's own, `method` and the rest."""
    name, documented = metric.__name__, inspect.cleandoc(metric.__doc__ or "")
    parameters = list(inspect.signature(metric).parameters.values())
    ends = [inspect.signature(_rank).parameters[end] for end in _ENDS]
    signature = inspect.Signature([*parameters, *ends], return_annotation=Ranking)

    def function(*args: Any, **kwargs: Any) -> Ranking:
        bound = bound_arguments(name, signature, args, kwargs)
        counts = _models(bound.pop("R"), bound.pop("w", None))
        ranking_options = {end: bound.pop(end) for end in _ENDS if end in bound}
        return _rank(lambda counts: metric(counts, **bound), counts, **ranking_options)

    title = re.split("[:,]", documented)[0]
    words = re.search(r"^Args:\n    R: .*\n((?:    .*\n)+)", documented, re.MULTILINE)
    described = words.group(1) if words else ""
    given = ", ".join(f"{argument}={value!r}" for argument, value in example.items())
    docstring = _DOCUMENTED.format(title=title, R=R, arguments=described, name=name, given=given)
    present(function, name, signature, docstring)
    return function


pass_at_k = _by(scorio.eval.pass_at_k, k=2)
pass_hat_k = unanimous_at_k = g_pass_at_k = _by(scorio.eval.pass_hat_k, k=2)
naive_pass_hat_k = _by(scorio.eval.naive_pass_hat_k, k=2)
g_pass_at_k_tau = _by(scorio.eval.g_pass_at_k_tau, k=3, tau=0.5)
mg_pass_at_k = _by(scorio.eval.mg_pass_at_k, k=2)
maj_at_k = _by(scorio.eval.maj_at_k, k=2)
auc_at_k = _by(scorio.eval.auc_at_k, k=2)
geom_at_k = _by(scorio.eval.geom_at_k, k=2)
geom_ds_at_k = _by(scorio.eval.geom_ds_at_k, k=2)
geo_spectrum_at_k = _by(scorio.eval.geo_spectrum_at_k, k=2)
geo_spectrum_star_at_k = _by(scorio.eval.geo_spectrum_star_at_k, k=2)
threshold_spectrum_at_k = _by(scorio.eval.threshold_spectrum_at_k, k=2, weights=[0.75, 0.25])
max_at_k = _by(scorio.eval.max_at_k, _CATEGORIES, k=2)
