"""Rubrics: categories that are declared up front, with their weights and conditions.

rubric: binary                       # wrong 0, correct 1
rubric: format_aware                 # one of the paper's twelve schemata
rubric:
  categories:                        # your own: the first one whose conditions all hold
    - {name: cut_off, weight: 0, when: {truncated: true}}
    - {name: unboxed, weight: 0.5, when: {is_correct: true, has_box: false}}
    - {name: correct, weight: 1, when: {is_correct: true}}
    - {name: wrong, weight: 0}       # the one without conditions: everything else

A condition may compare with a percentile, as in {completion_tokens: {at_most: p33}}. `thresholds` gives its number, or
the run on whose first round it is fitted; a rubric that still `lacks` it gives no category.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.base.errors import GraderError, PartialCredit
from adaptive_eval.base.sections import Section, refuse
from adaptive_eval.core.answer_kinds import SAY_NOTHING, AnswerKind
from adaptive_eval.core.settings import MOST_CATEGORIES
from adaptive_eval.graders.frozen import LENGTH_RATIO, NOTHING_FROZEN, Facts, FrozenThresholds, with_length_ratio
from adaptive_eval.graders.types import ANSWER_SIGNALS, NEEDS_RUBRIC, SignalValue
from scorio.categorical import SCHEMATA, Schema, Signals, Thresholds, classify
from scorio.categorical.variables import INVALID, PERCENTILES, VARIABLES, Percentile

PercentileName = Annotated[str, Field(pattern=r"^p\d{1,2}(\.\d+)?$")]
"""p33 for the 33rd percentile."""
TIMES = frozenset({"latency", "ttft", "judge_gpu_seconds", "judge_seconds"})
"""Signals that differ between runs for the same answer, so that conditions may not use them."""


COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}


class SignalBounds(Section):
    """Limits on a number: each a number, or a percentile of the signal such as p33 (see `rubric.thresholds`)."""

    above: float | PercentileName | None = None
    """The number is larger than this."""
    at_least: float | PercentileName | None = None
    """The number is this or larger."""
    below: float | PercentileName | None = None
    """The number is smaller than this."""
    at_most: float | PercentileName | None = None
    """The number is this or smaller."""

    @property
    def percentiles(self) -> Mapping[str, str]:
        """The limits that are percentiles, by comparison."""
        limits = {name: getattr(self, name) for name in COMPARISONS}
        return {name: limit for name, limit in limits.items() if isinstance(limit, str)}

    def contains(self, value: SignalValue) -> bool:
        """Whether a value, as a number, is within all limits."""
        number = float(value) if not isinstance(value, str) else float("nan")
        limits = ((compare, getattr(self, name)) for name, compare in COMPARISONS.items())
        return all(compare(number, limit) for compare, limit in limits if limit is not None)


Weight = Annotated[float, Field(ge=-1e9, le=1e9)]
"""Beyond these limits variances would overflow."""


class CategoryConfig(Section):
    """One level of a rubric."""

    name: str = Field(min_length=1)
    """Name in reports."""
    weight: Weight
    """Score of an answer of this category."""
    when: Mapping[str, bool | float | str | SignalBounds] = Field(default_factory=dict)
    """Required values of signals: true or false, a text, a number, or limits such as {at_most: 0.5}."""

    @field_validator("when")
    @classmethod
    def _check_timeless(
        cls, when: Mapping[str, bool | float | str | SignalBounds]
    ) -> Mapping[str, bool | float | str | SignalBounds]:
        if times := sorted(TIMES & when.keys()):
            raise refuse(
                f"may not look at {', '.join(times)}, since the same answers would have other categories another time",
                "look at completion_tokens, or at length_ratio",
            )
        return when


BINARY = (
    CategoryConfig(name="wrong", weight=0.0),
    CategoryConfig(name="correct", weight=1.0, when={"is_correct": True}),
)


FROM = "from"
"""The key of `thresholds` that names a run."""


class RubricConfig(Section):
    """Categories of answers, and their scores."""

    categories: tuple[CategoryConfig, ...] = Field((), max_length=MOST_CATEGORIES)
    """Categories in the order in which they are tried; exactly one, for all other answers, has no `when`."""
    name: str = "binary"
    """`binary`, or one of the paper's schemata such as `format_aware`; with `categories`, a name of your own."""
    weights: tuple[Weight, ...] | None = None
    """Other weights for the categories of a schema, from category 0 (invalid) on."""
    thresholds: Mapping[str, float | Path] = Field(default_factory=dict)
    """Values of percentiles in a schema or a condition, such as {high: 0.31}, or {completion_tokens p33: 1200}. With
    {from: RUN}, the directory of another run, relative to the current directory, the others and the median lengths for
    `length_ratio` are those of that run, or are fitted to its trials before its first look. They never change."""

    @field_validator("categories")
    @classmethod
    def _check_default_category(cls, categories: tuple[CategoryConfig, ...]) -> tuple[CategoryConfig, ...]:
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
    def _check_name(cls, name: str, info: ValidationInfo) -> str:
        known = ("binary", *SCHEMATA)
        if name not in known and info.data.get("categories") == ():
            raise refuse("must name a rubric that is there, or come with `categories`", f"those are {', '.join(known)}")
        return name

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, weights: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        schema = SCHEMATA.get(info.data.get("name", ""))
        if weights is not None and schema is None:
            raise refuse("are only for the paper's schemata", "give each of your categories its own `weight`")
        if weights is not None and schema is not None and len(weights) != len(schema.weights):
            raise refuse(
                f"must be {len(schema.weights)} numbers, one a category: {', '.join(schema.labels)}", "count again"
            )
        return weights

    @property
    def percentiles(self) -> Mapping[str, Percentile]:
        """Thresholds that are percentiles, given as a number or not."""
        if self.categories or self.name == "binary":
            return _percentiles(self.categories)
        return {name: PERCENTILES[name] for name in SCHEMATA[self.name].thresholds}

    @property
    def looks_at_lengths(self) -> bool:
        """Whether some category uses `length_ratio`."""
        return any(LENGTH_RATIO in category.when for category in self.categories)

    @property
    def source_run(self) -> Path | None:
        """The run that gives the percentiles without a number."""
        source = self.thresholds.get(FROM)
        return source if isinstance(source, Path) else None

    @property
    def numbers(self) -> Mapping[str, float]:
        """The percentiles that are given as numbers."""
        return {name: value for name, value in self.thresholds.items() if not isinstance(value, Path)}

    @property
    def unfitted(self) -> Mapping[str, Percentile]:
        """The percentiles for which the configuration gives no number."""
        return {name: rule for name, rule in self.percentiles.items() if name not in self.thresholds}

    @field_validator("thresholds")
    @classmethod
    def _check_thresholds(cls, values: Mapping[str, float | Path], info: ValidationInfo) -> Mapping[str, float | Path]:
        own = _percentiles(info.data.get("categories", ()))
        _require_known(values, (FROM, *PERCENTILES, *own))
        for name, value in values.items():
            if isinstance(value, Path) is not (name == FROM):
                rule = f"must have the directory of a run under `{FROM}`, and a number under every other name"
                raise refuse(f"{rule}, but got {name}: {value}", "write it like {from: runs/pilot}, or {high: 0.31}")
        return values


