"""Rank models by preferences between two answers: Bradley-Terry (1952), with a term for the side shown first.

The chance that the model on the first side wins is expit(strength_a - strength_b + side). A tie is half a win of each.
One imagined tie of each model with one of average strength, and one for the side, keep all finite where a model or a
side has won every vote; they count little beside real votes.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from scorio import _validate
from scorio.moments import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WIDTH_95 = 1.959963984540054
MAX_STEPS = 100
MAX_STEP = 2.0
TOLERANCE = 1e-10
MAX_EXPLAINED_ERROR = 1e-6


class Preferences(NamedTuple):
    """Models by the preferences between their answers.

    Attributes:
        score: The share of comparisons that each model wins if it meets each other one equally often, (L,).
        lo: The lower end of its 95% interval, (L,).
        hi: The upper end, (L,).
        order: The models from the strongest to the weakest.
        z: z[i, j] is positive where model i is stronger than j, (L, L).
        first: How often the first side wins between equal models; NaN where it cannot be told from the models.
        first_sigma: Its standard error.

    Examples:
        >>> from scorio.rank import preferences
        >>> found = preferences(first=[0, 0, 1, 0], second=[1, 1, 0, 1], won=[1, 1, 0, 0.5])
        >>> found.order
        array([0, 1])
    """

    score: FloatArray
    lo: FloatArray
    hi: FloatArray
    order: IntArray
    z: FloatArray
    first: float
    first_sigma: float


def preferences(first: ArrayLike, second: ArrayLike, won: ArrayLike, question: ArrayLike | None = None) -> Preferences:
    """Rank models 0 to L - 1 by V votes between two of them.

    Votes on one question may depend on each other in any way: the variances are those of sums over questions, and no
    smaller than those of independent votes.

    Args:
        first: The model that was shown first, (V,).
        second: The other model, (V,).
        won: 1 where the first one won, 0 where the second did, 1/2 for a tie, (V,).
        question: The number of the question of each vote, (V,); omit it where all votes are independent.

    Returns:
        The `Preferences` (score, lo, hi, order, z, first, first_sigma).

    Raises:
        ValueError: There are models that never met the others, not even by way of third ones.

    Examples:
        >>> import numpy as np
        >>> from scorio.rank import preferences
        >>> found = preferences(first=[0, 0, 0, 0], second=[1, 1, 1, 1], won=[1, 1, 1, 0])
        >>> np.round(found.score, 2)  # an imagined tie of each with an average model draws both to 1/2
        array([0.72, 0.28])
    """
    from scipy.sparse import coo_array, csr_array, hstack  # here, since few rank by preferences, and it loads slowly
    from scipy.sparse.csgraph import connected_components

    a, b, result, at = _checked(first, second, won, question)
    models = int(max(a.max(), b.max())) + 1
    groups, member = connected_components(coo_array((np.ones(a.size), (a, b)), (models, models)), directed=False)
    if groups > 1:
        apart = ", ".join(str(int(np.flatnonzero(member == group)[0])) for group in range(groups))
        raise ValueError(f"models must have met, if only by way of others; {apart} have not")
    # one row a pair and side: models + the first side
    rows, row_of, votes = np.unique(np.stack([a, b], axis=1), axis=0, return_inverse=True, return_counts=True)
    row_of = row_of.reshape(-1)
    places = np.arange(len(rows))
    signs = np.repeat([1.0, -1.0], len(rows))
    plain = csr_array((signs, (np.tile(places, 2), rows.T.ravel())), (len(rows), models))
    sided = _side_is_known(plain)
    design = hstack([plain, csr_array(np.full((len(rows), 1), float(sided)))], format="csr")
    theta, information = _fit(design, votes, np.bincount(row_of, result, len(rows)).astype(float))
    bread = np.linalg.pinv(information)
    residual = result - expit(design @ theta)[row_of]
    sums = coo_array((residual, (at, row_of)), (int(at.max()) + 1, len(rows))).tocsr() @ design
    clusters = int(at.max()) + 1
    robust = bread @ (sums.T @ sums).toarray() @ bread * (clusters / max(clusters - 1, 1))

    strength = theta[:models]
    wins = expit(strength[:, np.newaxis] - strength)
    slopes = wins * (1.0 - wins)
    np.fill_diagonal(slopes, 0.0)
    score = (wins.sum(axis=1) - 0.5) / (models - 1)
    gradient = np.zeros((models, models + 1))
    gradient[:, :models] = (np.diag(slopes.sum(axis=1)) - slopes) / (models - 1)
    both = np.stack([bread, robust])
    half = (
        WIDTH_95 * np.sqrt(np.einsum("mi,kij,mj->km", gradient, both, gradient).max(axis=0)) / (score * (1.0 - score))
    )
    variances = np.einsum("kii->ki", both)
    apart = variances[:, :, np.newaxis] + variances[:, np.newaxis, :] - 2.0 * both
    spread = np.sqrt(np.maximum(apart.max(axis=0)[:models, :models], 0.0)) + np.eye(models)  # of a model itself: 0
    side = float(expit(theta[models])) if sided else float("nan")
    return Preferences(
        score=score,
        lo=expit(logit(score) - half),
        hi=expit(logit(score) + half),
        order=np.argsort(-strength, kind="stable"),
        z=(strength[:, np.newaxis] - strength) / spread,
        first=side,
        first_sigma=side * (1.0 - side) * float(np.sqrt(variances[:, models].max())),
    )


def _checked(
    first: ArrayLike, second: ArrayLike, won: ArrayLike, question: ArrayLike | None
) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    a, b = (_numbers(values, name) for values, name in ((first, "first"), (second, "second")))
    result = _validate.floats(won, "won")
    at = np.arange(a.size) if question is None else _numbers(question, "question")
    if not a.size or not a.shape == b.shape == result.shape == at.shape:
        shapes = ", ".join(str(array.shape) for array in (a, b, result, at))
        raise ValueError(f"first, second, won and question must hold one value for each vote, got shapes {shapes}")
    if (a == b).any():
        raise ValueError(f"a model cannot be compared with itself: vote {int(np.argmax(a == b))}")
    if not np.isin(result, (0.0, 0.5, 1.0)).all():
        raise ValueError("won must be 1, 0.5 or 0")
    return a, b, result, np.unique(at, return_inverse=True)[1].reshape(-1)


def _numbers(values: ArrayLike, name: str) -> IntArray:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or (numbers.size and (not np.issubdtype(numbers.dtype, np.integer) or numbers.min() < 0)):
        raise ValueError(f"{name} must be a vector of whole numbers from 0 on")
    return numbers.astype(np.int64)


def _side_is_known(plain: "csr_array") -> bool:
    """Whether the first side can be told from the models: no strengths explain that each first one wins."""
    totals = np.asarray(plain.sum(axis=0))
    explained = plain @ (np.linalg.pinv((plain.T @ plain).toarray()) @ totals)
    return bool(np.abs(explained - 1.0).max() > MAX_EXPLAINED_ERROR)


def _fit(design: "csr_array", votes: IntArray, won: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The strengths and the side by Newton's method, and the information; the log-likelihood is concave."""
    theta = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        p, q = expit(design @ theta), expit(theta)
        slope = design.T @ (won - votes * p) + 0.5 - q  # with the imagined ties
        information = (design.T.multiply(votes * p * (1.0 - p)) @ design).toarray() + np.diag(q * (1.0 - q))
        step = np.linalg.lstsq(information, slope, rcond=None)[0]
        theta = theta + step * min(1.0, MAX_STEP / max(np.abs(step).max(), TOLERANCE))
        if np.abs(step).max() < TOLERANCE:
            break
    return theta, information
