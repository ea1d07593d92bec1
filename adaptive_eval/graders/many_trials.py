"""Applies a rubric to many stored trials at once, by their signals and measurements.

The paper's schemata are applied to whole columns, custom categories to each trial. A trial that lacks a signal of the
rubric has no category, as in a run.

Signals are mostly booleans, so many trials share few combinations; each combination is stored once.
"""

import json
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import GraderError, StoreError
from adaptive_eval.graders.frozen import LENGTH_RATIO, Facts, FrozenThresholds, fit_frozen, length_ratios
from adaptive_eval.graders.rubric import Rubric, RubricConfig, SchemaRubric, open_rubric
from adaptive_eval.graders.types import FLAGS, MEASURES, SignalValue, measured_facts
from scorio.categorical import Signals, classify
from scorio.moments import FloatArray

NO_CATEGORY = -1

IntColumn = NDArray[np.integer]
EMPTY_COLUMN = np.empty(0, np.int16)
CHUNK_SIZE = 2**16
"""Number of trials to classify at once."""


class AnswerMeasures(NamedTuple):
    """Measurements of an answer."""

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    completion_bpt: float | None
    prompt_bpt: float | None


@dataclass(frozen=True, slots=True, eq=False)
class TrialSignals:
    """Signals of many trials, for a rubric."""

    combinations: tuple[Facts, ...]
    """The distinct combinations of flags and signals."""
    combination_at: IntColumn
    """(N,): the index of each trial's combination."""
    measured: Mapping[str, FloatArray]
    """(N,) for each of `MEASURES`; nan if unknown."""

    def __len__(self) -> int:
        return len(self.combination_at)

    def select(self, chosen: NDArray[np.bool_]) -> "TrialSignals":
        """The chosen trials."""
        return self if chosen.all() else self._select(chosen)

    def chunks(self) -> Iterator["TrialSignals"]:
        """The trials in chunks that fit into memory."""
        return (self._select(slice(at, at + CHUNK_SIZE)) for at in range(0, len(self), CHUNK_SIZE))

    def _select(self, chosen: NDArray[np.bool_] | slice) -> "TrialSignals":
        columns = {name: column[chosen] for name, column in self.measured.items()}
        return TrialSignals(self.combinations, self.combination_at[chosen], columns)

    def numbers(self, name: str) -> FloatArray:
        """(N,): a signal as numbers; nan if a trial lacks it, or it is a text."""
        stored = np.array([_number(facts.get(name)) for facts in self.combinations], dtype=float)
        measured = self.measured.get(name)
        if measured is None:
            return np.asarray(stored[self.combination_at])
        if np.isnan(stored).all():
            return measured
        return np.where(np.isnan(stored)[self.combination_at], measured, stored[self.combination_at])

    def has(self, name: str) -> bool:
        """Whether any trial has a signal."""
        if any(name in facts for facts in self.combinations):
            return True
        return name in self.measured and not np.isnan(self.measured[name]).all()

    def iter_facts(self, needed: Collection[str]) -> Iterator[Facts]:
        """The needed facts of each trial."""
        columns = [(name, column.tolist()) for name, column in self.measured.items() if name in needed]
        combinations = [{name: facts[name] for name in needed if name in facts} for facts in self.combinations]
        for number, at in enumerate(self.combination_at.tolist()):
            measured = {name: column[number] for name, column in columns if column[number] == column[number]}
            yield {**measured, **combinations[at]}


