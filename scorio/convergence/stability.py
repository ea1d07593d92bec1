"""Convergence@n: from how many trials on the ranking is the gold ranking for good (paper, appendix F.1).

    s* = min{ s <= N - 1 : the ranking after s trials is the gold ranking, and so is every later one, up to N trials }

A replicate without such an s does not converge; that includes one which agrees with the gold ranking at N only.
Rankings agree when they order and tie every pair alike.

Mean agreement with the gold ranking as trials are added (paper, Fig. 1 and 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scorio.convergence.scoring import Chunk, Progress, bootstrap, look_up_scores, question_values, recorded_chunk
from scorio.convergence.study import Metric, Study
from scorio.moments import FloatArray, IntArray
from scorio.rank.order import pair_signs, rank_scores, rounding_error, tau_b


class TauCurve(NamedTuple):
    """Mean Kendall's tau-b against the gold ranking.

    Attributes:
        tau: The mean tau-b at each of them.

    Examples:
        >>> import numpy as np
        >>> from scorio.convergence import Study, tau_curve
        >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]]])
        >>> curve = tau_curve(study, replicates=100, rng=np.random.default_rng(0))
        >>> curve.trials
        array([1, 2, 3, 4, 5, 6])
    """

    trials: IntArray
    """The numbers of trials, one per step."""
    tau: FloatArray


def tau_curve(
    study: Study,
    replicates: int,
    rng: np.random.Generator,
    resample: str = "columns",
    progress: Progress | None = None,
) -> TauCurve:
    """Mean tau-b over bootstrap replicates at each number of trials.

    A ranking that ties all models agrees with nothing: its tau, which is undefined, counts as 0.

    Args:
        study: The recorded outcomes, the metric and the gold ranking.
        replicates: How many replicates to draw, at least 1.
        rng: The source of chance.
        resample: "columns" resamples all questions together, "rows" each alone.
        progress: Called with the replicates done and their total; None for no calls.

    Returns:
        The `TauCurve` (trials, tau).

    Examples:
        >>> import numpy as np
        >>> from scorio.convergence import Study, tau_curve
        >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]]])
        >>> curve = tau_curve(study, replicates=1000, rng=np.random.default_rng(0))
        >>> curve.trials, np.round(curve.tau, 2)
        (array([1, 2, 3, 4, 5, 6]), array([0.52, 0.76, 0.88, 0.94, 0.98, 0.99]))
    """
    gold = _gold_signs(study.gold)
    total = np.zeros(study.steps.size)
    for chunk in bootstrap(study, replicates, rng, resample, progress):
        total += np.nan_to_num(tau_b(pair_signs(chunk.scores, chunk.tolerance), gold)).sum(axis=0)
    return TauCurve(study.steps, total / replicates)


def tau_of_tensors(R: ArrayLike, metric: Metric, gold: ArrayLike) -> TauCurve:
    """Mean tau-b over independent tensors, each taken in its order: what a bootstrap of one of them stands for.

    Args:
        R: Tensors (B, L, M, N) of zeros and ones.
        metric: Bayes@N, avg@N or one of the Pass@k family, each a mean over the questions.
        gold: One rank for each model, ties allowed.

    Returns:
        The `TauCurve` (trials, tau).

    Examples:
        >>> from scorio.convergence import BAYES, tau_of_tensors
        >>> tau_of_tensors([[[[0, 0, 1]], [[1, 1, 1]]], [[[1, 0, 0]], [[0, 0, 1]]]], BAYES, gold=[2, 1]).tau
        array([0. , 0. , 0.5])
    """
    answers, signs = np.asarray(R), _gold_signs(gold)
    if answers.ndim != 4 or answers.shape[-1] < metric.first:
        raise ValueError(f"R must have 4 axes and at least {metric.first} trials, got shape {answers.shape}")
    if not (metric.additive or metric.by_question):
        raise ValueError(f"metric must be a mean over the questions, got {metric.function.__name__}")
    trials = answers.shape[-1]
    scores = look_up_scores(question_values(metric, trials), iter(np.moveaxis(answers, -1, 0)))
    tau = np.nan_to_num(tau_b(pair_signs(scores, rounding_error(scores)), signs)).mean(axis=0)
    return TauCurve(np.arange(metric.first, trials + 1), tau)


def _gold_signs(gold: ArrayLike) -> NDArray[np.int8]:
    """The gold order of each pair of models."""
    signs = pair_signs(-np.asarray(gold, dtype=float))
    if not signs.any():
        raise ValueError("gold must order at least two models, got a tie of them all: tau is undefined")
    return signs


NEVER = 0
"""The convergence@n of a replicate that does not converge."""


class Trajectory(NamedTuple):
    """How the ranking moves as trials are added.

    Examples:
        >>> from scorio.convergence import Study, trajectory
        >>> study = Study.of([[[1, 0, 0, 0]], [[0, 1, 1, 1]]])
        >>> moved = trajectory(study)
        >>> moved.trials, moved.converged_at
        (array([1, 2, 3, 4]), 3)
    """

    trials: IntArray
    """The numbers of trials, one per step."""
    ranks: IntArray
    """(steps, L) competition ranks."""
    converged_at: int
    """s*, or `NEVER`."""


@dataclass(frozen=True, eq=False)
class Convergence:
    """Convergence@n of many replicates.

    Examples:
        >>> import numpy as np
        >>> from scorio.convergence import Study, convergence_at_n
        >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]]])
        >>> found = convergence_at_n(study, replicates=100, rng=np.random.default_rng(0))
        >>> found.trials, found.at.shape
        (6, (100,))
    """

    trials: int
    """N, the trials of a replicate."""
    at: IntArray
    """s* of each replicate, or `NEVER`."""
    worst: Trajectory
    """The first replicate that does not converge, or else the first of those that take longest."""

    @property
    def steps(self) -> IntArray:
        """The values n = 1, ..., N - 1 of `pmf` and `cdf`."""
        return np.arange(1, self.trials)

    @property
    def pmf(self) -> FloatArray:
        """P(s* = n); it sums to 1 - `never`."""
        return np.bincount(self.at, minlength=self.trials)[1:] / self.at.size

    @property
    def cdf(self) -> FloatArray:
        """P(s* <= n)."""
        return np.cumsum(np.bincount(self.at, minlength=self.trials)[1:]) / self.at.size

    @property
    def never(self) -> float:
        """Share of the replicates that do not converge."""
        return float(np.mean(self.at == NEVER))

    @property
    def mean(self) -> float:
        """Mean s* of the replicates that converge; NaN if none does."""
        converged = self.at[self.at != NEVER]
        return float(converged.mean()) if converged.size else float("nan")

    @property
    def mean_capped(self) -> float:
        """Mean over all replicates, N for one that does not converge: the paper's Tables 8-10, which exceed N - 1."""
        return float(np.where(self.at == NEVER, self.trials, self.at).mean())


