"""Rubrics: categories and weights that are declared up front, and what puts a trial into each.

rubric: binary                       # wrong 0, correct 1
rubric: {name: format_aware, assume: {verifier_c: 0}}   # one of the paper's twelve schemata
rubric:
  categories:                        # your own: the first whose conditions all hold
    - {name: cut_off, weight: 0, when: {truncated: true}}
    - {name: unboxed, weight: 0.5, when: {is_correct: true, has_box: false}}
    - {name: correct, weight: 1, when: {is_correct: true}}
    - {name: wrong, weight: 0}       # the one without conditions: everything else
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.errors import GraderError
from adaptive_eval.graders.types import SignalValue
from adaptive_eval.sections import Section, refuse
from scorio.categorical import SCHEMATA, Schema, Signals, Thresholds, classify
from scorio.categorical.signals import RANGES
from scorio.categorical.variables import PERCENTILES

Facts = Mapping[str, SignalValue]


class Rubric(Protocol):
    """Maps signals to a category."""

    @property
    def names(self) -> tuple[str, ...]:
        """What each category 0..C is called."""
        ...

    @property
    def weights(self) -> tuple[float, ...]:
        """The value of each category: w."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """The signals that it looks at."""
        ...

    def category(self, facts: Facts) -> int:
        """The category of a trial; `GraderError` names a signal that is missing."""
        ...


class SignalBounds(Section):
    """Limits on a number."""

    above: float | None = None
    """The number is larger than this."""
    at_least: float | None = None
    """The number is this or larger."""
    below: float | None = None
    """The number is smaller than this."""
    at_most: float | None = None
    """The number is this or smaller."""

    def hold(self, value: SignalValue) -> bool:
        """The value, as a number, is within all limits."""
        number = float(value) if not isinstance(value, str) else float("nan")
        return (
            (self.above is None or number > self.above)
            and (self.at_least is None or number >= self.at_least)
            and (self.below is None or number < self.below)
            and (self.at_most is None or number <= self.at_most)
        )


class CategoryConfig(Section):
    """One level of a rubric."""

    name: str = Field(min_length=1)
    """What reports call it."""
    weight: float
    """What an answer of this category is worth."""
    when: Mapping[str, bool | float | str | SignalBounds] = Field(default_factory=dict)
    """Signals and what each must be: true or false, a text, a number, or limits such as {at_most: 0.5}."""


BINARY = (
    CategoryConfig(name="wrong", weight=0.0),
    CategoryConfig(name="correct", weight=1.0, when={"is_correct": True}),
)


class RubricConfig(Section):
    """Which categories there are, and what each is worth."""

    categories: tuple[CategoryConfig, ...] = ()
    """Tried in this order; exactly one is without `when` and takes what no other does."""
    name: str = "binary"
    """`binary`, or one of the paper's schemata such as `format_aware`; with `categories`, a name of your own."""
    weights: tuple[float, ...] | None = None
    """Other weights for the categories of a schema, from category 0 (invalid) on."""
    thresholds: Mapping[str, float] = Field(default_factory=dict)
    """The fitted thresholds that a schema compares with, such as {high: 0.31}."""
    assume: Mapping[str, float] = Field(default_factory=dict)
    """Values for signals that this run does not have, such as {verifier_c: 0}."""

    @field_validator("categories")
    @classmethod
    def _one_for_the_rest(cls, categories: tuple[CategoryConfig, ...]) -> tuple[CategoryConfig, ...]:
        names = [category.name for category in categories]
        rest = [category.name for category in categories if not category.when]
        if categories and len(rest) != 1:
            named = ", ".join(rest) or "none"
            raise refuse(f"must have exactly one category without `when`, got {named}", "it takes what no other does")
        if len(set(names)) < len(names):
            raise refuse("must have a different name each", "rename one of those that are equal")
        if categories and len({category.weight for category in categories}) < 2:
            raise refuse("must have at least two different weights", "with equal weights every model scores the same")
        return categories

    @field_validator("name")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        known = ("binary", *SCHEMATA)
        if name not in known and info.data.get("categories") == ():
            raise refuse("must name a rubric that is there, or come with `categories`", f"those are {', '.join(known)}")
        return name

    @field_validator("weights")
    @classmethod
    def _fit_the_schema(cls, weights: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        schema = SCHEMATA.get(info.data.get("name", ""))
        if weights is not None and schema is None:
            raise refuse("are only for the paper's schemata", "give each of your categories its own `weight`")
        if weights is not None and schema is not None and len(weights) != len(schema.weights):
            raise refuse(
                f"must be {len(schema.weights)} numbers, one a category: {', '.join(schema.labels)}", "count again"
            )
        return weights

    @field_validator("thresholds", "assume")
    @classmethod
    def _known_names(cls, values: Mapping[str, float], info: ValidationInfo) -> Mapping[str, float]:
        known = PERCENTILES if info.field_name == "thresholds" else RANGES
        if unknown := sorted(values.keys() - known.keys()):
            raise refuse(f"may not name {', '.join(unknown)}", f"the names are {', '.join(known)}")
        return values


@dataclass(frozen=True)
class DeclaredRubric:
    """Categories with conditions: the first whose conditions all hold."""

    categories: tuple[CategoryConfig, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(category.name for category in self.categories)

    @property
    def weights(self) -> tuple[float, ...]:
        return tuple(category.weight for category in self.categories)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(name for category in self.categories for name in category.when)

    def category(self, facts: Facts) -> int:
        rest = 0
        for number, category in enumerate(self.categories):
            if not category.when:
                rest = number
            elif all(_holds(wanted, _fact(facts, name)) for name, wanted in category.when.items()):
                return number
        return rest


def _holds(wanted: bool | float | str | SignalBounds, value: SignalValue) -> bool:
    if isinstance(wanted, SignalBounds):
        return wanted.hold(value)
    if isinstance(wanted, str) or isinstance(value, str):
        return wanted == value
    return float(wanted) == float(value)


def _fact(facts: Facts, name: str) -> SignalValue:
    try:
        return facts[name]
    except KeyError:
        has = ", ".join(sorted(facts))
        raise GraderError(f"the rubric needs the signal {name}, but this trial has only {has}") from None


@dataclass(frozen=True)
class SchemaRubric:
    """One of the paper's schemata, with thresholds that were fitted before the run."""

    schema: Schema
    weights: tuple[float, ...]
    thresholds: Thresholds
    assume: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        return self.schema.labels

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.schema.signals) - self.assume.keys()

    def category(self, facts: Facts) -> int:
        signals = self.schema.signals
        values = tuple(self.assume[name] if name in self.assume else _number(facts, name) for name in signals)
        return _classified(self.schema.name, self.thresholds, values)


@lru_cache(maxsize=4096)
def _classified(name: str, thresholds: Thresholds, values: tuple[float, ...]) -> int:
    """`classify` for one trial; most trials differ in yes and no only, and its arrays cost 0.2 ms."""
    schema = SCHEMATA[name]
    signals = Signals(**{name: np.asarray(value) for name, value in zip(schema.signals, values, strict=True)})
    return int(classify(signals, schema, thresholds))


def _number(facts: Facts, name: str) -> float:
    value = _fact(facts, name)
    if isinstance(value, str):
        raise GraderError(f"the rubric needs a number for the signal {name}, but got the text {value!r:.80}")
    return float(value)


def open_rubric(config: RubricConfig) -> Rubric:
    """The rubric that the configuration names."""
    if config.categories:
        return DeclaredRubric(config.categories)
    if config.name == "binary":
        return DeclaredRubric(BINARY)
    schema = SCHEMATA[config.name]
    thresholds = Thresholds(**config.thresholds)
    return SchemaRubric(schema, config.weights or schema.weights, thresholds, config.assume)
