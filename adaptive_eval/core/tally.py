"""The tally: numbers of trials by model, question and category, and the estimates from them.

Arrivals are counted at once, for display; estimates are made from complete rounds alone.

A trial that the grader cannot grade was issued and is over, so rounds and looks go on, but it has no category. Scores
are made of graded trials alone. If the grader fails on certain answers, that is a selection, so nothing is called that
such answers could undo: a comparison is called, or tied, only if it would be with all of them in the best category for
one model and in the worst for the other, and vice versa (`judge`). So the rule's promise holds whatever their grades
would have been. A model is set aside only if this no longer allows any decision: see `why_unjudgeable`.

A time-out differs: it is an answer (too late, beside as many real ones), has a category, and counts in decisions.
Results bound the score for both alike, since either could differ with another grader or another time limit.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.drawn import drawn_pairs, estimates_of_drawn
from adaptive_eval.core.evidence import Estimates, IndexArray, Prior, update
from adaptive_eval.core.rounds import UNGRADED, Batch, BatchPart
from adaptive_eval.core.settings import Bench, require
from adaptive_eval.core.shared_trials import PairedEvidence, SharedTrials
from adaptive_eval.core.types import Outcome
from scorio.moments import CountArray, FloatArray, IntArray, over_categories

MOST_SHARE = 0.05
"""Above this share a model is set aside: its score could be off by five points of a hundred, while neighbours on a
leaderboard are one to three apart, so that further trials would cost money and hardly decide anything."""
ALWAYS_BORNE = 2
"""This few ungraded answers, whatever their share, never set a model aside."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreBounds:
    """The estimates with all unknown grades in the worst category, and in the best."""

    lowest: Estimates
    highest: Estimates


def score_bounds(
    estimate: Callable[[NDArray[np.intp], CountArray], Estimates],
    known: Estimates,
    counts: CountArray,
    ungraded: NDArray[np.integer],
    weights: FloatArray,
    timed_out: CountArray | None = None,
) -> ScoreBounds | None:
    """The bounds, given the tally (L, M, K), ungraded trials (L, M), and trials of the tally (L, M, K) that count as
    unknown; None if nothing is unknown. `estimate` updates some models' estimates from the counts of all."""
    settled = counts if timed_out is None else counts - timed_out
    unknown = ungraded if timed_out is None else ungraded + timed_out.sum(axis=-1)
    rows = np.flatnonzero(unknown.any(axis=1) & np.isfinite(known.score))
    if not len(rows):
        return None
    ways = []
    for category in (weights.argmin(), weights.argmax()):
        filled = settled.copy()
        filled[:, :, category] += unknown
        ways.append(estimate(rows, filled))
    return ScoreBounds(*ways)


def why_unjudgeable(graded: NDArray[np.integer], ungraded: NDArray[np.integer], *, some: bool = False) -> str | None:
    """Why a model cannot be judged, from its graded and ungraded trials (M,) each; None if it can. With `some`, not
    every question needs a grade."""
    if not some and not graded.all():
        question = int(np.argmin(graded)) + 1
        return f"no trial of question {question} of {len(graded)} has a grade, so there is no score"
    failed, trials = int(ungraded.sum()), int(graded.sum() + ungraded.sum())
    if failed > max(ALWAYS_BORNE, MOST_SHARE * trials):
        return f"{failed} of its {trials} trials have no grade, more than {MOST_SHARE:.0%}"
    return None


