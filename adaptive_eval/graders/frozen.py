"""Thresholds that are fitted once and then frozen: percentiles of signals, and median lengths of answers.

A percentile, and with it the meaning of a category, depends on the trials it is fitted on. These must not be selected
by their outcomes, so the trials of a run's first round are used: equally many per model and question.

`length_ratio` is an answer's length in tokens divided by the median over all models' answers to that question in the
first round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.types import SignalValue
from scorio.categorical.variables import Percentile, chosen_values, fit_percentile
from scorio.moments import FloatArray

Facts = Mapping[str, SignalValue]

LENGTH_RATIO = "length_ratio"
LENGTH = "completion_tokens"
MIN_MEDIAN = 1.0
"""Lower bound of a median in tokens, which avoids division by 0 if most answers to a question are empty."""


@dataclass(frozen=True, slots=True)
class FrozenThresholds:
    """Fitted thresholds."""

    values: Mapping[str, float] = field(default_factory=dict)
    rest_on: Mapping[str, int] = field(default_factory=dict)
    """Number of trials that each was fitted on."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Median tokens per question; empty if no category uses `length_ratio`."""


NOTHING_FROZEN = FrozenThresholds()


Numbers = Callable[[str], FloatArray]
"""Returns a signal of many trials as numbers (N,): nan if a trial lacks it, or it is a text."""


def fact_numbers(facts: Sequence[Facts]) -> Numbers:
    """Columns of signals for trials whose facts are separate mappings."""

    def numbers(name: str) -> FloatArray:
        values = (trial_facts.get(name) for trial_facts in facts)
        return np.array([np.nan if value is None or isinstance(value, str) else float(value) for value in values])

    return numbers


def fit_frozen(
    numbers: Numbers, questions: Sequence[str], percentiles: Mapping[str, Percentile], *, with_medians: bool
) -> FrozenThresholds:
    """Fit thresholds on the trials that have their signals; raises `GraderError` if no trial has one of them."""
    medians = median_lengths(numbers, questions) if with_medians else {}
    values: dict[str, float] = {}
    rest_on: dict[str, int] = {}
    for name, rule in percentiles.items():
        column = length_ratios(numbers, questions, medians) if rule.signal == LENGTH_RATIO else numbers(rule.signal)
        is_correct = None if rule.correct is None else numbers("is_correct")
        has_signals = ~np.isnan(column) if is_correct is None else ~np.isnan(column) & ~np.isnan(is_correct)
        chosen = chosen_values(rule, column[has_signals], None if is_correct is None else is_correct[has_signals])
        value = fit_percentile(rule, chosen)
        if value is None:
            which = {None: "", True: " and is correct", False: " and is wrong"}[rule.correct]
            raise GraderError(f"the threshold {name} cannot be fitted: no trial has {rule.signal}{which}")
        values[name], rest_on[name] = value, len(chosen)
    return FrozenThresholds(values, rest_on, medians)


def median_lengths(numbers: Numbers, questions: Sequence[str]) -> dict[str, float]:
    """The median tokens of an answer to each question."""
    lengths, labels = numbers(LENGTH), np.array(questions, dtype=object)
    has_length = ~np.isnan(lengths)
    medians = {
        key: float(np.median(lengths[has_length & (labels == key)]))
        for key in dict.fromkeys(labels[has_length].tolist())
    }
    return {key: max(median, MIN_MEDIAN) for key, median in medians.items()}


def length_ratios(numbers: Numbers, questions: Sequence[str], medians: Mapping[str, float]) -> FloatArray:
    """(N,): the length of each answer divided by the median of its question."""
    return np.asarray(numbers(LENGTH) / np.array([medians.get(key, np.nan) for key in questions]))


def length_ratio(facts: Facts, question: str, medians: Mapping[str, float]) -> Facts:
    """The signal `length_ratio` of an answer, if the median of its question is known."""
    if question not in medians or LENGTH not in facts:
        return {}
    return {LENGTH_RATIO: float(facts[LENGTH]) / medians[question]}