def _require_known(values: Mapping[str, object], known: Collection[str]) -> None:
    if unknown := sorted(values.keys() - set(known)):
        raise refuse(f"may not name {', '.join(unknown)}", f"the names are {', '.join(known)}")


def _percentiles(categories: tuple[CategoryConfig, ...]) -> dict[str, Percentile]:
    """The percentiles that conditions compare with, by name."""
    return {
        percentile_name(signal, limit): Percentile(signal, float(limit[1:]))
        for category in categories
        for signal, wanted in category.when.items()
        if isinstance(wanted, SignalBounds)
        for limit in wanted.percentiles.values()
    }


def percentile_name(signal: str, limit: str) -> str:
    """The name of a percentile of a signal, such as `completion_tokens p33`."""
    return f"{signal} {limit}"


@dataclass(frozen=True)
class DeclaredRubric:
    """Categories with conditions, of which the first applies whose conditions all hold."""

    categories: tuple[CategoryConfig, ...]
    lacks: tuple[str, ...] = ()
    """Names of thresholds that must be fitted before it can give a category."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Median tokens of an answer to each question, if it uses `length_ratio`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of categories 0..C."""
        return tuple(category.name for category in self.categories)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights w of the categories."""
        return tuple(category.weight for category in self.categories)

    @property
    def needs(self) -> frozenset[str]:
        """The signals that conditions use."""
        return frozenset(name for category in self.categories for name in category.when)

    def category(self, facts: Facts) -> int:
        """The category of a trial; raises `GraderError` naming a missing signal."""
        _require_fitted(self)
        rest = 0
        for number, category in enumerate(self.categories):
            if not category.when:
                rest = number
            elif all(_fulfils(wanted, _fact(facts, name)) for name, wanted in category.when.items()):
                return number
        return rest


def _fulfils(wanted: bool | float | str | SignalBounds, value: SignalValue) -> bool:
    if isinstance(wanted, SignalBounds):
        return wanted.contains(value)
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

    @property
    def names(self) -> tuple[str, ...]:
        return self.schema.labels

    @property
    def lacks(self) -> tuple[str, ...]:
        return tuple(name for name in self.schema.thresholds if getattr(self.thresholds, name) is None)

    @property
    def medians(self) -> Mapping[str, float]:
        return {}

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.schema.signals) - self.optional

    @property
    def optional(self) -> frozenset[str]:
        """The signals that count as 0 where a trial lacks them."""
        return _optional_signals(self.schema.name)

    def category(self, facts: Facts) -> int:
        _require_fitted(self)
        signals = self.schema.signals
        values = tuple(0.0 if name in self.optional - facts.keys() else _number(facts, name) for name in signals)
        return _classified(self.schema.name, self.thresholds, values)


@cache
def _optional_signals(name: str) -> frozenset[str]:
    """A grader's signals that a schema uses for its category 0 (invalid) alone: `verifier_c` of a verifier."""
    of_invalid = frozenset(condition.signal for condition in INVALID) - ANSWER_SIGNALS
    ways = (way for category in SCHEMATA[name].categories for way in category.rule)
    compared = [condition for way in ways for variable in way for condition in VARIABLES[variable]]
    others = {signal for condition in compared for signal in (condition.signal, condition.bound)}
    return of_invalid - others


