"""A schema declares its categories and their weights before any trial is seen, and maps trials to them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scorio.categorical.signals import RANGES, Signals
from scorio.categorical.variables import INVALID, PERCENTILES, VARIABLES, SignalCondition, Thresholds
from scorio.moments import IntArray

Mask = NDArray[np.bool_]

_WHOSE = {None: "any", True: "correct", False: "wrong"}


class Category(NamedTuple):
    """One level of a rubric: its weight, and the rubric variables that put a trial there.

    Attributes:
        label: What the level stands for.
        weight: What a trial in it is worth.

    Examples:
        >>> from scorio.categorical import Category
        >>> Category("correct and boxed", 1.0, (("correct", "boxed"),)).weight
        1.0
    """

    label: str
    weight: float
    rule: tuple[tuple[str, ...], ...]
    """Alternatives, each a tuple of variables that must all hold."""


@dataclass(frozen=True)
class Schema:
    """A rubric over the base signals: category 0 is invalid, the others are tried on what is valid.

    Attributes:
        name: A short name, as error messages give it.
        invalid_weight: What an invalid trial is worth.

    Examples:
        >>> from scorio.categorical import Category, Schema
        >>> wrong, right = Category("wrong", 0.0, (("wrong",),)), Category("correct", 1.0, (("correct",),))
        >>> schema = Schema("mine", "Mine", (wrong, right))
        >>> schema.labels, schema.weights, schema.signals
        (('invalid', 'wrong', 'correct'), (0.0, 0.0, 1.0), ('is_correct', 'repeated_pattern', 'verifier_c'))
    """

    name: str
    title: str
    """The name in the paper's Table 5."""
    categories: tuple[Category, ...]
    """Categories 1..C; 0 (invalid) comes before them in every schema."""
    invalid_weight: float = 0.0

    def __post_init__(self) -> None:
        unknown = sorted(self._variables() - set(VARIABLES))
        if unknown:
            raise ValueError(f"schema {self.name} uses unknown rubric variables {', '.join(unknown)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The meaning of each category 0..C."""
        return ("invalid", *(category.label for category in self.categories))

    @property
    def weights(self) -> tuple[float, ...]:
        """The default weight vector w of length C + 1."""
        return (self.invalid_weight, *(category.weight for category in self.categories))

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """The base signals that every trial must have."""
        return tuple(name for name in RANGES if name in self._names())

    @cached_property
    def thresholds(self) -> tuple[str, ...]:
        """The thresholds that must have been fitted."""
        return tuple(name for name in PERCENTILES if name in self._names())

    def _variables(self) -> set[str]:
        return {variable for category in self.categories for alternative in category.rule for variable in alternative}

    def _names(self) -> set[str]:
        """Signals and thresholds that occur in a comparison."""
        comparisons = [*INVALID, *(comparison for name in self._variables() for comparison in VARIABLES[name])]
        return {comparison.signal for comparison in comparisons} | {
            comparison.bound for comparison in comparisons if isinstance(comparison.bound, str)
        }


def classify(signals: Signals, schema: Schema, thresholds: Thresholds | None = None) -> IntArray:
    """The category 0..C of every trial, in the shape of the signals: the R of `scorio.Counts` with w = schema.weights.

    A schema that compares with percentiles needs the `thresholds` of `fit_thresholds`; the others need none.

    Args:
        signals: The base signals of the trials.
        schema: The rubric.
        thresholds: The fitted percentiles; None where the schema needs none.

    Returns:
        The category of each trial.

    Examples:
        >>> from scorio.categorical import SCHEMATA, Signals, classify
        >>> made = dict(repeated_pattern=[0, 0, 0, 1], verifier_c=[0.1, 0.0, 0.2, 0.0])
        >>> signals = Signals(is_correct=[1, 1, 0, 1], has_box=[1, 0, 1, 1], **made)
        >>> classify(signals, SCHEMATA["format_aware"])
        array([4, 3, 2, 0])
    """
    for name in schema.signals:
        signals.require(name, f"schema {schema.name}")
    compare = partial(_compare, signals, schema.name, thresholds or Thresholds())
    valid = ~np.any([compare(condition) for condition in INVALID], axis=0)
    category = np.zeros(signals.shape, dtype=np.int64)
    hits = np.zeros(signals.shape, dtype=np.int64)
    for number, declared in enumerate(schema.categories, start=1):
        members = np.any([_all_of(alternative, valid, compare) for alternative in declared.rule], axis=0)
        category[members] = number
        hits += members
    if (hits[valid] != 1).any():
        raise ValueError(
            f"schema {schema.name} must put each valid trial into exactly one category, "
            f"but {np.count_nonzero(hits[valid] == 0)} fit none and {np.count_nonzero(hits[valid] > 1)} fit several: "
            "mend its rules"
        )
    return category


def _all_of(variables: tuple[str, ...], among: Mask, compare: Callable[[SignalCondition], Mask]) -> Mask:
    """Mask of the given trials for which all variables hold; thresholds that none depends on are not read."""
    held = among.copy()
    for condition in (condition for variable in variables for condition in VARIABLES[variable]):
        if held.any():
            held &= compare(condition)
    return held


def _compare(signals: Signals, schema: str, thresholds: Thresholds, condition: SignalCondition) -> Mask:
    """Mask of the trials for which a condition holds."""
    bound = condition.bound
    if isinstance(bound, str):
        value = getattr(signals if bound in RANGES else thresholds, bound)
        if value is None:
            rule = PERCENTILES[bound]
            raise ValueError(
                f"threshold {bound} is missing: schema {schema} needs it, fit it with fit_thresholds on "
                f"{_WHOSE[rule.correct]} trials with {rule.signal}"
            )
        bound = value
    result: Mask = condition.relation(getattr(signals, condition.signal), bound)
    return result