def convergence_at_n(
    study: Study,
    replicates: int,
    rng: np.random.Generator,
    resample: str = "columns",
    progress: Progress | None = None,
) -> Convergence:
    """Distribution of convergence@n over bootstrap replicates, with the worst of them step by step.

    Args:
        study: The recorded outcomes, the metric and the gold ranking.
        replicates: How many replicates to draw, at least 1.
        rng: The source of chance.
        resample: "columns" resamples all questions together, "rows" each alone.
        progress: Called with the replicates done and their total; None for no calls.

    Returns:
        The `Convergence`, with pmf, cdf, never, mean and worst.

    Examples:
        >>> import numpy as np
        >>> from scorio.convergence import Study, convergence_at_n
        >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]]])
        >>> found = convergence_at_n(study, replicates=1000, rng=np.random.default_rng(0))
        >>> np.round(found.cdf, 3), found.never
        (array([0.516, 0.764, 0.878, 0.939, 0.975]), 0.025)
    """
    all_models = [range(study.models)]
    return convergence_of_subsets(study, all_models, replicates, rng, resample, progress)[0]


def convergence_of_subsets(
    study: Study,
    subsets: Sequence[Sequence[int]],
    replicates: int,
    rng: np.random.Generator,
    resample: str = "columns",
    progress: Progress | None = None,
) -> list[Convergence]:
    """Convergence@n of some of the models at a time, on the same replicates for every subset (paper, appendix G).

    Args:
        study: The recorded outcomes, the metric and the gold ranking, of which a subset has its part.
        subsets: The positions of the models of each subset, at least two.
        replicates: How many replicates to draw, at least 1.
        rng: The source of chance.
        resample: "columns" resamples all questions together, "rows" each alone.
        progress: Called with the replicates done and their total; None for no calls.

    Returns:
        A `Convergence` for each subset.

    Examples:
        >>> import numpy as np
        >>> from scorio.convergence import Study, convergence_of_subsets
        >>> study = Study.of([[[0, 1, 0, 0, 1, 0]], [[1, 1, 0, 1, 1, 1]], [[0, 0, 0, 0, 0, 1]]])
        >>> pair, everyone = convergence_of_subsets(study, [[0, 1], [0, 1, 2]], 100, np.random.default_rng(0))
        >>> pair.never <= everyone.never
        True
    """
    for subset in subsets:
        if len(set(subset)) < 2 or not all(0 <= model < study.models for model in subset):
            raise ValueError(f"subsets must hold at least 2 of the {study.models} models each, got {list(subset)}")
    chunks = bootstrap(study, replicates, rng, resample, progress)
    by_chunk = [[_stability(study, list(subset), chunk) for subset in subsets] for chunk in chunks]
    return [_convergence(study.trials, *zip(*parts, strict=True)) for parts in zip(*by_chunk, strict=True)]


