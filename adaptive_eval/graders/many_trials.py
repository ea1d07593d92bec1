"""A rubric on many trials at once, by what is known of them: what a grader said and what was measured.

The paper's schemata are worked out on whole columns, own categories trial by trial. A trial that lacks a signal which
the rubric needs has no category under it, as it would have none in a run.

What graders say is mostly yes and no, so that of a hundred thousand trials only a few differ: each saying is kept once.
"""

import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.errors import GraderError, StoreError
from adaptive_eval.graders.frozen import LENGTH_RATIO, Facts, FrozenThresholds, fit_frozen, length_ratios
from adaptive_eval.graders.rubric import Rubric, RubricConfig, SchemaRubric, open_rubric
from adaptive_eval.graders.types import FLAGS, MEASURES, SignalValue, measured_facts
from scorio.categorical import Signals, classify
from scorio.moments import FloatArray

NO_CATEGORY = -1

IntColumn = NDArray[np.integer]
NOBODY = np.empty(0, np.int16)
AT_ONCE = 2**16
"""Trials that are classified together."""


class AnswerMeasures(NamedTuple):
    """Measurements of one answer."""

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    completion_bpt: float | None
    prompt_bpt: float | None


@dataclass(frozen=True, slots=True, eq=False)
class TrialSignals:
    """Signals of many trials that a rubric can use."""

    said: tuple[Facts, ...]
    """Flags and what graders say: each that occurs, once."""
    said_at: IntColumn
    """(N,): which of them each trial has."""
    measured: Mapping[str, FloatArray]
    """`MEASURES` (N,); nan where it is not known."""

    @classmethod
    def build(cls, said: Iterable[tuple[str | None, str | None]], measured: Iterable[AnswerMeasures]) -> "TrialSignals":
        """The signals from the stored JSON and flags of each trial, and its measures."""
        gathered = SignalsGathered()
        for one, own in zip(said, measured, strict=True):
            gathered.add(one, own)
        return gathered.whole()

    def __len__(self) -> int:
        return len(self.said_at)

    def only(self, chosen: NDArray[np.bool_]) -> "TrialSignals":
        """The chosen trials alone."""
        return self if chosen.all() else self._select(chosen)

    def parts(self) -> Iterator["TrialSignals"]:
        """The trials in parts that fit into memory, one after another."""
        return (self._select(slice(at, at + AT_ONCE)) for at in range(0, len(self), AT_ONCE))

    def _select(self, chosen: NDArray[np.bool_] | slice) -> "TrialSignals":
        columns = {name: column[chosen] for name, column in self.measured.items()}
        return TrialSignals(self.said, self.said_at[chosen], columns)

    def numbers(self, name: str) -> FloatArray:
        """(N,): a signal as a number; nan where a trial does not have it, or as a text."""
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
        """The needed facts of each trial, one trial after another."""
        columns = [(name, column.tolist()) for name, column in self.measured.items() if name in needed]
        said = [{name: one[name] for name in needed if name in one} for one in self.said]
        for number, at in enumerate(self.said_at.tolist()):
            measured = {name: column[number] for name, column in columns if column[number] == column[number]}
            yield {**measured, **said[at]}


class SignalsGathered:
    """Trials as they are read, one by one, of which as little is kept as the columns take: there may be millions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str | None], int] = {}
        self._at = array("i")
        self._measured: dict[str, array[float]] = {}
        """From the first trial on that has one: most servers tell some measures of no answer."""

    def add(self, said: tuple[str | None, str | None], measured: AnswerMeasures) -> None:
        """One more trial."""
        for name, value in measured_facts(*measured).items():
            column = self._measured.setdefault(name, array("d"))
            self._pad(column)
            column.append(_number(value))
        self._at.append(self._known.setdefault(said, len(self._known)))

    def whole(self) -> TrialSignals:
        """All that was gathered, as columns."""
        for column in self._measured.values():
            self._pad(column)
        there = {name: np.frombuffer(column) for name, column in self._measured.items()}
        nowhere = np.broadcast_to(np.nan, len(self._at))
        at = np.frombuffer(self._at, np.int32)
        return TrialSignals(
            tuple(_stored_facts(*one) for one in self._known), at, {name: there.get(name, nowhere) for name in MEASURES}
        )

    def _pad(self, column: "array[float]") -> None:
        """Fill a column for the trials until now that do not have it."""
        lacking = len(self._at) - len(column)
        if lacking:
            column.frombytes(np.full(lacking, np.nan).tobytes())


def categories_of(trials: TrialSignals, rubric: Rubric) -> IntColumn:
    """(N,): the category of each trial; `NO_CATEGORY` where a signal is missing."""
    if isinstance(rubric, SchemaRubric):
        return np.concatenate([NOBODY, *(_by_schema(part, rubric) for part in trials.parts())])
    return np.fromiter((_category(rubric, one) for one in trials.iter_facts(rubric.needs)), NOBODY.dtype, len(trials))


def lacking(trials: TrialSignals, rubric: Rubric) -> tuple[str, ...]:
    """The signals that the rubric needs and none of the trials has."""
    return tuple(sorted(name for name in rubric.needs if not trials.has(name)))


def completed(
    config: RubricConfig, trials: TrialSignals, questions: Sequence[str], frozen: FrozenThresholds
) -> tuple[Rubric, FrozenThresholds]:
    """The rubric with what it lacks, beside what is `frozen`, fitted on these trials; and all that was fitted."""
    wanted = {name: rule for name, rule in config.unfitted.items() if name not in frozen.values}
    with_medians = config.looks_at_lengths and not frozen.medians
    found = fit_frozen(trials, questions, wanted, with_medians=with_medians)
    names = config.unfitted.keys()
    values = {name: value for name, value in {**frozen.values, **found.values}.items() if name in names}
    whole = FrozenThresholds(values, {**frozen.rest_on, **found.rest_on}, found.medians or frozen.medians)
    return open_rubric(config, whole), whole


def with_length_ratios(trials: TrialSignals, questions: Sequence[str], medians: Mapping[str, float]) -> TrialSignals:
    """The trials with the length of each beside the usual one of its question."""
    told = tuple({name: value for name, value in one.items() if name != LENGTH_RATIO} for one in trials.said)
    measured = {**trials.measured, LENGTH_RATIO: length_ratios(trials, questions, medians)}
    return TrialSignals(told, trials.said_at, measured)


def _by_schema(trials: TrialSignals, rubric: SchemaRubric) -> IntColumn:
    columns = {
        name: np.full(len(trials), rubric.assume[name]) if name in rubric.assume else trials.numbers(name)
        for name in rubric.schema.signals
    }
    there = ~np.any([np.isnan(column) for column in columns.values()], axis=0)
    found = np.full(len(trials), NO_CATEGORY, dtype=NOBODY.dtype)
    if there.any():
        try:
            signals = Signals(**{name: column[there] for name, column in columns.items()})
            found[there] = classify(signals, rubric.schema, rubric.thresholds)
        except ValueError as error:
            raise StoreError(f"what a grader has said of a stored trial is damaged: {error}") from error
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
        raise StoreError("what a grader has said of a stored trial is damaged: it is no JSON object of plain values")
    return told | said


def _number(value: SignalValue | None) -> float:
    return float("nan") if value is None or isinstance(value, str) else float(value)