class SignalsBuilder:
    """Collects trials into compact columns, since there may be millions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str | None], int] = {}
        self._at = array("i")
        self._measured: dict[str, array[float]] = {}
        """Columns, created by the first trial with a value: most servers never report some measurements."""

    def add(self, key: tuple[str | None, str | None], measured: AnswerMeasures) -> None:
        """Add a trial."""
        for name, value in measured_facts(*measured).items():
            column = self._measured.setdefault(name, array("d"))
            self._pad(column)
            column.append(_number(value))
        self._at.append(self._known.setdefault(key, len(self._known)))

    def build(self) -> TrialSignals:
        """All collected trials as columns."""
        for column in self._measured.values():
            self._pad(column)
        columns = {name: np.frombuffer(column) for name, column in self._measured.items()}
        nowhere = np.broadcast_to(np.nan, len(self._at))
        at = np.frombuffer(self._at, np.int32)
        return TrialSignals(
            tuple(_stored_facts(*key) for key in self._known),
            at,
            {name: columns.get(name, nowhere) for name in MEASURES},
        )

    def _pad(self, column: "array[float]") -> None:
        """Fill a column with nan up to the current trial."""
        missing_signals = len(self._at) - len(column)
        if missing_signals:
            column.frombytes(np.full(missing_signals, np.nan).tobytes())


def classify_trials(trials: TrialSignals, rubric: Rubric) -> IntColumn:
    """(N,): the category of each trial, `NO_CATEGORY` if a signal is missing."""
    if isinstance(rubric, SchemaRubric):
        return np.concatenate([EMPTY_COLUMN, *(_by_schema(chunk, rubric) for chunk in trials.chunks())])
    return np.fromiter(
        (_category(rubric, facts) for facts in trials.iter_facts(rubric.needs)), EMPTY_COLUMN.dtype, len(trials)
    )


def missing_signals(trials: TrialSignals, rubric: Rubric) -> tuple[str, ...]:
    """Signals that the rubric needs but no trial has."""
    return tuple(sorted(name for name in rubric.needs if not trials.has(name)))


def fit_thresholds(
    config: RubricConfig, trials: TrialSignals, questions: Sequence[str], frozen: FrozenThresholds
) -> tuple[Rubric, FrozenThresholds]:
    """Fit the thresholds of a rubric that are not `frozen` yet; returns the rubric and all thresholds."""
    missing = {name: rule for name, rule in config.unfitted.items() if name not in frozen.values}
    with_medians = config.looks_at_lengths and not frozen.medians
    fitted = fit_frozen(trials.numbers, questions, missing, with_medians=with_medians)
    names = config.unfitted.keys()
    values = {name: value for name, value in {**frozen.values, **fitted.values}.items() if name in names}
    thresholds = FrozenThresholds(values, {**frozen.rest_on, **fitted.rest_on}, fitted.medians or frozen.medians)
    return open_rubric(config, thresholds), thresholds


def add_length_ratios(trials: TrialSignals, questions: Sequence[str], medians: Mapping[str, float]) -> TrialSignals:
    """Add `length_ratio` to the trials, by the median length for each question."""
    combinations = tuple(
        {name: value for name, value in facts.items() if name != LENGTH_RATIO} for facts in trials.combinations
    )
    measured = {**trials.measured, LENGTH_RATIO: length_ratios(trials.numbers, questions, medians)}
    return TrialSignals(combinations, trials.combination_at, measured)


def _by_schema(trials: TrialSignals, rubric: SchemaRubric) -> IntColumn:
    columns = {name: trials.numbers(name) for name in rubric.schema.signals}
    columns |= {name: np.nan_to_num(columns[name]) for name in rubric.optional & columns.keys()}
    has_signals = ~np.any([np.isnan(column) for column in columns.values()], axis=0)
    categories = np.full(len(trials), NO_CATEGORY, dtype=EMPTY_COLUMN.dtype)
    if has_signals.any():
        try:
            signals = Signals(**{name: column[has_signals] for name, column in columns.items()})
            categories[has_signals] = classify(signals, rubric.schema, rubric.thresholds)
        except ValueError as error:
            raise StoreError(f"the stored signals of a grader are damaged: {error}") from error
    return categories


def _category(rubric: Rubric, facts: Facts) -> int:
    try:
        return rubric.category(facts)
    except GraderError:
        return NO_CATEGORY


def _stored_facts(signals: str | None, flags: str | None) -> Facts:
    raised = set((flags or "").split())
    facts: dict[str, SignalValue] = {flag: flag in raised for flag in FLAGS}
    try:
        stored = json.loads(signals) if signals else {}
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict) or not all(
        isinstance(value, str | int | float | None) for value in stored.values()
    ):
        raise StoreError("the stored signals of a grader are damaged: not a JSON object of plain values")
    return facts | stored


def _number(value: SignalValue | None) -> float:
    return float("nan") if value is None or isinstance(value, str) else float(value)