def _stability(study: Study, models: Sequence[int], chunk: Chunk) -> tuple[IntArray, Trajectory]:
    """s* of some models in each replicate of a chunk, and the replicate that takes longest."""
    part = chunk._replace(scores=chunk.scores[..., models])
    at = _stable_from(_is_gold(study.gold[models], part), study.metric.first)
    slowest = int(np.where(at == NEVER, study.trials, at).argmax())
    return at, Trajectory(study.steps, rank_scores(part.scores[slowest]).astype(np.int64), int(at[slowest]))


def _convergence(trials: int, at: Sequence[IntArray], slowest: Sequence[Trajectory]) -> Convergence:
    """Convergence@n of some models, from that of each chunk."""
    longest = [trials if moved.converged_at == NEVER else moved.converged_at for moved in slowest]
    return Convergence(trials, np.concatenate(at), slowest[longest.index(max(longest))])


def trajectory(study: Study) -> Trajectory:
    """The ranking after each trial of the recorded outcomes, in their order, without resampling.

    Args:
        study: The recorded outcomes, the metric and the gold ranking.

    Returns:
        The `Trajectory` (trials, ranks, converged_at).

    Examples:
        >>> from scorio.convergence import Study, trajectory
        >>> study = Study.of([[[1, 0, 0, 0]], [[0, 1, 1, 1]]])
        >>> trajectory(study).ranks
        array([[1, 2],
               [1, 1],
               [2, 1],
               [2, 1]])
        >>> trajectory(study).converged_at
        3
    """
    return _stability(study, range(study.models), recorded_chunk(study))[1]


def _is_gold(gold: IntArray | FloatArray, chunk: Chunk) -> NDArray[np.bool_]:
    """(B, steps): whether the ranking is the gold one: neighbours in that one are apart, or tied, in this one too."""
    order = np.argsort(gold, kind="stable")
    tied = np.diff(gold[order]) == 0
    scores = chunk.scores.take(order, axis=-1)
    lead = scores[..., :-1] - scores[..., 1:]
    apart = lead > chunk.tolerance
    agrees = np.where(tied, np.abs(lead) <= chunk.tolerance, apart) if tied.any() else apart
    return np.asarray(np.logical_and.reduce(agrees, axis=-1))


def _stable_from(is_gold: NDArray[np.bool_], first: int) -> IntArray:
    """s* of each replicate from its (steps,) agreements, the first at `first` trials."""
    steps = is_gold.shape[-1]
    until_last_miss = np.where(is_gold.all(axis=-1), 0, steps - np.argmin(is_gold[..., ::-1], axis=-1))
    return np.where(until_last_miss < steps - 1, first + until_last_miss, NEVER)
