"""The tally: how many trials came in each category, by model and question, and what those that count estimate.

What has arrived is counted at once, for display; the estimates are made of complete rounds alone.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.drawn import drawn_pairs, estimates_of_drawn
from adaptive_eval.core.evidence import Estimates, IndexArray, Prior, update
from adaptive_eval.core.rounds import UNGRADED, Batch, BatchPart
from adaptive_eval.core.settings import Bench, require
from adaptive_eval.core.shared_trials import PairedEvidence, SharedTrials
from adaptive_eval.core.types import Outcome
from adaptive_eval.core.ungraded import ScoreBounds, bounds_of, why_unjudgeable
from scorio.moments import CountArray, FloatArray, IntArray, over_categories


class Tally:
    """Counts of trials (L, M, K), complete rounds and arrivals apart."""

    def __init__(self, bench: Bench, prior: Prior, most: int, *, coupled: bool = False, drawn: bool = False) -> None:
        """`most`: trials a question at the horizon; `coupled`: models share the seeds of their trials; `drawn`: they
        are asked questions that were drawn at random, one trial of each."""
        self._bench, self._prior, self._most, self._drawn = bench, prior, most, drawn
        shape = (bench.models, bench.questions, bench.categories)
        self.counts: IntArray = np.zeros(shape, dtype=np.int32)
        """Committed rounds: what estimates are made of."""
        self.ungraded = np.zeros((bench.models, bench.questions), dtype=np.int32)
        """Trials of committed rounds that the grader could not grade."""
        self.arrived: IntArray = np.zeros(shape, dtype=np.int32)
        """All outcomes that a round has taken, complete or not: for display only."""
        self.timed_out: IntArray = np.zeros(shape, dtype=np.int32)
        """Those of `counts` that timed out. Zeros that nobody writes to take no memory; `zeros_like` writes them."""
        self._shared = SharedTrials(bench) if coupled else None
        self.estimates = Estimates.nothing(bench)
        before = bench.prior_counts
        self.known_before = (
            np.zeros(bench.models, np.int64) if before is None else np.rint(before.sum(axis=(1, 2))).astype(np.int64)
        )
        """(L,): outcomes of each model that were known before the run."""
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
        """Raise unless an outcome is of this bench."""
        model, question, _, category, *_ = outcome
        models, questions, categories = self.counts.shape
        graded = category is None or 0 <= category < categories
        if not (0 <= model < models and 0 <= question < questions and graded):
            raise ValueError(
                f"an outcome is of one of {models} models, {questions} questions and {categories} categories, "
                f"each counted from 0, but got {outcome}"
            )

    def arrive(self, outcome: Outcome) -> None:
        """Count one trial that has come."""
        if outcome.category is not None:
            self.arrived[outcome.model, outcome.question, outcome.category] += 1

    def arrive_together(self, model: int, part: BatchPart) -> None:
        """Count many trials of a model that have come."""
        graded = part.categories < UNGRADED
        np.add.at(self.arrived[model], (part.questions[graded], part.categories[graded]), 1)

    def forget_arrivals(self, model: int) -> None:
        """Forget the arrivals of a model that are not committed."""
        self.arrived[model] = self.counts[model]

    def commit(self, batches: Sequence[Batch]) -> None:
        """Count complete batches, and estimate anew what they are about."""
        categories = self._bench.categories
        for batch in batches:
            model = batch.model
            self.counts[model] += batch.categories(categories).astype(np.int32)
            if batch.some_ungraded:
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
        """The horizon is elsewhere: information counts towards that one."""
        self._most = most
        self._estimate(np.flatnonzero(np.isfinite(self.estimates.noise)))

    def ungradable(self, models: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Models among these of which too many answers have no grade, and why that is too many (see `ungraded`)."""
        before = self._bench.prior_counts
        failed = np.asarray(self.ungraded.any(axis=1))
        for model in models:
            if not failed[model]:  # every question of a round has trials, so that each has a grade
                continue
            counts = self.counts[model] if before is None else self.counts[model] + before[model]
            if (reason := why_unjudgeable(counts.sum(axis=-1), self.ungraded[model], some=self._drawn)) is not None:
                yield model, reason

    def bounds(self, *, time_outs: bool = False) -> ScoreBounds | None:
        """How far what is not known could move the estimates: what nobody graded, and `time_outs` where it is asked."""
        late = self.timed_out if time_outs else None
        return bounds_of(self._updated, self.estimates, self.counts, self.ungraded, self._bench.weights, late)

    def paired(self, pairs: tuple[IndexArray, IndexArray], *, ungraded: bool = False) -> Sequence[PairedEvidence]:
        """Evidence on these pairs of models from the trials that both have: as the grades are, and where some are
        `ungraded` for either way these may speak. Nothing where none is judged by that."""
        if self._drawn:
            unknown = self.ungraded if ungraded else np.zeros_like(self.ungraded)
            return drawn_pairs(self.counts, unknown, self._bench.weights, *pairs)
        if self._shared is None:
            return ()
        return self._shared.paired(*pairs, self._most, ungraded=ungraded)

    def variances_by_trial(self, pairs: IndexArray) -> FloatArray:
        """Variances of pairs (n, 2) of models that are judged by the differences of their trials, over those of
        independent models; nan of any other pair."""
        if self._shared is None:
            return np.full(len(pairs), np.nan)
        return self._shared.variances(pairs[:, 0], pairs[:, 1])

    def _estimate(self, rows: NDArray[np.intp]) -> None:
        self.estimates = self._updated(rows, self.counts)

    def _updated(self, rows: NDArray[np.intp], counts: CountArray) -> Estimates:
        """The estimates, those of the models `rows` made anew from these counts of all."""
        if self._drawn:
            return estimates_of_drawn(counts, self._bench.weights)
        return update(self.estimates, rows, counts, self._bench, self._prior, self._most)
