"""Thresholds that are fitted once, and then never move: percentiles of signals, and the usual length of an answer.

A percentile moves with the trials that it is fitted on, and the meaning of the categories with it. So it is fitted on a
set of trials that is selected by nothing, such as the opening of a run (as many answers of every model to every
question, whatever was answered), and frozen.

`length_ratio` is the length of an answer in tokens over the median of the question in these trials, of all models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from adaptive_eval.errors import GraderError
from adaptive_eval.graders.types import SignalValue
from scorio.categorical.variables import Percentile, chosen_values, fit_percentile
from scorio.moments import FloatArray

Facts = Mapping[str, SignalValue]

LENGTH_RATIO = "length_ratio"
LENGTH = "completion_tokens"
SHORTEST = 1.0
"""Tokens: no median is less, or an answer to a question that most leave empty would be infinitely long."""


@dataclass(frozen=True, slots=True)
class FrozenThresholds:
    """Thresholds that were fitted."""

    values: Mapping[str, float] = field(default_factory=dict)
    rest_on: Mapping[str, int] = field(default_factory=dict)
    """Trials that each was fitted on."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Tokens, by question; empty where no category looks at `length_ratio`."""


NOTHING_FROZEN = FrozenThresholds()


class SignalColumns(Protocol):
    """Signals of many trials."""

    def numbers(self, name: str) -> FloatArray:
        """(N,): a signal as a number; nan where a trial does not have it."""


@dataclass(frozen=True, slots=True)
class FactColumns:
    """The facts of trials that are there one by one, as columns."""

    facts: Sequence[Facts]

    def numbers(self, name: str) -> FloatArray:
        """(N,): a signal as a number; nan where a trial does not have it, or as a text."""
        values = (one.get(name) for one in self.facts)
        return np.array([np.nan if value is None or isinstance(value, str) else float(value) for value in values])


def fit_frozen(
    trials: SignalColumns, questions: Sequence[str], percentiles: Mapping[str, Percentile], *, with_medians: bool
) -> FrozenThresholds:
    """Fit each on the trials that have its signal; `GraderError` names one of which there is none."""
    medians = median_lengths(trials, questions) if with_medians else {}
    values: dict[str, float] = {}
    rest_on: dict[str, int] = {}
    for name, rule in percentiles.items():
        column = (
            length_ratios(trials, questions, medians) if rule.signal == LENGTH_RATIO else trials.numbers(rule.signal)
        )
        is_correct = None if rule.correct is None else trials.numbers("is_correct")
        known = ~np.isnan(column) if is_correct is None else ~np.isnan(column) & ~np.isnan(is_correct)
        chosen = chosen_values(rule, column[known], None if is_correct is None else is_correct[known])
        value = fit_percentile(rule, chosen)
        if value is None:
            which = {None: "", True: " and is right", False: " and is wrong"}[rule.correct]
            raise GraderError(f"the threshold {name} cannot be fitted: no trial has {rule.signal}{which}")
        values[name], rest_on[name] = value, len(chosen)
    return FrozenThresholds(values, rest_on, medians)


def median_lengths(trials: SignalColumns, questions: Sequence[str]) -> dict[str, float]:
    """Tokens of an answer to each question."""
    lengths, labels = trials.numbers(LENGTH), np.array(questions, dtype=object)
    known = ~np.isnan(lengths)
    found = {key: float(np.median(lengths[known & (labels == key)])) for key in dict.fromkeys(labels[known].tolist())}
    return {key: max(median, SHORTEST) for key, median in found.items()}


def length_ratios(trials: SignalColumns, questions: Sequence[str], medians: Mapping[str, float]) -> FloatArray:
    """(N,): the length of each answer over the median of its question."""
    return np.asarray(trials.numbers(LENGTH) / np.array([medians.get(key, np.nan) for key in questions]))


def with_length_ratio(facts: Facts, question: str, medians: Mapping[str, float]) -> Facts:
    """Signals of an answer, with its length relative to others to the same question."""
    if question not in medians or LENGTH not in facts:
        return facts
    return {**facts, LENGTH_RATIO: float(facts[LENGTH]) / medians[question]}
