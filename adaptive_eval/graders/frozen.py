"""Thresholds that are fitted once and then frozen: percentiles of signals, and typical lengths of answers.

A percentile, and with it the meaning of a category, depends on the trials it is fitted on. So it is fitted on trials
that were not selected by their outcomes, those of the first round of a run (equally many answers of every model to
every question), and then frozen.

`length_ratio` is an answer's length in tokens divided by the median over all models' answers to the question there.
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
SHORTEST = 1.0
"""Smallest median in tokens: with 0, an answer to a question that most leave empty would be infinitely long."""


@dataclass(frozen=True, slots=True)
class FrozenThresholds:
    """Fitted thresholds."""

    values: Mapping[str, float] = field(default_factory=dict)
    rest_on: Mapping[str, int] = field(default_factory=dict)
    """Number of trials on which each was fitted."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Median tokens by question; empty if no category uses `length_ratio`."""


NOTHING_FROZEN = FrozenThresholds()


Numbers = Callable[[str], FloatArray]
"""Gives a signal of many trials as numbers (N,): nan for trials without it, or with a text."""


def fact_numbers(facts: Sequence[Facts]) -> Numbers:
    """The signals of trials whose facts are held one by one."""

    def numbers(name: str) -> FloatArray:
        values = (one.get(name) for one in facts)
        return np.array([np.nan if value is None or isinstance(value, str) else float(value) for value in values])

    return numbers


def fit_frozen(
    numbers: Numbers, questions: Sequence[str], percentiles: Mapping[str, Percentile], *, with_medians: bool
) -> FrozenThresholds:
    """Fit thresholds on the trials that have their signals; raises `GraderError` if there is none for one."""
    medians = median_lengths(numbers, questions) if with_medians else {}
    values: dict[str, float] = {}
    rest_on: dict[str, int] = {}
    for name, rule in percentiles.items():
        column = length_ratios(numbers, questions, medians) if rule.signal == LENGTH_RATIO else numbers(rule.signal)
        is_correct = None if rule.correct is None else numbers("is_correct")
        known = ~np.isnan(column) if is_correct is None else ~np.isnan(column) & ~np.isnan(is_correct)
        chosen = chosen_values(rule, column[known], None if is_correct is None else is_correct[known])
        value = fit_percentile(rule, chosen)
        if value is None:
            which = {None: "", True: " and is right", False: " and is wrong"}[rule.correct]
            raise GraderError(f"the threshold {name} cannot be fitted: no trial has {rule.signal}{which}")
        values[name], rest_on[name] = value, len(chosen)
    return FrozenThresholds(values, rest_on, medians)


def median_lengths(numbers: Numbers, questions: Sequence[str]) -> dict[str, float]:
    """The median tokens of an answer to each question."""
    lengths, labels = numbers(LENGTH), np.array(questions, dtype=object)
    known = ~np.isnan(lengths)
    found = {key: float(np.median(lengths[known & (labels == key)])) for key in dict.fromkeys(labels[known].tolist())}
    return {key: max(median, SHORTEST) for key, median in found.items()}


def length_ratios(numbers: Numbers, questions: Sequence[str], medians: Mapping[str, float]) -> FloatArray:
    """(N,): the length of each answer divided by the median of its question."""
    return np.asarray(numbers(LENGTH) / np.array([medians.get(key, np.nan) for key in questions]))


def with_length_ratio(facts: Facts, question: str, medians: Mapping[str, float]) -> Facts:
    """Add `length_ratio` to the signals of an answer, if the median of its question is known."""
    if question not in medians or LENGTH not in facts:
        return facts
    return {**facts, LENGTH_RATIO: float(facts[LENGTH]) / medians[question]}
