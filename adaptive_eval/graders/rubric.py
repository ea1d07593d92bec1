"""Rubrics: categories that are declared up front, with their weights and conditions.

rubric: binary                       # wrong 0, correct 1
rubric: format_aware                 # one of the paper's twelve schemata
rubric:
  categories:                        # your own: the first category whose conditions all hold
    - {name: cut_off, weight: 0, when: {truncated: true}}
    - {name: unboxed, weight: 0.5, when: {is_correct: true, has_box: false}}
    - {name: correct, weight: 1, when: {is_correct: true}}
    - {name: wrong, weight: 0}       # without conditions: all other answers

A condition may compare with a percentile, as in {completion_tokens: {below: p33}}. `thresholds` has its number, or
the run on whose first round it is fitted. A rubric that still `lacks` it gives no category.
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from adaptive_eval.base.errors import GraderError, PartialCredit
from adaptive_eval.base.sections import Section, config_error
from adaptive_eval.core.answer_kinds import INCOMPLETE, SAY_NOTHING, AnswerKind, UnsureGrades
from adaptive_eval.core.settings import MAX_CATEGORIES
from adaptive_eval.graders.frozen import LENGTH_RATIO, NOTHING_FROZEN, Facts, FrozenThresholds, length_ratio
from adaptive_eval.graders.types import NEEDS_RUBRIC, SignalValue
from scorio.categorical import SCHEMATA, Schema, Signals, Thresholds, classify
from scorio.categorical.variables import PERCENTILES, Percentile

PERCENTILE = r"^p\d{1,2}(\.\d+)?$"
PercentileName = Annotated[str, Field(pattern=PERCENTILE)]
"""p33 for the 33rd percentile."""
TIMING_SIGNALS = frozenset({"latency", "ttft", "judge_gpu_seconds", "judge_seconds"})
"""Signals that differ between runs for the same answer; conditions must not use them."""
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {"at_least": operator.ge, "below": operator.lt}


class SignalBounds(Section):
    """Limits on a number: each a number, or a percentile of the signal such as p33 (see `rubric.thresholds`)."""

    at_least: float | PercentileName | None = None
    """The number is greater than or equal to this."""
    below: float | PercentileName | None = None
    """The number is less than this."""

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


Condition = bool | float | str | SignalBounds
Weight = Annotated[float, Field(ge=-1e9, le=1e9)]
"""Beyond these limits variances would overflow."""


class CategoryConfig(Section):
    """One level of a rubric."""

    name: str = Field(min_length=1)
    """Name in reports."""
    weight: Weight
    """Score of an answer in this category."""
    when: Mapping[str, Condition] = Field(default_factory=dict)
    """Required values of signals: true or false, a text, a number, or limits such as {below: 0.5}."""

    @field_validator("when")
    @classmethod
    def _check_timeless(cls, when: Mapping[str, Condition]) -> Mapping[str, Condition]:
        if times := sorted(TIMING_SIGNALS & when.keys()):
            raise config_error(
                f"must not use {', '.join(times)}: the same answer would get another category in another run",
                "use completion_tokens or length_ratio",
            )
        return when


BINARY = (
    CategoryConfig(name="wrong", weight=0.0),
    CategoryConfig(name="correct", weight=1.0, when={"is_correct": True}),
)
FROM = "from"
"""The key of `thresholds` that names a run."""
MIN_RANGE = 0.01
"""Smallest range of weights; reports round scores to a tenth of a percent."""


def require_range(weights: Collection[float]) -> None:
    """Raise an error of the configuration if weights, or sums of them, are so much alike that reports show no
    difference."""
    if weights and round(max(weights) - min(weights), 9) < MIN_RANGE:
        rule = f"must have weights that range over at least {MIN_RANGE}"
        raise config_error(rule, "multiply all weights by the same number, since reports round scores")


class RubricConfig(Section):
    """Categories of answers, and their scores."""

    categories: tuple[CategoryConfig, ...] = Field((), max_length=MAX_CATEGORIES)
    """Categories in the order in which they are tried. Exactly one has no `when`; it applies to all other answers."""
    name: str = "binary"
    """`binary`, or one of the paper's schemata such as `format_aware`; with `categories`, a name of your own."""
    weights: tuple[Weight, ...] | None = None
    """Other weights for the categories of a schema, starting with category 0 (invalid)."""
    thresholds: Mapping[str, float | Path] = Field(default_factory=dict)
    """Values of percentiles in a schema or a condition, such as {high: 0.31}, or {completion_tokens p33: 1200}. With
    {from: RUN}, a run directory relative to the current directory, the missing percentiles and the median lengths for
    `length_ratio` are those of that run, or are fitted to its trials before its first look. They never change."""

    @field_validator("categories")
    @classmethod
    def _check_default_category(cls, categories: tuple[CategoryConfig, ...]) -> tuple[CategoryConfig, ...]:
        names = [category.name for category in categories]
        defaults = [category.name for category in categories if not category.when]
        if categories and len(defaults) != 1:
            names_of_defaults = ", ".join(defaults) or "none"
            rule = f"must have exactly one category without `when`, got {names_of_defaults}"
            raise config_error(rule, "it applies to all other answers")
        if len(set(names)) < len(names):
            raise config_error("must have different names", "rename one of those that are equal")
        if categories and len({category.weight for category in categories}) < 2:
            raise config_error(
                "must have at least two different weights", "with equal weights every model scores the same"
            )
        require_range([category.weight for category in categories])
        return categories

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str, info: ValidationInfo) -> str:
        names = ("binary", *SCHEMATA)
        if name not in names and info.data.get("categories") == ():
            raise config_error("must be a known rubric, or come with `categories`", f"known are {', '.join(names)}")
        return name

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, weights: tuple[float, ...] | None, info: ValidationInfo) -> tuple[float, ...] | None:
        schema = SCHEMATA.get(info.data.get("name", ""))
        if weights is not None and schema is None:
            raise config_error("are only for the paper's schemata", "set the `weight` of each of your categories")
        if weights is not None and schema is not None and len(weights) != len(schema.weights):
            raise config_error(
                f"must be {len(schema.weights)} numbers",
                f"give one for each category: {', '.join(schema.labels)}",
            )
        require_range(weights or ())
        return weights

    @property
    def percentiles(self) -> Mapping[str, Percentile]:
        """Thresholds that are percentiles, with or without a configured number."""
        if self.categories or self.name == "binary":
            return _percentiles(self.categories)
        return {name: PERCENTILES[name] for name in SCHEMATA[self.name].thresholds}

    @property
    def looks_at_lengths(self) -> bool:
        """Whether any category uses `length_ratio`."""
        return any(LENGTH_RATIO in category.when for category in self.categories)

    @property
    def source_run(self) -> Path | None:
        """The run to take percentiles without a number from."""
        source = self.thresholds.get(FROM)
        return source if isinstance(source, Path) else None

    @property
    def numbers(self) -> Mapping[str, float]:
        """The percentiles that are configured as numbers."""
        return {name: value for name, value in self.thresholds.items() if not isinstance(value, Path)}

    @property
    def unfitted(self) -> Mapping[str, Percentile]:
        """The percentiles for which the configuration gives no number."""
        return {name: rule for name, rule in self.percentiles.items() if name not in self.thresholds}

    @field_validator("thresholds")
    @classmethod
    def _check_thresholds(cls, values: Mapping[str, float | Path], info: ValidationInfo) -> Mapping[str, float | Path]:
        declared = _percentiles(info.data.get("categories", ()))
        allowed = (FROM, *PERCENTILES, *declared)
        if unknown := sorted(values.keys() - set(allowed)):
            raise config_error(f"must not have {', '.join(unknown)}", f"the names are {', '.join(allowed)}")
        for name, value in values.items():
            if isinstance(value, Path) is not (name == FROM):
                rule = f"must have a run directory under `{FROM}`, and a number under every other name"
                raise config_error(
                    f"{rule}, but got {name}: {value}", "write it like {from: runs/pilot}, or {high: 0.31}"
                )
        return values


