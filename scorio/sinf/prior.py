"""The self-centred prior: a sharper sigma for the average scale, learned from how the model's questions differ.

The uniform prior expects every question to be open, so on a benchmark where most questions are answered nearly always
or nearly never its sigma is too large for a long time (variance 2.3 times too large at 4 trials on AIME). Here the
prior of a model is n0_qk = s f_k: f its category shares over all questions, s its concentration, small where questions
are nearly all-or-nothing and large where they are all alike. s maximises the Dirichlet-multinomial likelihood of the
model's counts times a prior under which s/(1 + s), the weight that a single trial leaves to the prior, is uniform: an
early run of questions that were each answered alike would otherwise give s = 0 and with it sigma = 0. One trial of each
question cannot tell s at all: then all questions are taken to be alike, which gives the largest sigma. Where a few have
more than one, 1/(1 + s) is lowered in proportion, below one further trial a question.

Of more than two categories it is the concentration of one distinction that counts: whether a trial is worth more or
less than the model's average. With all categories in one likelihood, distinctions in which questions are alike, such as
how sure a right answer is, would raise s for those in which they are not, and sigma with it: under the schemata of the
Bayes@N paper by up to 13% at 12 trials a question, where it is within 2% so.

The prior supplies a variance only. The mean stays the average a, whose sampling variance is that of one trial over N_q,
here in expectation over the posterior (var_q: posterior variance of question q's score):

    var(a) = (1/M^2) sum_q { T_q var_q / N_q + (EVENTS/M) (max w - min w)^2 / N_q^2 }

The first term alone is calibrated: its mean is within 3% of the truth from 4 trials a question on AIME-like benchmarks
(Eq. 20's factor (T_q/N_q)^2 is not for this prior: it grows without bound with s). But where failures are rare, a low
count of them gives a low score's rival both a lead and a small sigma, and a model with few trials beats its equal with
many in up to 14% of runs instead of 5%. The second term adds the variance of three further deviating trials, z^2/2 at
the z of a call, as Agresti and Coull (1998) do for one proportion; then no such run was found above the promise.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scorio.counts import Counts
from scorio.moments import (
    CountArray,
    FloatArray,
    Moments,
    over_categories,
    over_questions,
    question_moments,
    weighted,
)

EVENTS = 3.0
"""Deviating trials that each model's variance adds to those observed."""

LOG_S_RANGE = (-9.0, 14.0)
TOLERANCE = 1e-6
ROUNDING = 1e-9
"""Of the range of the weights: what is so near to the average is not below it, in whatever unit weights are."""
MAX_STEPS = 60


def pooled_shares(n: CountArray) -> FloatArray:
    """Category shares over all questions of a model, (..., M, K) to (..., K), with one more trial spread evenly.

    That trial keeps a model that has never failed yet from looking as if it could not.
    """
    total = over_questions(n)
    return np.asarray((total + 1.0 / total.shape[-1]) / (total.sum(axis=-1, keepdims=True) + 1.0))


def self_centred_prior(n: CountArray, w: FloatArray | None = None) -> FloatArray:
    """Prior counts s f_k of each model, the same for all its questions: (..., M, K) counts to (..., K).

    Where outcomes count less than one, as those of a power prior do, s is fitted to the nearest whole counts.

    Args:
        n: Counts of each question by category, (..., M, K).
        w: What each category is worth, (K,): s is fitted to trials above and below the model's average. None: to all
            categories.

    Returns:
        The prior counts of each model, (..., K).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import self_centred_prior
        >>> np.round(self_centred_prior(np.array([[4, 0], [0, 4], [1, 3]])), 3)
        array([0.317, 0.432])
    """
    shares = pooled_shares(n)
    table = np.rint(n).astype(np.int64) if n.dtype.kind == "f" else n
    table = table.reshape(-1, *n.shape[-2:])
    fitted_to = shares.reshape(-1, shares.shape[-1])
    if w is not None and n.shape[-1] > 2:
        table = _above_and_below(table, w, fitted_to)
        fitted_to = pooled_shares(table)
    s = _concentration(table, fitted_to)
    return s.reshape(shares.shape[:-1])[..., None] * shares


