"""Where evidence comes from: how the trials of a plan become rounds, estimates of models, and evidence on pairs.

A plan has one source (`Plan.source`): each model's counts, with the variance within questions; trials with the same
seeds; the differences on questions that have one trial each; or drawn questions. Nothing else asks which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.evidence import Estimates, Evidence, IndexArray, Prior, update
from adaptive_eval.core.policies import spread
from adaptive_eval.core.same_questions import estimates_of_drawn, next_questions, pairs_by_question
from adaptive_eval.core.settings import CHUNK_CELLS, Bench
from adaptive_eval.core.shared_trials import PairedEvidence
from scorio.moments import CountArray, FloatArray, weighted
from scorio.sinf.compare import sampled_variance

if TYPE_CHECKING:  # it has a source
    from adaptive_eval.core.tally import Tally

TrialArray: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """Each model's counts: models are independent, and every question has trials of each."""

    asks_all: ClassVar[bool] = True
    """Whether every question is asked before the first look."""
    by_question: ClassVar[bool] = False
    """Whether pairs are judged by how they differ on the same questions: one trial of each does not tell the variance
    within questions, and that of the differences includes it."""
    by_trial: ClassVar[bool] = False
    """Whether pairs with correlated answers are judged by their differences on trials with the same seeds."""

    def least_round(self, bench: Bench) -> int:
        """Minimum trials of a model in a round: one of each question, or a block."""
        return bench.questions

    def next_round(self, issued: TrialArray, bench: Bench) -> TrialArray:
        """(L, M): one more round of every model that is asked, with all questions alike."""
        return np.repeat(bench.asked[:, None], issued.shape[1], axis=1).astype(np.int32)

    def choice(self, issued: TrialArray, g: FloatArray | None) -> tuple[TrialArray, FloatArray | None]:
        """The trials that a policy is shown, and the weights of the questions, from those (L, M) that were issued."""
        return issued, g

    def allocated(
        self, extra: TrialArray, issued: TrialArray, in_step: NDArray[np.bool_], g: FloatArray | None
    ) -> TrialArray:
        """A policy's round, with the trials of the models `in_step` spread by question weight alone, so that all have
        the same ones. Weights from what other models made of the same random numbers would depend on the model's own
        luck."""
        served = np.flatnonzero(in_step & extra.any(axis=1))
        if len(served):
            extra, even = extra.copy(), weighted(np.ones((len(served), issued.shape[1])), g)
            extra[served] = spread(issued[served], even, extra[served].sum(axis=1))
        return extra

    def estimates(
        self, old: Estimates, rows: IndexArray, counts: CountArray, bench: Bench, prior: Prior, max_trials: int
    ) -> Estimates:
        """`old`, with the estimates of the models `rows` recomputed from the counts (L, M, K) of all models."""
        return update(old, rows, counts, bench, prior, max_trials)

    def paired(
        self, tally: Tally, pairs: tuple[IndexArray, IndexArray], *, bounded: bool = False
    ) -> Sequence[PairedEvidence]:
        """Evidence on these pairs of models from shared trials or questions: as graded, and if `bounded` with unknown
        grades in favour of either side, too. Empty if no pair is judged by that."""
        return ()

    def judged_by_trial(self, evidence: Evidence, pairs: IndexArray) -> NDArray[np.bool_]:
        """Mask of the pairs (n, 2) that are judged by trials with the same seeds."""
        if not self.by_trial or evidence.paired is None:
            return np.zeros(len(pairs), dtype=bool)
        return np.asarray(evidence.paired[evidence.positions(pairs)])

    def variances_by_trial(self, tally: Tally, pairs: IndexArray) -> FloatArray:
        """Variances of pairs (n, 2) that are judged by differences of trials, over those of independent models; nan for
        any other pair."""
        return np.full(len(pairs), np.nan)

    def sampled_variance(self, values: FloatArray, bench: Bench) -> FloatArray:
        """Variance of the mean of each row of `values` (n, M) if the questions are a sample of similar ones.

        Each of several benchmarks is a separate sample, so that their differences add nothing."""
        clusters, g = bench.clusters, bench.question_weights
        if bench.benchmark_of is None:
            return sampled_variance(values, clusters, g)
        total = np.zeros(len(values))
        for label in range(int(bench.benchmark_of.max()) + 1):
            in_benchmark = bench.benchmark_of == label
            relative = np.ones(int(in_benchmark.sum())) if g is None else g[in_benchmark]
            share = relative.sum() / bench.questions
            groups = None if clusters is None else clusters[in_benchmark]
            total += share**2 * sampled_variance(values[:, in_benchmark], groups, relative / relative.mean())
        return total

    def differences(
        self, tally: Tally, evidence: Evidence, pairs: IndexArray, means: FloatArray, correction: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """The mean difference of each pair (n, 2) of rows of `means` (L + 1, M), with its `correction`, and its
        variance if the questions are a sample."""
        difference, sampled = self._plain_differences(tally, evidence, pairs, means)
        return difference if correction is None else difference + correction, sampled

    def _plain_differences(
        self, tally: Tally, evidence: Evidence, pairs: IndexArray, means: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        bench, difference, variance = tally.bench, np.empty(len(pairs)), np.empty(len(pairs))
        at_once = max(CHUNK_CELLS // means.shape[1], 1)
        for start in range(0, len(pairs), at_once):  # some at a time, since many take memory
            part = slice(start, start + at_once)
            d = means[pairs[part, 0]] - means[pairs[part, 1]]
            difference[part], variance[part] = bench.mean(d), self.sampled_variance(d, bench)
        return difference, variance


@dataclass(frozen=True, slots=True)
class TrialByTrial(EvidenceSource):
    """Trials with the same seeds, for pairs whose answers are correlated; counts for any other pair."""

    by_trial: ClassVar[bool] = True

    def paired(
        self, tally: Tally, pairs: tuple[IndexArray, IndexArray], *, bounded: bool = False
    ) -> Sequence[PairedEvidence]:
        return tally.shared.paired(*pairs, tally.max_trials, bounded=bounded)

    def variances_by_trial(self, tally: Tally, pairs: IndexArray) -> FloatArray:
        return tally.shared.variances(*pairs.T)

    def _plain_differences(
        self, tally: Tally, evidence: Evidence, pairs: IndexArray, means: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        difference, sampled = EvidenceSource._plain_differences(self, tally, evidence, pairs, means)
        by_trial = np.flatnonzero(self.judged_by_trial(evidence, pairs))
        on_shared = tally.shared.differences(*pairs[by_trial].T)
        on_all = np.isfinite(on_shared).all(axis=1)  # not if a question has no shared trial any more
        if on_all.any():
            by_trial, on_shared = by_trial[on_all], on_shared[on_all]
            difference[by_trial] = tally.bench.mean(on_shared)
            sampled[by_trial] = self.sampled_variance(on_shared, tally.bench)
        return difference, sampled


@dataclass(frozen=True, slots=True)
class OneTrialEach(EvidenceSource):
    """The differences on the same questions, which have one trial each; scores from counts."""

    by_question: ClassVar[bool] = True

    def paired(
        self, tally: Tally, pairs: tuple[IndexArray, IndexArray], *, bounded: bool = False
    ) -> Sequence[PairedEvidence]:
        return pairs_by_question(tally.counts, tally.bench.weights, *pairs, tally.extremes() if bounded else None)


@dataclass(frozen=True, slots=True)
class DrawnQuestions(OneTrialEach):
    """One trial each of questions in an order drawn at random, asked block by block."""

    asks_all: ClassVar[bool] = False

    block: int

    def least_round(self, bench: Bench) -> int:
        return self.block

    def next_round(self, issued: TrialArray, bench: Bench) -> TrialArray:
        return next_questions(issued, np.where(bench.asked, self.block, 0))

    def choice(self, issued: TrialArray, g: FloatArray | None) -> tuple[TrialArray, FloatArray | None]:
        """The policy sets the number for each model, and the draw sets the order of the questions."""
        return issued.sum(axis=1, keepdims=True), None

    def allocated(
        self, extra: TrialArray, issued: TrialArray, in_step: NDArray[np.bool_], g: FloatArray | None
    ) -> TrialArray:
        return next_questions(issued, extra[:, 0])

    def estimates(
        self, old: Estimates, rows: IndexArray, counts: CountArray, bench: Bench, prior: Prior, max_trials: int
    ) -> Estimates:
        return estimates_of_drawn(counts, bench.weights)

    def sampled_variance(self, values: FloatArray, bench: Bench) -> FloatArray:
        """That of the mean over questions that are not nan, if their clusters are a sample; 0 without clusters: a drawn
        run is judged with its questions as a sample anyway."""
        if bench.clusters is None:
            return np.zeros(len(values))
        rows = zip(values, np.isfinite(values), strict=True)
        return np.array(
            [sampled_variance(row[asked], bench.clusters[asked]) if asked.any() else np.inf for row, asked in rows]
        )

    def differences(
        self, tally: Tally, evidence: Evidence, pairs: IndexArray, means: FloatArray, correction: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        at = evidence.plain_positions(pairs)  # as judged, with a correction but without a gate's margin
        difference = np.where(evidence.first[at] == pairs[:, 0], 1.0, -1.0) * evidence.difference[at]
        return difference, self.sampled_variance(means[pairs[:, 0]] - means[pairs[:, 1]], tally.bench)