def _percentiles(categories: tuple[CategoryConfig, ...]) -> dict[str, Percentile]:
    """The percentiles in conditions, by name."""
    return {
        percentile_name(signal, limit): Percentile(signal, float(limit[1:]))
        for category in categories
        for signal, condition in category.when.items()
        if isinstance(condition, SignalBounds)
        for limit in condition.percentiles.values()
    }


def percentile_name(signal: str, limit: str) -> str:
    """The name of a percentile of a signal, such as `completion_tokens p33`."""
    return f"{signal} {limit}"


@dataclass(frozen=True)
class DeclaredRubric:
    """Categories with conditions; the first whose conditions all hold applies."""

    categories: tuple[CategoryConfig, ...]
    lacks: tuple[str, ...] = ()
    """Names of thresholds that must still be fitted."""
    medians: Mapping[str, float] = field(default_factory=dict)
    """Median tokens of an answer per question, if it uses `length_ratio`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of categories 0..C."""
        return tuple(category.name for category in self.categories)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights w of the categories."""
        return tuple(category.weight for category in self.categories)

    @cached_property
    def needs(self) -> frozenset[str]:
        """The signals that conditions use."""
        return frozenset(name for category in self.categories for name in category.when)

    def category(self, facts: Facts) -> int:
        """The category of a trial; raises `GraderError` naming a missing signal."""
        _require_fitted(self)
        if missing := (self.needs & LOGGED) - facts.keys():
            _fact(facts, min(missing))
        default = 0
        for number, category in enumerate(self.categories):
            if not category.when:
                default = number
            elif all(_fulfils(condition, _fact(facts, name)) for name, condition in category.when.items()):
                return number
        return default


def _fulfils(condition: Condition, value: SignalValue) -> bool:
    if isinstance(condition, SignalBounds):
        return condition.contains(value)
    if isinstance(condition, str) or isinstance(value, str):
        return condition == value
    return float(condition) == float(value)


def _fact(facts: Facts, name: str) -> SignalValue:
    try:
        return facts[name]
    except KeyError:
        names = ", ".join(sorted(facts))
        raise GraderError(f"the rubric needs the signal {name}, but this trial only has {names}") from None


LOGGED = frozenset({"completion_tokens", "token_ratio", "prompt_tokens", "repeated_pattern", LENGTH_RATIO})
"""Signals that logs and commands may not report. A trial without one that the rubric needs has no category, whatever it
is otherwise: else wrong answers would count, and right ones, whose category depends on it, would not."""


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
        """The signals that count as 0 if a trial lacks them: that of a verifier, unless the schema is about one."""
        return frozenset() if self.schema.name == "verifier_only" else frozenset({"verifier_c"})

    def category(self, facts: Facts) -> int:
        _require_fitted(self)
        signals = self.schema.signals
        values = tuple(0.0 if name in self.optional - facts.keys() else _number(facts, name) for name in signals)
        return _classified(self.schema.name, self.thresholds, values)


@lru_cache(maxsize=4096)
def _classified(name: str, thresholds: Thresholds, values: tuple[float, ...]) -> int:
    """`classify` for one trial, cached, since it takes 0.2 ms and trials share few combinations of signals."""
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


def unsure_grades(rubric: Rubric, *, in_gate: bool) -> UnsureGrades:
    """Which answers could be in another category: incomplete ones and, in a gate, empty ones, except those for which
    the rubric has a condition, and those that are in the best one anyway."""
    incomplete = INCOMPLETE if "repeated_pattern" not in rubric.needs else AnswerKind(0)  # it is 1 for all of these
    kinds = _unnamed(incomplete | AnswerKind.EMPTY if in_gate else incomplete, rubric)
    return UnsureGrades(int(kinds), int(np.argmax(rubric.weights)) if _best_is_sure(rubric) else None)


def _unnamed(kinds: AnswerKind, rubric: Rubric) -> AnswerKind:
    """Those of these kinds for which the rubric has no condition."""
    return AnswerKind(sum(kind for kind in kinds if kind.signal not in rubric.needs))


def says_nothing(rubric: Rubric) -> AnswerKind:
    """Kinds of answers without content, except those for which the rubric has a condition."""
    if AnswerKind.EMPTY.signal in rubric.needs:  # all kinds without content are empty
        return AnswerKind(0)
    return _unnamed(SAY_NOTHING, rubric)


def _best_is_sure(rubric: Rubric) -> bool:
    """Whether an answer without content is never in the best category; false if the share of wrong ones is scored.

    If so, an incomplete answer in the best category would also be in it if it were complete.
    """
    return bool(rubric.lacks) or rubric.category(dict.fromkeys(rubric.needs, False)) != int(np.argmax(rubric.weights))


def _require_fitted(rubric: Rubric) -> None:
    if rubric.lacks:
        raise GraderError(f"the rubric needs numbers for {', '.join(rubric.lacks)}")


def open_rubric(config: RubricConfig, frozen: FrozenThresholds = NOTHING_FROZEN) -> Rubric:
    """Create the rubric of a configuration, with the thresholds fitted so far."""
    numbers = {**frozen.values, **config.numbers}
    if config.categories:
        lacks = [name for name in config.percentiles if name not in numbers]
        if config.looks_at_lengths and not frozen.medians:
            lacks.append(LENGTH_RATIO)
        categories = tuple(_with_numbers(category, numbers) for category in config.categories)
        return DeclaredRubric(categories, tuple(lacks), frozen.medians if config.looks_at_lengths else {})
    if config.name == "binary":
        return DeclaredRubric(BINARY)
    schema = SCHEMATA[config.name]
    thresholds = Thresholds(**{name: value for name, value in numbers.items() if name in PERCENTILES})
    return SchemaRubric(schema, config.weights or schema.weights, thresholds)


def _with_numbers(category: CategoryConfig, numbers_by_name: Mapping[str, float]) -> CategoryConfig:
    """Replace those percentiles of a category that have numbers."""
    when: dict[str, Condition] = dict(category.when)
    for signal, condition in category.when.items():
        if isinstance(condition, SignalBounds) and condition.percentiles:
            names = {side: percentile_name(signal, limit) for side, limit in condition.percentiles.items()}
            numbers = {side: numbers_by_name[name] for side, name in names.items() if name in numbers_by_name}
            when[signal] = condition.model_copy(update=numbers)
    return category.model_copy(update={"when": when})


def apply_rubric(facts: Facts, rubric: Rubric, question: str) -> int:
    """The category of an answer.

    Raises `GraderError` if a signal is missing, `PartialCredit` for a score that is neither right nor wrong.
    """
    if "is_correct" not in facts and "score" in facts and "is_correct" in rubric.needs:
        if "score" not in rubric.needs:
            raise PartialCredit(f"the score {facts['score']!r} is neither right nor wrong, {NEEDS_RUBRIC}")
        facts = {**facts, "is_correct": False}
    return rubric.category({**facts, **length_ratio(facts, question, rubric.medians)})
