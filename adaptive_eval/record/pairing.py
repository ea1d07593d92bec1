"""Dependence between models that were asked with the same seeds, trial by trial.

A server that draws by Gumbel-max, with noise keyed by seed and position, gives models with the same vocabulary the same
random numbers if prompts and seeds are the same, as with `trials.seeds: consecutive` or `coupled`. Near copies then err
together, and their difference is known better than from independent trials; opposite outcomes make it less certain.
With `consecutive`, z assumes independence, and the dependence is only reported; with `coupled`, comparisons may be
judged by it, and then say so. `scorio.sinf.coupling` has the formula.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.record.history import has_foreign_trials
from adaptive_eval.record.restore import StoredRun
from adaptive_eval.record.results import PairRow
from scorio.moments import FloatArray
from scorio.sinf.paired import coupling

_TRIALS = 2**32
"""The place of an answer is its question's number times this plus its trial."""


class ModelValues:
    """Values of one model's answers, in 16 bytes each: there may be millions."""

    def __init__(self) -> None:
        self._places, self._values = array("q"), array("d")

    def add(self, question: int, trial: int, value: float) -> None:
        """Add one answer; each is added once."""
        self._places.append(question * _TRIALS + trial)
        self._values.append(value)

    def shared(self, other: "ModelValues") -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
        """Question and both values of each trial that both models have, in order."""
        own, others = np.frombuffer(self._places, np.int64), np.frombuffer(other._places, np.int64)
        places, at, other_at = np.intersect1d(own, others, assume_unique=True, return_indices=True)
        return places // _TRIALS, np.frombuffer(self._values)[at], np.frombuffer(other._values)[other_at]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two compared models that were asked with the same seeds."""

    better: str
    worse: str
    trials: int
    """Number of trials that both models have."""
    variance: float
    """Variance of their difference relative to independent models: below 1 if they err together."""
    sigma: float
    """Standard error of `variance` for independent models."""
    by_trial: bool = False
    """Whether they were compared trial by trial."""

    @property
    def is_shown(self) -> bool:
        """Whether the variance differs from independent models by more than three standard errors."""
        return abs(self.variance - 1.0) > 3.0 * self.sigma


def pairing_in_words(variance: float) -> str:
    """Say which share of the trials a comparison trial by trial takes."""
    much = "takes" if variance <= 1.0 else "takes, since they go against each other,"
    return f"compared trial by trial, which {much} {variance:.2f} of the trials that independent models would"


def pairing_sentences(pairs: Sequence[PairRow]) -> tuple[str, ...]:
    """A sentence for each comparison that is judged by trials with the same seeds."""
    return tuple(
        f"{pair.better} and {pair.worse} are {pairing_in_words(pair.variance_by_trial)}."
        for pair in pairs
        if pair.variance_by_trial is not None
    )


def pairings(stored: StoredRun, pairs: Sequence[PairRow]) -> tuple[Pairing, ...]:
    """Pairings of the compared models; empty if no seeds were shared, or the seeds are unknown."""
    config = stored.setup.config
    if config.trials.seeds == "hashed" or has_foreign_trials(stored.events):
        return ()
    asked = {model.name for model in config.asked}
    alike = [
        (pair.better, pair.worse, pair.by_trial)
        for pair in pairs
        if pair.worse is not None and {pair.better, pair.worse} <= asked
    ]
    if not alike:
        return ()
    values = _answer_values(stored, {name for better, worse, _ in alike for name in (better, worse)})
    found = (
        pairing(better, worse, values[better], values[worse], by_trial=by_trial) for better, worse, by_trial in alike
    )
    return tuple(one for one in found if one is not None)


def _answer_values(stored: StoredRun, names: set[str]) -> Mapping[str, ModelValues]:
    weights, found = stored.rubric.weights, {name: ModelValues() for name in names}
    questions: dict[str, int] = {}
    for one in stored.reader.outcomes():
        if one.model in names and one.category is not None:
            question = questions.setdefault(one.question, len(questions))
            found[one.model].add(question, one.trial, weights[one.category])
    return found


def pairing(
    better: str, worse: str, first: ModelValues, second: ModelValues, *, by_trial: bool = False
) -> Pairing | None:
    """The pairing of two models; None if they share too few trials, or all outcomes are alike."""
    found = coupling(*first.shared(second))
    return Pairing(better, worse, *found, by_trial) if np.isfinite(found.variance) else None
