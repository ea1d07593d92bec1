"""Trials with shared seeds: how each pair of models answered the same trial.

With coupled seeds, trial i of a question has one seed for all models of a run. Nothing is assumed about how servers use
it. The first look with two shared trials of every question measures how strongly a pair is correlated (`coupling`). A
pair with a clear positive or negative correlation is judged from then on by the differences of shared trials. Both
models then get the same trials of every question; trials that only one has do not count. Any other pair is treated like
independent models: without correlation, nothing is lost.

A recorded model has all its trials from the start. A pair with such a model shares those that the other one has been
asked for, and its horizon is at most the number of those that it can share.

The decision is the same if two equal models are swapped, so it favours neither.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.answer_kinds import NOTHING_UNSURE, UnsureGrades
from adaptive_eval.core.rounds import MISSING, UNGRADED, Batch
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.types import ModelNumbers
from scorio.moments import FloatArray, IntArray
from scorio.sinf.paired import Coupling, DifferenceValues, PairedMoments, coupling, difference_values, paired_moments

Indices = NDArray[np.intp]
MIN_VARIANCE_CHANGE = 0.3
"""How far a variance must be from that of independent models, either way: less would not pay for asking all questions
alike, which takes up to 1.3 times the trials of weighted ones (benchmarks/coupling.md)."""
MIN_STANDARD_ERRORS = 3.0
"""Standard errors that the change must also exceed: by chance this happens to one pair in some hundreds."""


class PairedEvidence(NamedTuple):
    """Evidence from trials that both models of a pair share, and which pairs are judged by it."""

    chosen: NDArray[np.bool_]
    moments: PairedMoments
    values: FloatArray
    """Possible differences between the values of two trials."""


class SharedTrials:
    """Every graded trial by model, question and number, and for each pair of models the count of each difference."""

    def __init__(self, bench: Bench, unsure: UnsureGrades = NOTHING_UNSURE) -> None:
        self._unsure = unsure
        self._bench, self._weights, self._g = bench, bench.weights, bench.question_weights
        self._differences: DifferenceValues = difference_values(bench.weights)
        self._arrived = np.full((bench.models, bench.questions, 0), MISSING, dtype=np.uint8)
        """(L, M, N): categories, or the marks of trials without one."""
        self._kinds = np.zeros((bench.models, bench.questions, 0), dtype=np.uint8)
        """(L, M, N): the kinds of answers of this run, as bits of `AnswerKind`."""
        first, second = np.triu_indices(bench.models, k=1)
        self._pair = np.full((bench.models, bench.models), -1, dtype=np.intp)
        self._pair[first, second] = np.arange(len(first))
        self._counts = np.zeros((len(first), bench.questions, len(self._differences.values)), dtype=np.int32)
        """(P, M, D) for the pairs i < j."""
        self._is_paired = np.zeros(len(first), dtype=bool)
        self._is_known = np.zeros(len(first), dtype=bool)
        """(P,): whether the pair's coupling has been measured."""
        if bench.recorded_trials is not None:
            self._arrived = bench.recorded_trials.categories.copy()
            self._kinds = np.zeros_like(self._arrived)
            self._count_all()
            self._measure()

    def take_over(self, before: "SharedTrials", models: ModelNumbers) -> None:
        """Begin with the trials of the stage before, and with what was decided about its pairs."""
        stayed = [(model, old_number) for model, old_number in enumerate(models) if old_number is not None]
        self._make_room(before._arrived.shape[2])
        for model, old_number in stayed:
            for name in ("_arrived", "_kinds"):
                getattr(self, name)[model, :, : before._arrived.shape[2]] = getattr(before, name)[old_number]
        for (low, old_low), (high, old_high) in combinations(stayed, 2):
            pair, old_pair = self._pair[low, high], before._pair[old_low, old_high]
            for name in ("_is_paired", "_is_known"):
                getattr(self, name)[pair] = getattr(before, name)[old_pair]
        self._count_all()
        self._measure()

    def take(self, batches: Sequence[Batch]) -> None:
        """Count complete batches."""
        for batch in batches:
            (questions, trials), model = batch.places(), batch.model
            self._make_room(int(trials.max(initial=-1)) + 1)
            categories = batch.categories_by_place()
            self._arrived[model, questions, trials] = categories
            self._kinds[model, questions, trials] = batch.kinds
            for other in range(len(self._arrived)):
                if other != model:
                    self._count(model, other, questions, categories, self._arrived[other, questions, trials])
        self._measure()

    def _measure(self) -> None:
        """Measure the coupling of pairs that have two shared trials of every question since now."""
        for pair in np.flatnonzero(~self._is_known & (self._counts.sum(axis=2).min(axis=1) > 1)).tolist():
            self._is_known[pair], measured = True, self._coupling(pair)
            # whether differences on the same trials vary clearly more or less than if independent
            self._is_paired[pair] = abs(measured.variance - 1.0) >= max(
                MIN_VARIANCE_CHANGE, MIN_STANDARD_ERRORS * measured.sigma
            )

    def _coupling(self, pair: int) -> Coupling:
        low, high = (self._arrived[model] for model in np.argwhere(self._pair == pair)[0])
        both = (low < UNGRADED) & (high < UNGRADED)
        return coupling(np.nonzero(both)[0], self._weights[low[both]], self._weights[high[both]], self._g)

    def variances(self, first: Indices, second: Indices) -> FloatArray:
        """Variances of these pairs' differences over those of independent models; nan if not judged by trials."""
        at = self._pair[np.minimum(first, second), np.maximum(first, second)]
        return np.array([self._coupling(pair).variance if self._is_paired[pair] else np.nan for pair in at.tolist()])

    def _make_room(self, trials: int) -> None:
        models, questions, capacity = self._arrived.shape
        if trials > capacity:
            more = max(trials, 2 * capacity) - capacity
            empty = np.full((models, questions, more), MISSING, dtype=np.uint8)
            self._arrived = np.concatenate([self._arrived, empty], axis=2)
            self._kinds = np.concatenate([self._kinds, np.zeros_like(empty)], axis=2)

    def withdraw(self, model: int, since: IntArray) -> None:
        """Take back the trials of a model from the number `since` (M,) of each question on."""
        taken_back = np.arange(self._arrived.shape[2]) >= since[:, None]
        self._arrived[model][taken_back], self._kinds[model][taken_back] = MISSING, 0
        self._count_all()

    def _count_all(self) -> None:
        """Count all pairs anew."""
        self._counts[:] = 0
        for low, high in combinations(range(len(self._arrived)), 2):
            questions, trials = np.nonzero(self._arrived[low] < UNGRADED)
            self._count(
                low, high, questions, self._arrived[low, questions, trials], self._arrived[high, questions, trials]
            )

    def _count(
        self,
        model: int,
        other: int,
        questions: IntArray,
        categories: NDArray[np.uint8],
        other_categories: NDArray[np.uint8],
    ) -> None:
        both = (categories < UNGRADED) & (other_categories < UNGRADED)
        low, high = (categories, other_categories) if model < other else (other_categories, categories)
        pair = self._pair[min(model, other), max(model, other)]
        np.add.at(self._counts[pair], (questions[both], self._differences.category[low[both], high[both]]), 1)

    def paired(self, first: Indices, second: Indices, horizon: int, *, bounded: bool) -> list[PairedEvidence]:
        """Evidence on these pairs, first against second, as graded; empty if no pair is judged by trials.

        If `bounded`, also with unknown grades in favour of the first of each pair, and of the second."""
        at = self._pair[np.minimum(first, second), np.maximum(first, second)]
        chosen = self._is_paired[at]
        if not chosen.any():
            return []
        counts = self._counts[at]
        counts[first > second] = counts[first > second][..., ::-1]
        scenarios = [counts]
        if bounded:
            scenarios += [counts + self._bounding_counts(first, second, ahead) for ahead in (True, False)]
        values = self._differences.values
        groups = self._bench.benchmark_of
        horizons = self._horizons(first, second, horizon)
        moments = (paired_moments(scenario, self._weights, values, horizons, self._g, groups) for scenario in scenarios)
        return [PairedEvidence(chosen, scenario_moments, values) for scenario_moments in moments]

    def _horizons(self, first: Indices, second: Indices, horizon: int) -> FloatArray:
        """(n, M): trials of each question that both models of a pair have at the end, as many as a recorded one has."""
        horizons, asked = np.full((len(first), self._bench.questions), float(horizon)), self._bench.asked
        may_count = (self._arrived < UNGRADED) | ((self._arrived == MISSING) & asked[:, None, None])
        for at in np.flatnonzero(~(asked[first] & asked[second])).tolist():
            both = (may_count[first[at]] & may_count[second[at]]).sum(axis=1)
            horizons[at] = np.clip(both, 1, horizon)
        return horizons

    def differences(self, first: Indices, second: Indices) -> FloatArray:
        """(n, M): the mean difference of each pair on the trials of each question that both have; nan without any."""
        counts = self._counts[self._pair[np.minimum(first, second), np.maximum(first, second)]]
        with np.errstate(invalid="ignore"):
            mean = counts @ self._differences.values / counts.sum(axis=-1)
        return np.asarray(np.where((first < second)[:, None], mean, -mean))

    def _bounding_counts(self, first: Indices, second: Indices, first_ahead: bool) -> IntArray:
        """Changes of the counts (n, M, D) if all unknown grades are in favour of the first of each pair, or of the
        second."""
        changes = np.zeros((len(first), *self._counts.shape[1:]), dtype=np.int32)
        unknown = self._unknown()
        models, questions, trials = np.nonzero(unknown)
        has_unknown = np.zeros(len(self._arrived), dtype=bool)
        has_unknown[models] = True
        places = np.unique(np.stack([questions, trials], axis=1), axis=0)
        for number in np.flatnonzero(has_unknown[first] | has_unknown[second]).tolist():
            first_grades, first_extreme = self._grades(first[number], places, unknown, best=first_ahead)
            second_grades, second_extreme = self._grades(second[number], places, unknown, best=not first_ahead)
            both = (first_grades != MISSING) & (second_grades != MISSING)
            graded = both & (first_grades < UNGRADED) & (second_grades < UNGRADED)
            at, category_of = places[:, 0], self._differences.category
            np.subtract.at(changes[number], (at[graded], category_of[first_grades[graded], second_grades[graded]]), 1)
            np.add.at(changes[number], (at[both], category_of[first_extreme[both], second_extreme[both]]), 1)
        return changes

    def _unknown(self) -> NDArray[np.bool_]:
        """(L, M, N): trials without a grade, and those whose grade could be another under today's plan."""
        unknown = (self._arrived == UNGRADED) | self._unsure.mask(self._kinds, self._arrived)
        if (recorded := self._bench.recorded_trials) is not None:
            unknown[:, :, : recorded.unsure.shape[2]] |= recorded.unsure
        return np.asarray(unknown)

    def _grades(
        self, model: int, places: IntArray, unknown: NDArray[np.bool_], *, best: bool
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The categories of a model's trials at these places (question, trial), as they are, and with unknown grades at
        their best or at their worst."""
        at = model, places[:, 0], places[:, 1]
        categories, extreme = self._arrived[at], self._weights.argmax() if best else self._weights.argmin()
        return categories, np.where(unknown[at], int(extreme), categories)