@lru_cache(maxsize=4096)
def _classified(name: str, thresholds: Thresholds, values: tuple[float, ...]) -> int:
    """`classify` for one trial, cached: it takes 0.2 ms, and most trials have one of few combinations of signals."""
    schema = SCHEMATA[name]
    signals = Signals(**{name: np.asarray(value) for name, value in zip(schema.signals, values, strict=True)})
    return int(classify(signals, schema, thresholds))


def _number(facts: Facts, name: str) -> float:
    value = _fact(facts, name)
    if isinstance(value, str):
        raise GraderError(f"the rubric needs a number for the signal {name}, but got the text {value!r:.80}")
    return float(value)


Rubric = DeclaredRubric | SchemaRubric
"""Maps signals to a category."""
OF_CUT_ANSWERS = frozenset({"truncated", "repeated_pattern"})
"""Signals by which a rubric says what becomes of answers that were cut off."""


def grades_cut_answers(rubric: Rubric) -> bool:
    """Whether the rubric says what becomes of answers that were cut off, so that their grades stand."""
    return not rubric.needs.isdisjoint(OF_CUT_ANSWERS)


def says_nothing(rubric: Rubric) -> AnswerKind:
    """Kinds of answers that hold no answer, without those that the rubric says what becomes of."""
    if AnswerKind.EMPTY.signal in rubric.needs:  # whatever holds no answer is empty
        return AnswerKind(0)
    return AnswerKind(sum(kind for kind in SAY_NOTHING if kind.signal not in rubric.needs))


def best_is_sure(rubric: Rubric) -> bool:
    """Whether only answers are in the best category that say something: not where the share of wrong ones is scored.

    Then an answer in it that was cut off would be in it if it were whole.
    """
    return bool(rubric.lacks) or rubric.category(dict.fromkeys(rubric.needs, False)) != int(np.argmax(rubric.weights))


def _require_fitted(rubric: Rubric) -> None:
    if rubric.lacks:
        raise GraderError(f"the rubric gives no category without numbers for {', '.join(rubric.lacks)}")


def open_rubric(config: RubricConfig, frozen: FrozenThresholds = NOTHING_FROZEN) -> Rubric:
    """Create the rubric of a configuration, with the thresholds fitted so far."""
    known = {**frozen.values, **config.numbers}
    if config.categories:
        lacks = [name for name in config.percentiles if name not in known]
        if config.looks_at_lengths and not frozen.medians:
            lacks.append(LENGTH_RATIO)
        categories = tuple(_with_numbers(category, known) for category in config.categories)
        return DeclaredRubric(categories, tuple(lacks), frozen.medians if config.looks_at_lengths else {})
    if config.name == "binary":
        return DeclaredRubric(BINARY)
    schema = SCHEMATA[config.name]
    thresholds = Thresholds(**{name: value for name, value in known.items() if name in PERCENTILES})
    return SchemaRubric(schema, config.weights or schema.weights, thresholds)


def _with_numbers(category: CategoryConfig, known: Mapping[str, float]) -> CategoryConfig:
    """Replace the percentiles of a category whose numbers are known."""
    when: dict[str, bool | float | str | SignalBounds] = dict(category.when)
    for signal, wanted in category.when.items():
        if isinstance(wanted, SignalBounds) and wanted.percentiles:
            names = {side: percentile_name(signal, limit) for side, limit in wanted.percentiles.items()}
            numbers = {side: known[name] for side, name in names.items() if name in known}
            when[signal] = wanted.model_copy(update=numbers)
    return category.model_copy(update={"when": when})


class RubricResult(NamedTuple):
    """The category that a rubric gives to signals."""

    category: int
    measured: Facts
    """Further signals, which depend on thresholds."""


def apply_rubric(facts: Facts, rubric: Rubric, question: str) -> RubricResult:
    """Apply a rubric to an answer; raises `GraderError` naming a missing signal, `PartialCredit` for a score that is
    neither right nor wrong."""
    if "is_correct" not in facts and "score" in facts and "is_correct" in rubric.needs:
        if "score" not in rubric.needs:
            raise PartialCredit(f"the score {facts['score']!r} is neither right nor wrong, {NEEDS_RUBRIC}")
        facts = {**facts, "is_correct": False}
    whole = with_length_ratio(facts, question, rubric.medians)
    measured = {LENGTH_RATIO: whole[LENGTH_RATIO]} if rubric.medians and LENGTH_RATIO in whole else {}
    return RubricResult(rubric.category(whole), measured)
