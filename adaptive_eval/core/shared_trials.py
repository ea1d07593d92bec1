"""Trials with shared seeds: what each pair of models made of the same trial.

Trial i of a question has one seed for all models of a run whose seeds are coupled. Nothing is assumed of what servers
make of that. The first look at two trials a question that both have tells how far a pair goes together (`coupling`). A
pair that does, or goes against each other, is judged from then on by the differences of the trials that both have, and
both are asked all questions alike; trials that only one has do not enter. Any other is judged as independent models
are, and asked as these are: where nothing is shared, nothing is lost.

What decides is the same whichever of two equal models is which, and so favours neither.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.core.rounds import MISSING, UNGRADED, Batch
from adaptive_eval.core.settings import Bench
from scorio.moments import FloatArray, IntArray
from scorio.sinf.paired import Coupling, DifferenceValues, PairedMoments, coupling, difference_values, paired_moments

Indices = NDArray[np.intp]
WORTH_PAIRING = 0.3
"""A variance so far from that of independent models, either way: less would not pay for asking all questions alike,
which takes up to 1.3 times the trials of weighted ones (benchmarks/coupling.md)."""
STANDARD_ERRORS = 3.0
"""And so many of them: by chance it happens to one pair in some hundreds."""


class PairedEvidence(NamedTuple):
    """Evidence from trials that both models of a pair share, and which pairs are judged by it."""

    chosen: NDArray[np.bool_]
    found: PairedMoments
    values: FloatArray
    """What the values of two trials can differ by."""


class SharedTrials:
    """Every graded trial by model, question and number, and for each pair of models how often each difference came."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._weights, self._g = bench, bench.weights, bench.question_weights
        self._differences: DifferenceValues = difference_values(bench.weights)
        self._came = np.full((bench.models, bench.questions, 0), MISSING, dtype=np.uint8)
        """(L, M, N): categories, or the marks of trials without one."""
        first, second = np.triu_indices(bench.models, k=1)
        self._pair = np.full((bench.models, bench.models), -1, dtype=np.intp)
        self._pair[first, second] = np.arange(len(first))
        self._counts = np.zeros((len(first), bench.questions, len(self._differences.values)), dtype=np.int32)
        """(P, M, D) of the pairs i < j."""
        self._is_paired = np.zeros(len(first), dtype=bool)
        self._is_known = np.zeros(len(first), dtype=bool)
        """(P,): how far the pair goes together was looked at."""

    def take(self, batches: Sequence[Batch]) -> None:
        """Count complete batches."""
        for batch in batches:
            (questions, trials), model = batch.places(), batch.model
            self._make_room(int(trials.max(initial=-1)) + 1)
            came = batch.categories_by_place()
            self._came[model, questions, trials] = came
            for other in range(len(self._came)):
                if other != model:
                    self._count(model, other, questions, came, self._came[other, questions, trials])
        for pair in np.flatnonzero(~self._is_known & (self._counts.sum(axis=2).min(axis=1) > 1)).tolist():
            self._is_known[pair] = True
            self._is_paired[pair] = self._goes_together(pair)

    def _goes_together(self, pair: int) -> bool:
        """Whether what both made of the same trials differs clearly from what independent models would."""
        found = self._coupling(pair)
        return bool(abs(found.variance - 1.0) >= max(WORTH_PAIRING, STANDARD_ERRORS * found.sigma))

    def _coupling(self, pair: int) -> Coupling:
        low, high = (self._came[model] for model in np.argwhere(self._pair == pair)[0])
        both = (low < UNGRADED) & (high < UNGRADED)
        return coupling(np.nonzero(both)[0], self._weights[low[both]], self._weights[high[both]], self._g)

    def variances(self, first: Indices, second: Indices) -> FloatArray:
        """Variances of these pairs' differences over those of independent models; nan if not judged by trials."""
        at = self._pair[np.minimum(first, second), np.maximum(first, second)]
        return np.array([self._coupling(pair).variance if self._is_paired[pair] else np.nan for pair in at.tolist()])

    def _make_room(self, trials: int) -> None:
        models, questions, there = self._came.shape
        if trials > there:
            more = max(trials, 2 * there) - there
            empty = np.full((models, questions, more), MISSING, dtype=np.uint8)
            self._came = np.concatenate([self._came, empty], axis=2)

    def _count(
        self, model: int, other: int, questions: IntArray, own: NDArray[np.uint8], theirs: NDArray[np.uint8]
    ) -> None:
        both = (own < UNGRADED) & (theirs < UNGRADED)
        low, high = (own, theirs) if model < other else (theirs, own)
        pair = self._pair[min(model, other), max(model, other)]
        np.add.at(self._counts[pair], (questions[both], self._differences.category[low[both], high[both]]), 1)

    def paired(self, first: Indices, second: Indices, horizon: int, *, ungraded: bool) -> list[PairedEvidence]:
        """Evidence on these pairs, first against second: as the grades are; where some are `ungraded`, also as it were
        if these spoke for the first of each pair, and for the second. Nothing where no pair is judged so."""
        at = self._pair[np.minimum(first, second), np.maximum(first, second)]
        chosen = self._is_paired[at]
        if not chosen.any():
            return []
        counts = self._counts[at]
        counts[first > second] = counts[first > second][..., ::-1]
        ways = [counts]
        if ungraded:
            worst, best = int(self._weights.argmin()), int(self._weights.argmax())
            ways += [counts + self._filled(first, second, *fill) for fill in ((best, worst), (worst, best))]
        values = self._differences.values
        groups = self._bench.benchmark_of
        found = (paired_moments(way, self._weights, values, horizon, self._g, groups) for way in ways)
        return [PairedEvidence(chosen, one, values) for one in found]

    def _filled(self, first: Indices, second: Indices, of_first: int, of_second: int) -> IntArray:
        """Counts (n, M, D) of the trials that both have and one has no grade for, were it this one."""
        found = np.zeros((len(first), *self._counts.shape[1:]), dtype=np.int32)
        models, questions, trials = np.nonzero(self._came == UNGRADED)
        lacking = np.zeros(len(self._came), dtype=bool)
        lacking[models] = True
        places = np.unique(np.stack([questions, trials], axis=1), axis=0)
        for number in np.flatnonzero(lacking[first] | lacking[second]).tolist():
            one, two = (self._came[model[number], places[:, 0], places[:, 1]] for model in (first, second))
            here = ((one == UNGRADED) | (two == UNGRADED)) & (one != MISSING) & (two != MISSING)
            one = np.where(one == UNGRADED, of_first, one)[here]
            two = np.where(two == UNGRADED, of_second, two)[here]
            np.add.at(found[number], (places[here, 0], self._differences.category[one, two]), 1)
        return found
