"""Comparisons of models on the same questions, with one trial each, and scores from questions drawn at random.

Questions come in an order that was drawn at random once, the same for all models, and each model is asked the first so
many of them. So the questions that two models have in common are a random sample, and the mean of their differences is
an unbiased estimate of the difference over all questions. Its variance is that between questions, which includes the
noise of a single trial. For n common questions with differences d_q and their mean d,

    var(d) = (1/n) { sum_q (d_q - d)^2 / (n - 1) + EVENTS (max w - min w)^2 / n }

(Cochran 1977, 2.5; the second term as in `scorio.sinf.prior`). No within-question variance is needed, and the
difficulty of questions cancels. There is no correction for a finite number of questions: one trial per question cannot
separate the part that it would lower from the noise that it would not. Without it z is never too large. The differences
at several looks have the covariance of a random walk, less a term for the finite number of questions; so they stay
within a symmetric boundary at least as often as that walk does (Anderson 1955), and the rules keep their promise at any
schedule of looks (benchmarks/drawn.md).

The score of a model that was asked fewer questions than others is linked to theirs: its mean, plus how much higher the
models asked most scored on all their questions than on the model's. Otherwise easy first questions would flatter a
model that stopped early.
"""

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates, IndexArray
from adaptive_eval.core.shared_trials import PairedEvidence
from scorio.moments import CountArray, FloatArray, IntArray, over_categories
from scorio.sinf.paired import PairedMoments, difference_values
from scorio.sinf.prior import EVENTS


def next_questions(issued: IntArray, sizes: IntArray) -> NDArray[np.int32]:
    """(L, M): one trial each of the next questions in the drawn order; `sizes` (L,) says how many for each model."""
    asked, position = issued.sum(axis=1, keepdims=True), np.arange(issued.shape[1])
    is_next = np.asarray((position >= asked) & (position < asked + sizes[:, None]))
    return is_next.astype(np.int32)


def estimates_of_drawn(counts: CountArray, weights: FloatArray) -> Estimates:
    """The scores and variances of models with counts (L, M, K), at most one trial per question.

    Let g_q be the mean of the models asked most, G their questions, and A the model's own questions among these:

        score = mean_A (y_q - g_q) + mean_G g_q,    var = s^2(y - g)/|A| + s^2(g)/|G| + 2 cov_A(y - g, g)/|G|

    and the further term of `scorio.sinf.prior`. Bayes@N is nan: it needs trials of every question.
    """
    models, questions, _ = counts.shape
    graded, values = _has_graded_trial(counts), counts @ weights
    asked = graded.sum(axis=1)
    longest = graded & (asked == asked.max(initial=0))[:, None]
    reference_questions = longest.any(axis=0)
    group_mean = np.where(longest, values, 0.0).sum(axis=0) / np.maximum(longest.sum(axis=0), 1)
    score, var = np.full(models, np.nan), np.full(models, np.inf)
    spread, reference_size = float(np.ptp(weights)) ** 2, int(reference_questions.sum())
    if reference_size > 1:
        mean_of_most, var_of_most = group_mean[reference_questions].mean(), group_mean[reference_questions].var(ddof=1)
    for model in np.flatnonzero(asked):
        shared = graded[model] & reference_questions
        y, g = values[model, shared], group_mean[shared]
        size = len(y)
        if size < 2:
            continue
        lead = (y.sum() - g.sum()) / size  # exactly equal for models that are equally often right
        residual = y - g - lead
        between, covariance = residual @ residual / (size - 1), residual @ g / (size - 1)
        score[model] = lead + mean_of_most
        var[model] = between / size + (var_of_most + 2.0 * covariance) / reference_size + EVENTS * spread / size**2
    noise = np.divide(1.0, asked, out=np.full(models, np.inf), where=asked > 0)
    unknown = np.full(models, np.nan)
    return Estimates(
        score=score,
        var=np.maximum(var, EVENTS * spread / np.maximum(asked, 1) ** 2),
        bayes=unknown,
        bayes_var=unknown.copy(),
        trial_var=np.ones((models, 1)),
        noise=noise,
        noise_at_horizon=np.full(models, 1.0 / questions),
        parts=np.empty((models, 0, 4)),
    )


def pairs_by_question(
    counts: CountArray,
    weights: FloatArray,
    first: IndexArray,
    second: IndexArray,
    extremes: tuple[CountArray, CountArray] | None = None,
) -> list[PairedEvidence]:
    """Evidence on pairs from the questions that both were asked, as graded.

    `extremes` are the counts with unknown grades at their worst and at their best. With them there are two more: in
    favour of the first of each pair, and of the second."""
    graded, values = _has_graded_trial(counts), _mean_values(counts, weights)
    scenarios = [(graded, values, values)]
    if extremes is not None:
        asked, (lowest, highest) = _has_graded_trial(extremes[0]), (_mean_values(part, weights) for part in extremes)
        scenarios += [(asked, highest, lowest), (asked, lowest, highest)]
    differences, all_pairs = difference_values(weights).values, np.ones(len(first), dtype=bool)
    spread = float(np.ptp(weights)) ** 2
    return [
        PairedEvidence(all_pairs, _moments(*scenario, spread, (first, second)), differences) for scenario in scenarios
    ]


def _has_graded_trial(counts: CountArray) -> NDArray[np.bool_]:
    """(L, M): whether a model has a graded trial of a question."""
    return np.asarray(over_categories(counts) > 0)


def _mean_values(counts: CountArray, weights: FloatArray) -> FloatArray:
    """(L, M): the mean value of a model's trials of a question; 0 without any."""
    return np.asarray(counts @ weights / np.maximum(over_categories(counts), 1))


def _moments(
    graded: NDArray[np.bool_],
    of_first: FloatArray,
    of_second: FloatArray,
    spread: float,
    pairs: tuple[IndexArray, IndexArray],
) -> PairedMoments:
    """Mean difference of each pair on the questions both have, with its variance, by products of matrices (L, M)."""
    questions = graded.shape[1]
    used = slice(0, int(np.flatnonzero(graded.any(axis=0)).max(initial=-1)) + 1)
    a = graded[:, used].astype(float)
    x, y = (np.where(graded[:, used], values[:, used], 0.0) for values in (of_first, of_second))
    same_values = of_first is of_second
    n = (a @ a.T)[pairs]
    sums, squares = x @ a.T, np.square(x) @ a.T
    total = (sums - (sums if same_values else y @ a.T).T)[pairs]
    squares = (squares + (squares if same_values else np.square(y) @ a.T).T - 2.0 * (x @ y.T))[pairs]
    enough = n > 1
    mean = np.divide(total, n, out=np.full(len(n), np.nan), where=enough)
    inverse = np.divide(1.0, n, out=np.full(len(n), np.inf), where=enough)
    between = np.maximum(squares - np.where(enough, n * np.square(mean), 0.0), 0.0) / np.maximum(n - 1.0, 1.0)
    return PairedMoments(
        mean=mean,
        var=(between + EVENTS * spread * np.where(enough, inverse, 1.0)) * inverse,
        noise=inverse,
        noise_at_horizon=np.full(len(n), 1.0 / questions),
        unit_var=inverse,
    )