class Tally:
    """Counts of trials (L, M, K), with complete rounds and arrivals apart."""

    def __init__(self, bench: Bench, prior: Prior, most: int, *, coupled: bool = False, drawn: bool = False) -> None:
        """`most`: trials a question at the horizon; `coupled`: models share the seeds of their trials; `drawn`:
        questions were drawn at random, and have one trial each."""
        self._bench, self._prior, self._most, self._drawn = bench, prior, most, drawn
        shape = (bench.models, bench.questions, bench.categories)
        self.counts: IntArray = np.zeros(shape, dtype=np.int32)
        """Committed rounds, from which estimates are made."""
        self.ungraded = np.zeros((bench.models, bench.questions), dtype=np.int32)
        """Trials of committed rounds that the grader could not grade."""
        self.arrived: IntArray = np.zeros(shape, dtype=np.int32)
        """All outcomes in issued rounds, complete or not; for display only."""
        self.timed_out: IntArray = np.zeros(shape, dtype=np.int32)
        """The part of `counts` that timed out. `np.zeros` takes no memory until written to; `zeros_like` does."""
        self._shared = SharedTrials(bench) if coupled else None
        self.estimates = Estimates.nothing(bench)
        before = bench.prior_counts
        self.known_before = (
            np.zeros(bench.models, np.int64) if before is None else np.rint(before.sum(axis=(1, 2))).astype(np.int64)
        )
        """(L,): outcomes of each model known before the run."""
        if bench.recorded:
            require(before is not None, "recorded models need their outcomes (prior_counts)", sorted(bench.recorded))
            self._estimate(np.array(sorted(bench.recorded), dtype=np.intp))
            if bench.recorded_ungraded is not None:
                self.ungraded += bench.recorded_ungraded.astype(np.int32)

    @property
    def trials(self) -> NDArray[np.int64]:
        """(L,): trials of each model in committed rounds."""
        return np.asarray(self.counts.sum(axis=(1, 2), dtype=np.int64))

    def check(self, outcome: Outcome) -> None:
        """Raise unless an outcome's model, question and category exist."""
        model, question, _, category, *_ = outcome
        models, questions, categories = self.counts.shape
        graded = category is None or 0 <= category < categories
        if not (0 <= model < models and 0 <= question < questions and graded):
            raise ValueError(
                f"an outcome is of one of {models} models, {questions} questions and {categories} categories, "
                f"each counted from 0, but got {outcome}"
            )

    def count_arrival(self, outcome: Outcome) -> None:
        """Count one arrived trial."""
        if outcome.category is not None:
            self.arrived[outcome.model, outcome.question, outcome.category] += 1

    def count_arrivals(self, model: int, part: BatchPart) -> None:
        """Count many arrived trials of a model."""
        graded = part.categories < UNGRADED
        np.add.at(self.arrived[model], (part.questions[graded], part.categories[graded]), 1)

    def forget_arrivals(self, model: int) -> None:
        """Forget a model's arrivals that are not committed."""
        self.arrived[model] = self.counts[model]

    def commit(self, batches: Sequence[Batch]) -> None:
        """Count complete batches, and update the estimates of their models."""
        categories = self._bench.categories
        for batch in batches:
            model = batch.model
            self.counts[model] += batch.categories(categories).astype(np.int32)
            if batch.has_ungraded:
                self.ungraded[model] += batch.ungraded().astype(np.int32)
            if batch.timed_out:
                self.timed_out[model] += batch.categories(categories, late=True).astype(np.int32)
        if self._drawn:
            self.estimates = estimates_of_drawn(self.counts, self._bench.weights)
            return
        if self._shared is not None:
            self._shared.take(batches)
        known = self.counts if self._bench.prior_counts is None else self.counts + self._bench.prior_counts
        scored = (model for model in sorted({batch.model for batch in batches}) if over_categories(known[model]).all())
        self._estimate(np.fromiter(scored, dtype=np.intp))

    def rescale(self, most: int) -> None:
        """Change the horizon, at which information is 1."""
        self._most = most
        self._estimate(np.flatnonzero(np.isfinite(self.estimates.noise)))

    def ungradable(self, models: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Models with too many ungraded answers, each with the reason."""
        before = self._bench.prior_counts
        failed = np.asarray(self.ungraded.any(axis=1))
        for model in models:
            if not failed[model]:  # then every question has a grade, since each has trials in a round
                continue
            counts = self.counts[model] if before is None else self.counts[model] + before[model]
            if (reason := why_unjudgeable(counts.sum(axis=-1), self.ungraded[model], some=self._drawn)) is not None:
                yield model, reason

    def bounds(self, *, time_outs: bool = False) -> ScoreBounds | None:
        """How far ungraded answers, and `time_outs` if included, could move the estimates."""
        late = self.timed_out if time_outs else None
        return score_bounds(self._reestimate, self.estimates, self.counts, self.ungraded, self._bench.weights, late)

    def paired(self, pairs: tuple[IndexArray, IndexArray], *, ungraded: bool = False) -> Sequence[PairedEvidence]:
        """Evidence on these pairs of models from shared trials or questions: as graded, and if `ungraded` in favour of
        either side, too. Empty if no pair is judged by that."""
        if self._drawn:
            unknown = self.ungraded if ungraded else np.zeros_like(self.ungraded)
            return drawn_pairs(self.counts, unknown, self._bench.weights, *pairs)
        if self._shared is None:
            return ()
        return self._shared.paired(*pairs, self._most, ungraded=ungraded)

    def variances_by_trial(self, pairs: IndexArray) -> FloatArray:
        """Variances of pairs (n, 2) of models that are judged by differences of trials, over those of independent
        models; nan for any other pair."""
        if self._shared is None:
            return np.full(len(pairs), np.nan)
        return self._shared.variances(pairs[:, 0], pairs[:, 1])

    def _estimate(self, rows: NDArray[np.intp]) -> None:
        self.estimates = self._reestimate(rows, self.counts)

    def _reestimate(self, rows: NDArray[np.intp], counts: CountArray) -> Estimates:
        """The estimates, with those of the models `rows` recomputed from the counts of all models."""
        if self._drawn:
            return estimates_of_drawn(counts, self._bench.weights)
        return update(self.estimates, rows, counts, self._bench, self._prior, self._most)