def fitted_by_group(
    fit: Callable[[CountArray], FloatArray], n: CountArray, groups: NDArray[np.integer] | None
) -> FloatArray:
    """Prior counts of each question of counts (..., M, K), that are fitted to each group of questions by itself.

    Of two benchmarks in one score, one prior would be centred between them: too large a variance for the easier one and
    too small for the other, by up to a fifth of the whole where one weighs most.

    Args:
        fit: From counts (..., M, K) to prior counts (..., K), as `self_centred_prior`.
        n: Counts of each question by category.
        groups: A label 0, 1, ... for each question, (M,); None where all are one group.

    Returns:
        The prior counts, (..., M, K), or (..., 1, K) for one group.

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf.prior import fitted_by_group, self_centred_prior
        >>> n = np.array([[4, 0], [3, 1], [0, 4], [1, 3]])
        >>> np.round(fitted_by_group(self_centred_prior, n, np.array([0, 0, 1, 1]))[[0, 2]], 3)
        array([[1.795, 0.359],
               [0.359, 1.795]])
    """
    if groups is None:
        return fit(n)[..., None, :]
    by_group = [fit(n[..., groups == label, :]) for label in range(int(groups.max()) + 1)]
    return np.stack(by_group, axis=-2)[..., groups, :]


def self_centred_average_moments(
    n: CountArray, nu: FloatArray, w: FloatArray, questions: Moments | None = None, g: FloatArray | None = None
) -> Moments:
    """The average and its variance (see above) under nu = n + the self-centred prior; needs N_q >= 1.

    Args:
        n: Counts of each question by category, (..., M, K).
        nu: The posterior counts, n plus the self-centred prior.
        w: What each category is worth, (K,).
        questions: `question_moments(nu, w)`, where they are there already.
        g: Weights of the questions with mean 1, (M,); None: alike.

    Returns:
        `Moments` (mean, var) of each model, (...).

    Examples:
        >>> import numpy as np
        >>> from scorio.sinf import self_centred_average_moments, self_centred_prior
        >>> n = np.array([[4, 0], [0, 4], [1, 3]])
        >>> moments = self_centred_average_moments(n, n + self_centred_prior(n), np.array([0.0, 1.0]))
        >>> round(float(moments.mean), 4), round(float(moments.var), 4)
        (0.5833, 0.0288)
    """
    trials = over_categories(n)
    average = weighted(n @ w / trials, g).mean(axis=-1)
    var = (question_moments(nu, w) if questions is None else questions).var
    one_trial = over_categories(nu) * var + unseen_variance(trials, w, g)
    return Moments(average, weighted(one_trial / trials, g, 2).sum(axis=-1) / n.shape[-2] ** 2)


def unseen_variance(trials: CountArray, w: FloatArray, g: FloatArray | None = None) -> FloatArray:
    """Variance that further deviating trials add to one trial: (EVENTS/M) (max w - min w)^2 / N_q.

    Of questions with weights g_q the share of each is g_q^2 / sum g^2 in place of 1/M, as that of its variance.
    """
    share = EVENTS / trials.shape[-1] * (w.max() - w.min()) ** 2
    return np.asarray(share / trials if g is None else share * np.square(g) / np.square(g).mean() / trials)


