"""The tally: numbers of trials by model, question and category, and the estimates from them.

Trials count once their round is complete.

A trial that the grader cannot grade is complete, so rounds and looks continue, but it has no category. Scores use only
graded trials. A grader that fails on certain answers would bias scores by selection, so nothing is called that such
answers could undo. A comparison is called, or tied, only if it would be with all of them in the best category for one
model and in the worst for the other, and vice versa (`judge`). So the rule's promise holds whatever their grades would
have been. A model is set aside only if this no longer allows any decision: see `why_unjudgeable`.

The same holds for incomplete answers (`Plan.unsure`): they count as graded, and nothing is called that they could
undo. One that is right keeps its grade. Too many of them end the run (`answer_alarms`), and a model of which most
requests of a round time out is set aside before they count (`rounds`). Results bound the score for all of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_alarms import AnswerHistory
from adaptive_eval.core.evidence import Estimates
from adaptive_eval.core.rounds import UNGRADED, Batch
from adaptive_eval.core.settings import require
from adaptive_eval.core.shared_trials import SharedTrials
from adaptive_eval.core.types import ModelNumbers, Outcome
from scorio.moments import CountArray, FloatArray, IntArray, over_categories

if TYPE_CHECKING:
    from adaptive_eval.core.plan import Plan

MAX_UNGRADED_SHARE = 0.05
"""A model with a larger share is set aside: its score could be off by five points of a hundred, while neighbours on a
leaderboard are one to three apart, so that further trials would cost money and hardly decide anything."""
UNGRADED_TOLERATED = 2
"""So few ungraded answers never set a model aside, whatever their share."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreBounds:
    """The estimates with all unknown grades in the worst category, and in the best."""

    lowest: Estimates
    highest: Estimates


def extreme_counts(
    counts: CountArray, ungraded: NDArray[np.integer], unsure: CountArray, weights: FloatArray
) -> tuple[CountArray, CountArray]:
    """The counts (L, M, K) with unknown grades in the worst category, and in the best: those of `ungraded` trials
    (L, M), and of `unsure` ones (L, M, K), which are among the counts."""
    lowest, free = counts - unsure, ungraded + unsure.sum(axis=-1)
    highest = lowest.copy()
    lowest[:, :, weights.argmin()] += free
    highest[:, :, weights.argmax()] += free
    return lowest, highest


def why_unjudgeable(graded: NDArray[np.integer], ungraded: NDArray[np.integer], *, asks_all: bool = True) -> str | None:
    """Why a model cannot be judged, from its graded and ungraded trials (M,) each; None if it can. Unless the
    source `asks_all`, not every question needs a grade."""
    if asks_all and not graded.all():
        question = int(np.argmin(graded)) + 1
        return f"no trial of question {question} of {len(graded)} has a grade, so there is no score"
    failed, trials = int(ungraded.sum()), int(graded.sum() + ungraded.sum())
    if failed > max(UNGRADED_TOLERATED, MAX_UNGRADED_SHARE * trials):
        return f"{failed} of its {trials} trials have no grade, more than {MAX_UNGRADED_SHARE:.0%}"
    return None


