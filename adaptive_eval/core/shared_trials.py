"""Trials with shared seeds: how each pair of models answered the same trial.

Trial i of a question has one seed for all models of a run with coupled seeds. Nothing is assumed about what servers do
with it. The first look with two shared trials of every question tells how strongly a pair is correlated (`coupling`). A
pair with a clear positive or negative correlation is judged from then on by the differences of shared trials, and both
models are asked all questions alike; trials that only one has do not count. Any other pair is judged and asked like
independent models: where nothing is shared, nothing is lost.

The decision is the same if two equal models are swapped, so it favours neither.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.rounds import MISSING, UNGRADED, Batch
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.types import ModelNumbers
from scorio.moments import FloatArray, IntArray
from scorio.sinf.paired import Coupling, DifferenceValues, PairedMoments, coupling, difference_values, paired_moments

Indices = NDArray[np.intp]
WORTH_PAIRING = 0.3
"""How far a variance must be from that of independent models, either way: less would not pay for asking all questions
alike, which takes up to 1.3 times the trials of weighted ones (benchmarks/coupling.md)."""
STANDARD_ERRORS = 3.0
"""And how many standard errors: by chance this happens to one pair in some hundreds."""


class PairedEvidence(NamedTuple):
    """Evidence from trials that both models of a pair share, and which pairs are judged by it."""

    chosen: NDArray[np.bool_]
    found: PairedMoments
    values: FloatArray
    """Possible differences between the values of two trials."""


def timed_out(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which trials with answers of these kinds timed out."""
    return (kinds & AnswerKind.TIMED_OUT) > 0


