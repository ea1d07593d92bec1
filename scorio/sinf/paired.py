"""Two models whose trials share their random numbers: the difference trial by trial, as the score of one model.

Trial i of question q of both models has one seed. A server that draws by Gumbel-max, with noise keyed by seed and
position, then gives near copies the same answer in most trials, and only trials in which they differ say anything of
the difference. So the difference d_qi of the two values at trial i is what is observed: its categories are the
differences that two weights can have, its score is the mean difference, and its variance is that of any score under
the self-centred prior (`prior`):

    var(d) = (1/M^2) sum_q { v_q / n_q + (EVENTS/M) (max w - min w)^2 / n_q^2 },    n_q trials that both have

with v_q the predictive variance of one further difference. The covariance of the two models within a question is in it,
whatever its sign; of independent models it estimates the sum of both variances. The second term, three further
trials in which they differ by all there is, keeps a handful of differences from looking like many: where none was seen
the difference is 0, and where k were, all of one sign, z is about k / sqrt(k + 3).

The concentration of the prior is fitted to the signs of the differences, which both orders of the two models share.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorio.moments import CountArray, FloatArray, IntArray, over_categories, question_moments, weighted
from scorio.sinf.compare import trial_variance
from scorio.sinf.prior import fitted_by_group, pooled_shares, self_centred_prior, unseen_variance

DIGITS = 12
"""Differences of weights that agree to so many digits of their range are one."""


class DifferenceValues(NamedTuple):
    """The possible differences between the values of two trials.

    Attributes:
        values: The different differences, rising: (D,).
        category: Which of them the categories of both trials give: (K, K).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import difference_values
        >>> found = difference_values(np.array([0.0, 1.0]))
        >>> float(found.values[found.category[1, 0]])
        1.0
    """

    values: FloatArray
    category: IntArray


def difference_values(w: FloatArray) -> DifferenceValues:
    """The differences of the weights (K,) of two categories.

    Args:
        w: What each category is worth.

    Returns:
        The `DifferenceValues`.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import difference_values
        >>> difference_values(np.array([0.0, 1.0])).values
        array([-1.,  0.,  1.])
    """
    unit = float(np.ptp(w))
    values, category = np.unique(np.round(np.subtract.outer(w, w) / unit, DIGITS), return_inverse=True)
    return DifferenceValues(values * unit, category.reshape(len(w), len(w)))


def paired_counts(first: IntArray, second: IntArray, differences: DifferenceValues) -> IntArray:
    """How often each difference occurred on each question, of trials that both models have.

    Args:
        first: The category of each trial of the first model, (M, N); K or more where there is none.
        second: The same of the second, with the same seeds.
        differences: Those of the weights.

    Returns:
        Counts (M, D).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import difference_values, paired_counts
        >>> values = difference_values(np.array([0.0, 1.0]))
        >>> paired_counts(np.array([[1, 0, 1]]), np.array([[1, 1, 2]]), values)  # the last one has but one trial
        array([[1, 1, 0]])
    """
    categories, kinds = len(differences.category), len(differences.values)
    question, trial = np.nonzero((first < categories) & (second < categories))
    difference = differences.category[first[question, trial], second[question, trial]]
    return np.bincount(question * kinds + difference, minlength=len(first) * kinds).reshape(len(first), kinds)


class Coupling(NamedTuple):
    """How far the trials of two models go together.

    Attributes:
        trials: That both have, of questions of which they share two or more.
        variance: Of their difference on these, over that of independent models; nan where all trials are alike.
        sigma: The standard error of that, were they independent.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import coupling
        >>> coupling(np.array([0, 0, 0]), np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0, 1.0])).trials
        3
    """

    trials: int
    variance: float
    sigma: float


def coupling(questions: IntArray, first: FloatArray, second: FloatArray, g: FloatArray | None = None) -> Coupling:
    """With n_q trials of question q that both have, and sums of squares S about the means of their question,

        variance = sum_q S_(x-y),q / (n_q (n_q - 1))  /  sum_q (S_x,q + S_y,q) / (n_q (n_q - 1))

    and, were the models independent, its standard error is 2 sqrt(sum_q S_x S_y / (n_q^2 (n_q - 1)^3)) over the same
    denominator. Of questions with weights, each term of a sum has the factor g_q^2, or g_q^4 under the root.

    Args:
        questions: Of each trial that both have, the question, rising: (n,).
        first: What it is worth for the first model, (n,).
        second: The same for the second, with the same seed.
        g: Weights of the questions with mean 1, (M,); None: alike.

    Returns:
        The `Coupling`.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import coupling
        >>> questions, one = np.array([0, 0, 0, 1, 1]), np.array([0.0, 1.0, 1.0, 1.0, 0.0])
        >>> coupling(questions, one, one).variance, round(coupling(questions, one, 1.0 - one).variance, 2)
        (0.0, 2.0)
    """
    starts = np.flatnonzero(np.diff(questions, prepend=-1))
    sizes = np.diff(starts, append=len(questions))
    repeated = sizes > 1
    if not repeated.any():
        return Coupling(0, np.nan, np.nan)
    n = sizes[repeated].astype(float)
    scale = n * (n - 1.0) if g is None else n * (n - 1.0) / np.square(g[questions[starts[repeated]]])
    of_x, of_y, of_both = (_squares(values, starts, sizes)[repeated] for values in (first, second, first - second))
    apart = float(((of_x + of_y) / scale).sum())
    if not apart > 0.0:
        return Coupling(int(n.sum()), np.nan, np.nan)
    noise = float((of_x * of_y / (scale * scale * (n - 1.0))).sum())
    return Coupling(int(n.sum()), float((of_both / scale).sum()) / apart, 2.0 * float(np.sqrt(noise)) / apart)


def _squares(values: FloatArray, starts: NDArray[np.intp], sizes: NDArray[np.intp]) -> FloatArray:
    """The sum of squares about the mean of each question, whose values begin at `starts`."""
    means = np.add.reduceat(values, starts) / sizes
    return np.asarray(np.add.reduceat(np.square(values - np.repeat(means, sizes)), starts))


class PairedMoments(NamedTuple):
    """The difference of two models on the trials that both have, or arrays of such.

    Attributes:
        mean: The mean difference; nan where a question has no such trial.
        var: Its variance; infinite there.
        noise: The sum over the questions of the variance of one difference over its trials.
        noise_at_horizon: The same with the trials of the horizon.
        unit_var: What `var` would be, without unseen trials, if one difference had variance 1; infinite there.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import difference_values, paired_moments
        >>> w = np.array([0.0, 1.0])
        >>> found = paired_moments(np.array([[0, 9, 1], [0, 10, 0]]), w, difference_values(w).values, 80)
        >>> round(float(found.mean), 2), round(float(found.noise_at_horizon / found.noise), 3)
        (0.05, 0.125)
    """

    mean: FloatArray
    var: FloatArray
    noise: FloatArray
    noise_at_horizon: FloatArray
    unit_var: FloatArray


def paired_moments(
    n: CountArray,
    w: FloatArray,
    values: FloatArray,
    horizon: float | FloatArray,
    g: FloatArray | None = None,
    groups: NDArray[np.integer] | None = None,
) -> PairedMoments:
    """The mean difference and its variance (see above), from counts of each question by difference.

    Args:
        n: Counts (..., M, D).
        w: What each category is worth, (K,).
        values: The differences that are counted, (D,).
        horizon: Trials of a question at the end, for all or (..., M).
        g: Weights of the questions with mean 1, (M,); None: alike.
        groups: A label for each question: the prior is fitted to each group by itself; None for one group.

    Returns:
        The `PairedMoments` (...).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import difference_values, paired_moments
        >>> w = np.array([0.0, 1.0])
        >>> n = np.array([[0, 9, 1], [1, 19, 0], [0, 10, 0]])  # two of fifty trials differ
        >>> found = paired_moments(n, w, difference_values(w).values, 80)
        >>> round(float(found.mean), 4), round(float(np.sqrt(found.var)), 4)
        (0.0167, 0.0633)
    """
    trials = over_categories(n)
    is_complete = np.asarray(trials.min(axis=-1) > 0)
    at_least_one = np.maximum(trials, 1)
    nu = n + fitted_by_group(partial(_prior, values=values), n, groups)
    v = trial_variance(nu, values, question_moments(nu, values)) + unseen_variance(at_least_one, w, g)
    noise = np.where(is_complete, weighted(v / at_least_one, g, 2).sum(axis=-1), np.inf)
    mean = weighted(n @ values / at_least_one, g).mean(axis=-1)
    return PairedMoments(
        mean=np.where(is_complete, mean, np.nan),
        var=noise / n.shape[-2] ** 2,
        noise=noise,
        noise_at_horizon=weighted(v / horizon, g, 2).sum(axis=-1),
        unit_var=np.where(is_complete, weighted(1.0 / at_least_one, g, 2).sum(axis=-1), np.inf) / n.shape[-2] ** 2,
    )


TOWARDS_THE_EDGE = 2.0 / 3.0
"""See `variance_against`."""


def variance_against(moments: PairedMoments, edge: FloatArray, values: FloatArray) -> FloatArray:
    """The variance with which a mean difference is held against an edge other than 0, such as a gate's.

    If the truth is at an edge of size e, a trial differs at least now and then, and one difference has a variance of

        v_e >= s e - e^2,        s the smallest difference there is,

    whatever was seen. Where fewer differences came than the edge lets expect, the estimate is smaller, and z by it too
    large: counts of rare events are skew. The square of the signed root of the likelihood ratio of a Poisson count k
    against its expectation e is, to first order, (e - k)^2 over (2 e + k)/3. So the variance goes two thirds of the way
    from the estimate to that of the edge, where that is larger.

    Args:
        moments: The moments.
        edge: How far the edge is from 0, (...); with either sign.
        values: The differences that there are, (D,).

    Returns:
        Variances (...).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import difference_values, paired_moments, variance_against
        >>> w = np.array([0.0, 1.0])
        >>> values = difference_values(w).values
        >>> found = paired_moments(np.array([[0, 300, 0], [0, 300, 0]]), w, values, 400)  # no trial differs
        >>> [round(0.02 / float(np.sqrt(v)), 2) for v in (found.var, variance_against(found, np.array(0.02), values))]
        [6.93, 4.04]
    """
    smallest = float(np.min(values[values > 0.0], initial=np.inf))
    size = np.abs(edge)
    edge_variance = np.maximum(smallest * size - size * size, 0.0) if np.isfinite(smallest) else np.zeros_like(size)
    with np.errstate(invalid="ignore"):  # of a question without a trial nothing is known, either way
        more = np.where(edge_variance > 0.0, edge_variance * moments.unit_var - moments.var, 0.0)
    return np.asarray(moments.var + TOWARDS_THE_EDGE * np.where(more > 0.0, more, 0.0))


def _prior(n: CountArray, values: FloatArray) -> FloatArray:
    """Prior counts (..., D) at the pair's own shares, as concentrated as the signs of its differences are."""
    signs = np.stack([n[..., values < 0.0].sum(-1), n[..., values == 0.0].sum(-1), n[..., values > 0.0].sum(-1)], -1)
    return np.asarray(self_centred_prior(signs).sum(axis=-1, keepdims=True) * pooled_shares(n))