def self_centred_avg(counts: Counts) -> tuple[FloatArray, FloatArray]:
    """The average score of each model and its self-centred sigma: `scorio.eval.avg` with the sharper sigma.

    Args:
        counts: The trials, at least one of every question.

    Returns:
        The averages and their standard deviations, (...) each.

    Examples:
        >>> from scorio import Counts
        >>> from scorio.sinf import self_centred_avg
        >>> a, sigma = self_centred_avg(Counts.from_outcomes([[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 1, 1]]))
        >>> round(float(a), 4), round(float(sigma), 4)
        (0.5833, 0.1696)
    """
    if counts.trials.min() < 1:
        raise ValueError("counts must hold at least one trial of every question, got a question without any")
    n = counts.outcomes
    mean, var = self_centred_average_moments(n, n + self_centred_prior(n, counts.w)[..., np.newaxis, :], counts.w)
    return mean, np.sqrt(var)


def _above_and_below(n: CountArray, w: FloatArray, shares: FloatArray) -> CountArray:
    """(B, M, K) to (B, M, 2): trials below the average of their model, and the others."""
    average = (shares @ w)[:, None]
    above = w >= average - ROUNDING * (w.max() - w.min())
    high = np.einsum("bmk,bk->bm", n, above)
    return np.stack([over_categories(n) - high, high], axis=-1)


def _concentration(n: CountArray, shares: FloatArray) -> FloatArray:
    """The most probable s of each model, (B, M, K) counts to (B,), by Newton's method in ln s, kept in a bracket.

    Integer counts turn the digamma differences of the likelihood into sums over j below each count, and so into sums
    over j alone, weighted by how many questions have a count above j: the work does not depend on M. A model whose s
    has converged does not move, so that its s does not depend on the other models.
    """
    trials = over_categories(n)
    largest = int(trials.max(initial=0))
    # all trials of a question are one more category, of share 1, whose sums are taken away
    above = _exceedances([*np.moveaxis(n, -1, 0), trials], largest)
    above[:, -1] *= -1.0
    share = np.concatenate([shares, np.ones((len(n), 1))], axis=-1)[:, :, None]
    j, term = np.arange(largest, dtype=np.float64), np.empty_like(above)
    x, moving = np.zeros(len(n)), np.ones(len(n), dtype=bool)
    low, high = (np.full_like(x, end) for end in LOG_S_RANGE)
    for _ in range(MAX_STEPS):
        s = np.exp(x)
        np.add(s[:, None, None] * share, j, out=term)
        np.divide(share, term, out=term)
        slope = np.einsum("bkj,bkj->b", above, term)
        bend = -np.einsum("bkj,bkj,bkj->b", above, term, term)
        weight = s / (1.0 + s)
        first = s * slope + 1.0 - 2.0 * weight
        second = s * slope + s * s * bend - 2.0 * weight * (1.0 - weight)
        low, high = np.where(first > 0.0, x, low), np.where(first > 0.0, high, x)
        newton = x - first / np.where(second < 0.0, second, np.nan)
        step = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high)) - x
        x = np.where(moving, x + step, x)
        moving &= np.abs(step) >= TOLERANCE
        if not moving.any():
            break
    # 1/(1 + s), the variance between questions as a share, counts as far as repeated trials show it
    shown = np.minimum(np.maximum(trials - 1, 0).mean(axis=-1), 1.0)
    largest_s = np.exp(LOG_S_RANGE[1])
    return np.asarray(np.minimum((1.0 + np.exp(x)) / np.maximum(shown, 1.0 / largest_s) - 1.0, largest_s))


def _exceedances(counts: Sequence[CountArray], largest: int) -> FloatArray:
    """How many questions have a count above j, for j = 0 .. most - 1: K counts (B, M) to (B, K, most)."""
    batch, questions = counts[0].shape
    width = largest + 1
    begins = width * np.arange(batch)[:, None]
    cells = [(begins + n.astype(np.intp, copy=False)).ravel() for n in counts]
    histogram = np.stack(
        [np.bincount(batch_cells, minlength=batch * width).reshape(batch, width) for batch_cells in cells], axis=1
    )
    below = np.cumsum(histogram, axis=-1)
    return np.asarray((questions - below[..., :-1]).astype(np.float64))