class Tally:
    """Counts of trials (L, M, K) in complete rounds."""

    def __init__(self, plan: Plan, max_trials: int) -> None:
        """`max_trials`: trials per question at the horizon. Those of models that share seeds are kept whatever the
        source of evidence: another objective may judge by them."""
        bench, before = plan.bench, plan.bench.prior_counts
        self.bench, self._prior, self.max_trials, self._source = bench, plan.prior, max_trials, plan.source
        self._unsure = plan.unsure
        shape = (bench.models, bench.questions, bench.categories)
        self.counts: IntArray = np.zeros(shape, dtype=np.int32)
        """Committed rounds, from which estimates are made."""
        self.ungraded = np.zeros((bench.models, bench.questions), dtype=np.int32)
        """Trials of committed rounds that the grader could not grade."""
        self._of_kinds: dict[int, IntArray] = {}
        """The part of `counts` whose answers are not plain text, by their kinds."""
        self._shared = SharedTrials(bench, plan.unsure) if plan.coupled else None
        self.estimates = Estimates.nothing(bench)
        self.prior_outcomes = (
            np.zeros(bench.models, np.int64) if before is None else np.rint(before.sum(axis=(1, 2))).astype(np.int64)
        )
        """(L,): outcomes of each model known before the run."""
        if bench.recorded:
            require(before is not None, "recorded models need their outcomes (prior_counts)", sorted(bench.recorded))
            self._estimate(np.array(sorted(bench.recorded), dtype=np.intp))
            if bench.recorded_trials is not None:
                self.ungraded += (bench.recorded_trials.categories == UNGRADED).sum(axis=-1, dtype=np.int32)

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

    def commit(self, batches: Sequence[Batch]) -> None:
        """Count complete batches, and update the estimates of their models."""
        categories = self.bench.categories
        for batch in batches:
            model = batch.model
            self.counts[model] += batch.categories(categories).astype(np.int32)
            self.ungraded[model] += batch.ungraded().astype(np.int32)
            for kinds in np.unique(batch.kinds[batch.kinds > 0]).tolist():
                self._counts_of(kinds)[model] += batch.categories(categories, batch.kinds == kinds).astype(np.int32)
        if self._shared is not None:
            self._shared.take(batches)
        self._estimate_scored(sorted({batch.model for batch in batches}))

    def _estimate_scored(self, models: Iterable[int]) -> None:
        """Update the estimates of those of these models that have a trial of every question."""
        outcomes = self.counts if self.bench.prior_counts is None else self.counts + self.bench.prior_counts
        scored = (model for model in models if over_categories(outcomes[model]).all())
        self._estimate(np.fromiter(scored, dtype=np.intp))

    def withdraw(self, model: int, history: AnswerHistory, at: int) -> None:
        """Take back the committed trials of a model from this place in its history on."""
        asked = history.trials()
        questions, categories = asked.questions[at:], asked.categories[at:]
        graded = categories < UNGRADED
        of_kinds = [(tally, graded & (asked.kinds[at:] == kinds)) for kinds, tally in self._of_kinds.items()]
        for tally, mask in (self.counts, graded), *of_kinds:
            np.subtract.at(tally[model], (questions[mask], categories[mask]), 1)
        np.subtract.at(self.ungraded[model], questions[~graded], 1)
        if self._shared is not None:
            self._shared.withdraw(model, np.bincount(asked.questions[:at], minlength=self.bench.questions))
        if self._source.asks_all:
            self.estimates = self.estimates.without(model, Estimates.nothing(self.bench))
        self._estimate_scored([model])

    @property
    def unsure_answers(self) -> NDArray[np.int64]:
        """(L,): of each model's graded trials in this run, or of a recorded model's outcomes, those that could be in
        another category."""
        in_run, both = (unsure.sum(axis=(1, 2), dtype=np.int64) for unsure in (self._unsure_in_run(), self.unsure))
        return np.asarray(np.where(self.bench.asked, in_run, both))

    @property
    def unsure(self) -> CountArray:
        """(L, M, K): the part of `counts`, and of prior outcomes, whose grade could be another under today's plan."""
        in_run, before = self._unsure_in_run(), self.bench.prior_unsure
        return in_run if before is None else in_run + before

    def _unsure_in_run(self) -> CountArray:
        """(L, M, K): the part of `unsure` that this run has asked for."""
        if not self._of_kinds:
            return np.broadcast_to(np.int32(0), self.counts.shape)
        unsure, categories = np.zeros_like(self.counts), np.arange(self.bench.categories, dtype=np.uint8)
        for kinds, counts in self._of_kinds.items():
            unsure += counts * self._unsure.mask(np.full_like(categories, kinds), categories)
        return unsure

    def _counts_of(self, kinds: int) -> IntArray:
        """`counts` of answers of exactly these kinds."""
        return self._of_kinds.setdefault(kinds, np.zeros_like(self.counts))

    def take_over(self, before: Tally, models: ModelNumbers) -> None:
        """Begin with the committed trials of the stage before; prior outcomes are those of today's settings."""
        for model, old_number in enumerate(models):
            if old_number is not None:
                self.counts[model], self.ungraded[model] = before.counts[old_number], before.ungraded[old_number]
                for kinds, counts in before._of_kinds.items():
                    self._counts_of(kinds)[model] = counts[old_number]
        if self._shared is not None and before._shared is not None:
            self._shared.take_over(before._shared, models)
        self._estimate_scored(range(len(models)))

    def ungradable(self, models: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Models with too many ungraded answers, each with the reason."""
        before = self.bench.prior_counts
        failed = np.asarray(self.ungraded.any(axis=1))
        for model in models:
            if not failed[model]:  # then every question has a grade, since each has trials in a round
                continue
            counts = self.counts[model] if before is None else self.counts[model] + before[model]
            asks_all = self._source.asks_all
            if (reason := why_unjudgeable(counts.sum(axis=-1), self.ungraded[model], asks_all=asks_all)) is not None:
                yield model, reason

    def bounds(self) -> ScoreBounds | None:
        """How far ungraded and incomplete answers could move the estimates; None if they could not."""
        has_unknown = self.ungraded.any(axis=1) | self.unsure.any(axis=(1, 2))
        rows = np.flatnonzero(has_unknown & np.isfinite(self.estimates.score))
        if not len(rows):
            return None
        lowest, highest = self.extremes()
        return ScoreBounds(self._reestimate(rows, lowest), self._reestimate(rows, highest))

    def extremes(self) -> tuple[CountArray, CountArray]:
        """The counts with ungraded and unsure grades at their worst, and at their best."""
        return extreme_counts(self.counts, self.ungraded, self.unsure, self.bench.weights)

    @property
    def shared(self) -> SharedTrials:
        """The trials with the same seeds, of a run whose models share them."""
        assert self._shared is not None
        return self._shared

    def _estimate(self, rows: NDArray[np.intp]) -> None:
        self.estimates = self._reestimate(rows, self.counts)

    def _reestimate(self, rows: NDArray[np.intp], counts: CountArray) -> Estimates:
        """The estimates, with those of the models `rows` recomputed from the counts of all models."""
        return self._source.estimates(self.estimates, rows, counts, self.bench, self._prior, self.max_trials)
