"""Applies a rubric to many stored trials at once, by their signals and measurements.

The paper's schemata are applied to whole columns, custom categories trial by trial. A trial without a signal that the
rubric needs has no category, as in a run.

Signals of graders are mostly booleans, so only few combinations occur in many trials: each is stored once.
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
NOTHING = np.empty(0, np.int16)
AT_ONCE = 2**16
"""Trials that are classified at once."""


class AnswerMeasures(NamedTuple):
    """Measurements of an answer."""

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    completion_bpt: float | None
    prompt_bpt: float | None


@dataclass(frozen=True, slots=True, eq=False)
class TrialSignals:
    """Signals of many trials that a rubric can use."""

    said: tuple[Facts, ...]
    """The distinct combinations of flags and signals."""
    said_at: IntColumn
    """(N,): the index of each trial's combination in `said`."""
    measured: Mapping[str, FloatArray]
    """(N,) for each of `MEASURES`; nan if unknown."""

    def __len__(self) -> int:
        return len(self.said_at)

    def only(self, chosen: NDArray[np.bool_]) -> "TrialSignals":
        """Select the chosen trials."""
        return self if chosen.all() else self._select(chosen)

    def parts(self) -> Iterator["TrialSignals"]:
        """Split the trials into parts that fit into memory."""
        return (self._select(slice(at, at + AT_ONCE)) for at in range(0, len(self), AT_ONCE))

    def _select(self, chosen: NDArray[np.bool_] | slice) -> "TrialSignals":
        columns = {name: column[chosen] for name, column in self.measured.items()}
        return TrialSignals(self.said, self.said_at[chosen], columns)

    def numbers(self, name: str) -> FloatArray:
        """(N,): a signal as numbers; nan for trials without it, or with a text."""
        told = np.array([_number(one.get(name)) for one in self.said], dtype=float)
        measured = self.measured.get(name)
        if measured is None:
            return np.asarray(told[self.said_at])
        if np.isnan(told).all():
            return measured
        return np.where(np.isnan(told)[self.said_at], measured, told[self.said_at])

    def has(self, name: str) -> bool:
        """Whether any trial has a signal."""
        if any(name in one for one in self.said):
            return True
        return name in self.measured and not np.isnan(self.measured[name]).all()

    def iter_facts(self, needed: Collection[str]) -> Iterator[Facts]:
        """The needed facts of each trial, trial by trial."""
        columns = [(name, column.tolist()) for name, column in self.measured.items() if name in needed]
        said = [{name: one[name] for name in needed if name in one} for one in self.said]
        for number, at in enumerate(self.said_at.tolist()):
            measured = {name: column[number] for name, column in columns if column[number] == column[number]}
            yield {**measured, **said[at]}


class SignalsBuilder:
    """Collects trials one by one into compact columns, since there may be millions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str | None], int] = {}
        self._at = array("i")
        self._measured: dict[str, array[float]] = {}
        """Columns, created at the first trial with a value: most servers never report some measurements."""

    def add(self, said: tuple[str | None, str | None], measured: AnswerMeasures) -> None:
        """Add a trial."""
        for name, value in measured_facts(*measured).items():
            column = self._measured.setdefault(name, array("d"))
            self._pad(column)
            column.append(_number(value))
        self._at.append(self._known.setdefault(said, len(self._known)))

    def whole(self) -> TrialSignals:
        """All collected trials as columns."""
        for column in self._measured.values():
            self._pad(column)
        there = {name: np.frombuffer(column) for name, column in self._measured.items()}
        nowhere = np.broadcast_to(np.nan, len(self._at))
        at = np.frombuffer(self._at, np.int32)
        return TrialSignals(
            tuple(_stored_facts(*one) for one in self._known), at, {name: there.get(name, nowhere) for name in MEASURES}
        )

    def _pad(self, column: "array[float]") -> None:
        """Fill a column with nan up to the current trial."""
        lacking = len(self._at) - len(column)
        if lacking:
            column.frombytes(np.full(lacking, np.nan).tobytes())


def classify_trials(trials: TrialSignals, rubric: Rubric) -> IntColumn:
    """(N,): the category of each trial; `NO_CATEGORY` if a signal is missing."""
    if isinstance(rubric, SchemaRubric):
        return np.concatenate([NOTHING, *(_by_schema(part, rubric) for part in trials.parts())])
    return np.fromiter((_category(rubric, one) for one in trials.iter_facts(rubric.needs)), NOTHING.dtype, len(trials))


def lacking(trials: TrialSignals, rubric: Rubric) -> tuple[str, ...]:
    """Signals that the rubric needs and no trial has."""
    return tuple(sorted(name for name in rubric.needs if not trials.has(name)))


def completed(
    config: RubricConfig, trials: TrialSignals, questions: Sequence[str], frozen: FrozenThresholds
) -> tuple[Rubric, FrozenThresholds]:
    """Fit the thresholds of a rubric that are not yet `frozen`; returns the rubric and all thresholds."""
    wanted = {name: rule for name, rule in config.unfitted.items() if name not in frozen.values}
    with_medians = config.looks_at_lengths and not frozen.medians
    found = fit_frozen(trials.numbers, questions, wanted, with_medians=with_medians)
    names = config.unfitted.keys()
    values = {name: value for name, value in {**frozen.values, **found.values}.items() if name in names}
    whole = FrozenThresholds(values, {**frozen.rest_on, **found.rest_on}, found.medians or frozen.medians)
    return open_rubric(config, whole), whole


def with_length_ratios(trials: TrialSignals, questions: Sequence[str], medians: Mapping[str, float]) -> TrialSignals:
    """Add `length_ratio` to the trials, by the median length for each question."""
    told = tuple({name: value for name, value in one.items() if name != LENGTH_RATIO} for one in trials.said)
    measured = {**trials.measured, LENGTH_RATIO: length_ratios(trials.numbers, questions, medians)}
    return TrialSignals(told, trials.said_at, measured)


def _by_schema(trials: TrialSignals, rubric: SchemaRubric) -> IntColumn:
    columns = {name: trials.numbers(name) for name in rubric.schema.signals}
    columns |= {name: np.nan_to_num(columns[name]) for name in rubric.optional & columns.keys()}
    there = ~np.any([np.isnan(column) for column in columns.values()], axis=0)
    found = np.full(len(trials), NO_CATEGORY, dtype=NOTHING.dtype)
    if there.any():
        try:
            signals = Signals(**{name: column[there] for name, column in columns.items()})
            found[there] = classify(signals, rubric.schema, rubric.thresholds)
        except ValueError as error:
            raise StoreError(f"the stored signals of a grader are damaged: {error}") from error
    return found


def _category(rubric: Rubric, facts: Facts) -> int:
    try:
        return rubric.category(facts)
    except GraderError:
        return NO_CATEGORY


def _stored_facts(signals: str | None, flags: str | None) -> Facts:
    up = set((flags or "").split())
    told: dict[str, SignalValue] = {flag: flag in up for flag in FLAGS}
    try:
        said = json.loads(signals) if signals else {}
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not all(isinstance(one, str | int | float | None) for one in said.values()):
        raise StoreError("the stored signals of a grader are damaged: it is not a JSON object of plain values")
    return told | said


def _number(value: SignalValue | None) -> float:
    return float("nan") if value is None or isinstance(value, str) else float(value)