class UnsureGrades(NamedTuple):
    """Which answers could be in another category if they were whole."""

    kinds: int
    """Bits of `AnswerKind`, as in `Plan.may_be_right`."""
    sure: int | None = None
    """The category in which they stand nevertheless, if any."""

    @classmethod
    def of(cls, kinds: int, weights: FloatArray, *, best_is_sure: bool) -> Self:
        """Those of a `Plan`."""
        return cls(kinds, int(weights.argmax()) if best_is_sure else None)

    def among(self, kinds: NDArray[np.uint8], categories: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of these trials, given the kinds of their answers and their categories."""
        unsure = ((kinds & self.kinds) > 0) & ~timed_out(kinds)
        return unsure if self.sure is None else unsure & (categories != self.sure)


NOTHING_UNSURE = UnsureGrades(0)


class SharedTrials:
    """Every graded trial by model, question and number, and for each pair of models the count of each difference."""

    def __init__(self, bench: Bench, unsure: UnsureGrades = NOTHING_UNSURE) -> None:
        self._unsure = unsure
        self._bench, self._weights, self._g = bench, bench.weights, bench.question_weights
        self._differences: DifferenceValues = difference_values(bench.weights)
        self._arrived = np.full((bench.models, bench.questions, 0), MISSING, dtype=np.uint8)
        """(L, M, N): categories, or the marks of trials without one."""
        self._is_unsure = np.zeros((bench.models, bench.questions, 0), dtype=bool)
        """(L, M, N): trials whose grade could be another."""
        first, second = np.triu_indices(bench.models, k=1)
        self._pair = np.full((bench.models, bench.models), -1, dtype=np.intp)
        self._pair[first, second] = np.arange(len(first))
        self._counts = np.zeros((len(first), bench.questions, len(self._differences.values)), dtype=np.int32)
        """(P, M, D) for the pairs i < j."""
        self._is_paired = np.zeros(len(first), dtype=bool)
        self._is_known = np.zeros(len(first), dtype=bool)
        """(P,): whether the pair's coupling has been measured."""

    def take_over(self, before: "SharedTrials", models: ModelNumbers) -> None:
        """Begin with the trials of the stage before, and with what was decided about its pairs."""
        kept = [(model, was) for model, was in enumerate(models) if was is not None]
        self._make_room(before._arrived.shape[2])
        for model, was in kept:
            for name in ("_arrived", "_is_unsure"):
                getattr(self, name)[model, :, : before._arrived.shape[2]] = getattr(before, name)[was]
        for (one, one_was), (two, two_was) in combinations(kept, 2):
            pair, pair_was = self._pair[one, two], before._pair[one_was, two_was]
            for name in ("_counts", "_is_paired", "_is_known"):
                getattr(self, name)[pair] = getattr(before, name)[pair_was]

    def take(self, batches: Sequence[Batch]) -> None:
        """Count complete batches."""
        for batch in batches:
            (questions, trials), model = batch.places(), batch.model
            self._make_room(int(trials.max(initial=-1)) + 1)
            came = batch.categories_by_place()
            self._arrived[model, questions, trials] = came
            self._is_unsure[model, questions, trials] = self._unsure.among(batch.kinds, came)
            for other in range(len(self._arrived)):
                if other != model:
                    self._count(model, other, questions, came, self._arrived[other, questions, trials])
        for pair in np.flatnonzero(~self._is_known & (self._counts.sum(axis=2).min(axis=1) > 1)).tolist():
            self._is_known[pair], found = True, self._coupling(pair)
            # whether differences on the same trials vary clearly more or less than if independent
            self._is_paired[pair] = abs(found.variance - 1.0) >= max(WORTH_PAIRING, STANDARD_ERRORS * found.sigma)

    def _coupling(self, pair: int) -> Coupling:
        low, high = (self._arrived[model] for model in np.argwhere(self._pair == pair)[0])
        both = (low < UNGRADED) & (high < UNGRADED)
        return coupling(np.nonzero(both)[0], self._weights[low[both]], self._weights[high[both]], self._g)

    def variances(self, first: Indices, second: Indices) -> FloatArray:
        """Variances of these pairs' differences over those of independent models; nan if not judged by trials."""
        at = self._pair[np.minimum(first, second), np.maximum(first, second)]
        return np.array([self._coupling(pair).variance if self._is_paired[pair] else np.nan for pair in at.tolist()])

    def _make_room(self, trials: int) -> None:
        models, questions, there = self._arrived.shape
        if trials > there:
            more = max(trials, 2 * there) - there
            empty = np.full((models, questions, more), MISSING, dtype=np.uint8)
            self._arrived = np.concatenate([self._arrived, empty], axis=2)
            self._is_unsure = np.concatenate([self._is_unsure, np.zeros_like(empty, dtype=bool)], axis=2)

    def withdraw(self, model: int, since: IntArray) -> None:
        """Take back the trials of a model from the number `since` (M,) of each question on."""
        taken_back = np.arange(self._arrived.shape[2]) >= since[:, None]
        self._arrived[model][taken_back], self._is_unsure[model][taken_back] = MISSING, False
        for other in range(len(self._arrived)):
            if other != model:
                self._counts[self._pair[min(model, other), max(model, other)]] = 0
                questions, trials = np.nonzero(self._arrived[model] < UNGRADED)
                own, theirs = (self._arrived[one, questions, trials] for one in (model, other))
                self._count(model, other, questions, own, theirs)

    def _count(
        self, model: int, other: int, questions: IntArray, own: NDArray[np.uint8], theirs: NDArray[np.uint8]
    ) -> None:
        both = (own < UNGRADED) & (theirs < UNGRADED)
        low, high = (own, theirs) if model < other else (theirs, own)
        pair = self._pair[min(model, other), max(model, other)]
        np.add.at(self._counts[pair], (questions[both], self._differences.category[low[both], high[both]]), 1)

    def paired(self, first: Indices, second: Indices, horizon: int, *, bounded: bool) -> list[PairedEvidence]:
        """Evidence on these pairs, first against second: as graded; if `bounded`, also with unknown grades in favour of
        the first of each pair, and of the second. Empty if no pair is judged by trials."""
        at = self._pair[np.minimum(first, second), np.maximum(first, second)]
        chosen = self._is_paired[at]
        if not chosen.any():
            return []
        counts = self._counts[at]
        counts[first > second] = counts[first > second][..., ::-1]
        ways = [counts]
        if bounded:
            ways += [counts + self._bounding_counts(first, second, ahead) for ahead in (True, False)]
        values = self._differences.values
        groups = self._bench.benchmark_of
        found = (paired_moments(way, self._weights, values, horizon, self._g, groups) for way in ways)
        return [PairedEvidence(chosen, one, values) for one in found]

    def _bounding_counts(self, first: Indices, second: Indices, first_ahead: bool) -> IntArray:
        """Changes of the counts (n, M, D) if all unknown grades are in favour of the first of each pair, or of the
        second."""
        found = np.zeros((len(first), *self._counts.shape[1:]), dtype=np.int32)
        models, questions, trials = np.nonzero((self._arrived == UNGRADED) | self._is_unsure)
        lacking = np.zeros(len(self._arrived), dtype=bool)
        lacking[models] = True
        places = np.unique(np.stack([questions, trials], axis=1), axis=0)
        for number in np.flatnonzero(lacking[first] | lacking[second]).tolist():
            one, best_of_one = self._grades(first[number], places, best=first_ahead)
            two, best_of_two = self._grades(second[number], places, best=not first_ahead)
            both = (one != MISSING) & (two != MISSING)
            graded = both & (one < UNGRADED) & (two < UNGRADED)
            at, before = places[:, 0], self._differences.category
            np.subtract.at(found[number], (at[graded], before[one[graded], two[graded]]), 1)
            np.add.at(found[number], (at[both], before[best_of_one[both], best_of_two[both]]), 1)
        return found

    def _grades(self, model: int, places: IntArray, *, best: bool) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The categories of a model's trials at these places (question, trial), as they are, and with unknown grades at
        their best or at their worst."""
        at = model, places[:, 0], places[:, 1]
        known, extreme = self._arrived[at], self._weights.argmax() if best else self._weights.argmin()
        return known, np.where((known == UNGRADED) | self._is_unsure[at], int(extreme), known)
