"""Reads a run for people: by names, as sums, and as whole answers. Nothing is replayed.

Trials whose answer waits for a verdict are in no sum, since they get a new place in the log with their grade.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.base.errors import NEW_RUN, DamagedValue, StoreError
from adaptive_eval.base.roster import Names, Roster
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.charges import NO_MODEL, Charge, ChargeKind
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.machine.notes import event_of
from adaptive_eval.machine.records import DISCARDED
from adaptive_eval.machine.trial import JUDGING, RESERVED, GradeDetails, Trial
from adaptive_eval.machine.usage import NO_GRADING, AnswerFault, GradingUse
from adaptive_eval.notes import AlarmRaised, AnswersLost, Event, OutcomesRecorded, PriorTaken
from adaptive_eval.notes.batches import pending_batches
from adaptive_eval.report import queries
from adaptive_eval.report.records import (
    AWAITS_VERDICT,
    CellExtent,
    ComparisonCount,
    Counts,
    JudgeUse,
    ReplicaSums,
    Spending,
    TrialFacts,
    TrialRecord,
    WaitingAnswers,
    merge_sums,
)
from adaptive_eval.store.database import has_tables
from adaptive_eval.store.errors import name_run
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.packing import parse_object
from adaptive_eval.store.read import LogReader

FAULTS = frozenset(AnswerFault)
"""Faults of alarms about all answers of a model."""
SHOWN_CHARACTERS = 120
LARGE = 200_000
"""Trials from which on a run is large."""
CHUNK_ROWS = 8192
"""Rows that are counted at once."""
MAX_ROUNDS = 2**31 - 1
"""The highest number that a round may have."""


class NamedTrial(NamedTuple):
    """A trial with the names of its model and question."""

    model: str
    question: str
    trial: Trial


class _Names(dict[int, str]):
    """Names of models or questions, by number."""

    def __missing__(self, number: int) -> str:
        raise DamagedValue(f"a stored row is about model or question {number}, which the run does not have")


class _Lookup(NamedTuple):
    """Positions in a roster by number; -1 for what it lacks."""

    numbers: NDArray[np.int64]
    positions: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Mapping[str, int], names: Names) -> Self:
        """The lookup of stored models or questions, in ascending order of their numbers."""
        positions = (names.position(name) if name in names else -1 for name in ids)
        return cls(np.array([*ids.values(), np.iinfo(np.int64).max]), np.array([*positions, -1]))

    def positions_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The position of each number."""
        at = np.searchsorted(self.numbers, numbers)
        return np.where(self.numbers[at] == numbers, self.positions[at], -1)


class RunReader:
    """Reads everything that is stored of a run, as immutable values."""

    def __init__(self, log: LogReader) -> None:
        self.directory, self.log = log.directory, log
        self._database, self._rows = log.database, log.database.rows

    @classmethod
    @contextmanager
    def intact(cls, directory: Path, *, check_large: bool = True) -> Iterator[Self]:
        """Open the run in `directory` for one consistent read; raises `StoreError` if it is damaged.

        Without `check_large`, large runs are not checked beforehand.
        """
        with closing(cls.open(directory)) as reader, reader.consistent_read():
            if check_large or not reader.is_large:
                reader.require_intact()
            with name_run(directory):
                yield reader

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open the run in `directory`; another process may be writing it."""
        return cls(LogReader.open(directory))

    @classmethod
    @contextmanager
    def if_begun(cls, directory: Path) -> Iterator[Self | None]:
        """Open the run in `directory` as a context; None if no run was begun there."""
        if not has_tables(directory):
            yield None
            return
        with closing(cls.open(directory)) as reader, name_run(directory):
            yield reader

    def close(self) -> None:
        """Close a reader that was opened by `open`."""
        self._database.close()

    def consistent_read(self) -> AbstractContextManager[None]:
        """A context in which all reads see the same state, whatever the run commits meanwhile."""
        return self._database.consistent_read()

    def require_intact(self) -> None:
        """Raise `StoreError` with the first damage that can be found."""
        self._database.require_intact()

    # -- the run ---------------------------------------------------------------------------------------------------

    def header(self) -> RunHeader:
        """The header of the run with its newest configuration."""
        return self.log.header()

    @cached_property
    def model_names(self) -> dict[int, str]:
        """Names of the models by number; a charge may belong to none."""
        return _Names({NO_MODEL: "", **{number: name for name, number in self.log.models().items()}})

    @cached_property
    def _questions(self) -> dict[int, str]:
        return _Names({number: key for key, number in self.log.questions().items()})

    def held_times(self) -> dict[str, HeldTime]:
        """Time for which each model has held its servers."""
        try:
            return TypeAdapter(dict[str, HeldTime]).validate_python(self.log.held())
        except ValidationError as error:
            why = f"{self.directory}: the times for which servers were held are not numbers; restore a copy of the run"
            raise StoreError(why) from error

    def events(self, after: int = 0) -> list[Event]:
        """All events of the run, or those after this sequence number."""
        rows: list[tuple[int, Event]] = [loss for loss in self._losses() if loss[0] > after]
        try:
            for at, (seq, note) in self.log.timed_notes():
                if seq > after and note.kind != DISCARDED:  # of what is discarded the charge says the same
                    rows.append((seq, event_of(note, self.model_names, at)))
        except StoreError as error:
            raise StoreError(f"{self.directory}: {error}. Restore a copy of the run, or {NEW_RUN}") from error
        return [self.with_example(event) for _, event in sorted(rows, key=lambda row: row[0])]

    def with_example(self, event: Event) -> Event:
        """An event with one of the answers that it is about: an alarm about all answers of a model, with the first."""
        if not isinstance(event, AlarmRaised) or event.fault not in FAULTS:
            return event
        question = next(iter(self._questions.values()))
        for record in self.cell(event.model, question):
            ((body,),) = self._rows("SELECT body FROM questions WHERE key = ?", question)
            key = str(parse_object(body, "a stored question").get("answer", ""))
            return replace(event, example=describe_example(record, key))
        return event

    def _losses(self) -> Iterator[tuple[int, AnswersLost]]:
        """Charges that belong to no trial, by kind and model, each with the place of the newest."""
        for seq, at, kind, what, model, number, tokens, usd, gpu_seconds, estimated in self._rows(queries.CHARGES):
            cost = Cost(_whole(tokens), float(str(usd)), float(str(gpu_seconds)))
            charge = Charge(ChargeKind(str(kind)), str(what), _whole(model), _whole(number), cost, bool(estimated))
            if charge.model != NO_MODEL:
                yield _whole(seq), loss_of(charge, self.model_names[charge.model], float(str(at)))

    # -- looks and reports -----------------------------------------------------------------------------------------

    def look_count(self) -> int:
        """Number of looks taken."""
        ((count,),) = self._rows("SELECT coalesce(max(number) + 1, 0) FROM looks")
        return _whole(count)

    def newest_report_seq(self) -> int:
        """The place in the log of the newest row that a report counts; 0 before the first."""
        ((seq,),) = self._rows("SELECT coalesce(max(seq), 0) FROM reports")
        return _whole(seq)

    # -- sums ------------------------------------------------------------------------------------------------------

    @property
    def newest_trial_id(self) -> int:
        """The place of the newest trial in the log; 0 before the first."""
        ((newest,),) = self._rows(queries.LAST)
        return _whole(newest)

    @property
    def is_large(self) -> bool:
        """Whether the run has so many trials that checking all of them takes long."""
        return self.newest_trial_id >= LARGE

    def trial_count(self) -> int:
        """The number of stored answers."""
        ((number,),) = self._rows(f"SELECT count(*) FROM trials WHERE {queries.ANSWERED}")
        return _whole(number)

    def unanswered_models(self) -> frozenset[str]:
        """Models of the run whose settings no stored answer, outcome or pending batch depends on."""
        answered = {self.model_names[_whole(model)] for (model,) in self._rows(queries.ANSWERED_MODELS)}
        for event in (events := self.events()):
            if isinstance(event, OutcomesRecorded):
                answered.add(event.model)
            elif isinstance(event, PriorTaken):
                answered.update(event.outcomes)
        answered.update(batch.model for batch in pending_batches(events))
        return frozenset(self.model_names.values()) - answered

    def sums(self, after: int = 0, until: int | None = None) -> list[ReplicaSums]:
        """Sums over the graded trials after a place in the log, or between two, by model and replica."""
        sums: list[ReplicaSums] = []
        for part in self._parts(after, until):
            rows = self._rows(queries.SUMS, *part)
            sums = merge_sums(sums, [ReplicaSums(self.model_names[_whole(model)], *values) for model, *values in rows])  # type: ignore[arg-type]
        return sums

    def waiting(self, since: int) -> list[WaitingAnswers]:
        """Stored answers from a place in the log on whose verdicts have not come, by model."""
        rows = self._rows(queries.WAITING, since)
        return [
            WaitingAnswers(self.model_names[_whole(model)], Spending(*used), _whole(first))  # type: ignore[arg-type]
            for model, *used, first in rows
        ]

    def counts(self, roster: Roster, categories: int, after: int = 0) -> Counts:
        """Counts[model, question, category] of the graded trials after a place, in the order of the roster; models,
        questions and categories that it lacks are left out."""
        counts: Counts = np.zeros((len(roster.models), len(roster.questions), categories), dtype=np.int32)
        lookups = list(map(_Lookup.of, (self.log.models(), self.log.questions()), roster))
        rows = iter(self._rows(queries.CATEGORIES, after))
        while chunk := list(islice(rows, CHUNK_ROWS)):
            *cell, category = np.array(chunk, dtype=np.int64).T
            model, question = (lookup.positions_of(column) for lookup, column in zip(lookups, cell, strict=True))
            known = (model >= 0) & (question >= 0) & (category < categories)
            np.add.at(counts, (model[known], question[known], category[known]), 1)
        return counts

    def cells(self, rows: int, *, first_round: bool = False) -> Iterator[CellExtent]:
        """The extent of each cell among the answers up to a place in the log, or among those of them in round 0."""
        for model, question, extent in self._rows(queries.EXTENTS, rows, 0 if first_round else MAX_ROUNDS):
            yield CellExtent(self.model_names[_whole(model)], self._questions[_whole(question)], _whole(extent))

    def judge_use(self) -> JudgeUse | None:
        """Usage of the judge on these answers; None if there is none."""
        ((answers, *used),) = self._rows(queries.JUDGE_USE)
        return JudgeUse(_whole(answers), *used) if answers else None  # type: ignore[arg-type]

    def comparisons(self) -> list[ComparisonCount]:
        """Counts of a judge's comparisons of two answers, by their result."""
        rows = self._rows(queries.COMPARISONS)
        return [ComparisonCount(float(str(order)), float(str(first)), _whole(number)) for order, first, number in rows]

    def grading_uses(self) -> dict[str, GradingUse]:
        """Usage of a judge or a verifier on graded answers, by model."""
        uses = dict[str, GradingUse]()
        for model, is_graded, answers, tokens, usd, gpu_seconds in self._rows(queries.GRADING_USES):
            cost = Cost(_whole(tokens), float(str(usd)), float(str(gpu_seconds)))
            name = self.model_names[_whole(model)]
            use = GradingUse(_whole(answers), cost) if is_graded else GradingUse(0, NO_COST, _whole(answers), cost)
            uses[name] = uses.get(name, NO_GRADING).plus(use)
        return uses

    def _parts(self, after: int, until: int | None = None) -> Iterator[tuple[int, int]]:
        """Ranges of places in the log, each small enough to be grouped in memory."""
        last = self.newest_trial_id if until is None else until
        for first in range(after, last, queries.ROWS_PER_READ):
            yield first, min(first + queries.ROWS_PER_READ, last)

    # -- trials ----------------------------------------------------------------------------------------------------

    def graded_trials(self) -> Iterator[NamedTrial]:
        """Graded trials without their texts, also those on which the grader has failed, in the order of the log.

        Time-outs of rounds with too few answers are left out: they are failures, although they have a grade.
        """
        models, questions = self.model_names, self._questions
        rounds = {(model, round_): counts for model, round_, *counts in self._rows(queries.TIME_OUTS)}
        silent = {place for place, (late, trials) in rounds.items() if not enough_answers(_whole(late), _whole(trials))}
        for trial in self.log.known_answers(models, self._database.last_seq() + 1):
            is_failure = trial.kinds & AnswerKind.TIMED_OUT and (trial.model, trial.round) in silent
            if trial.state is not JUDGING and trial.state is not RESERVED and not is_failure:
                yield NamedTrial(models[trial.model], questions[trial.question], trial)

    def trial_facts(self) -> Iterator[TrialFacts]:
        """Every graded trial with all that a rubric may use, in the order of the log."""
        models, questions = self.model_names, self._questions
        for model, question, *values in self._rows(queries.FACTS):
            yield TrialFacts(models[_whole(model)], questions[_whole(question)], *values)  # type: ignore[arg-type]

    def trials(self) -> Iterator[TrialRecord]:
        """Trials with their texts, in the order of the log, one at a time since texts are long."""
        return self._records(queries.ANSWERED)

    def cell(self, model: str, question: str, after: int = -1) -> Iterator[TrialRecord]:
        """The trials of one model and question with numbers above `after`, in ascending order."""
        numbers = self.log.models().get(model), self.log.questions().get(question)
        condition = f"model = ? AND question = ? AND number > ? AND {queries.ANSWERED}"
        return self._records(condition, *numbers, after, order="number")

    def _records(self, condition: str, *values: object, order: str = "seq") -> Iterator[TrialRecord]:
        for _, trial in self.log.trials(condition, *values, order=order):
            yield self._record(trial)

    def _record(self, trial: Trial) -> TrialRecord:
        """A trial with the names of its model and question."""
        if trial.answer is None:
            raise StoreError(f"{self.directory}: trial {trial.key} has no answer; restore a copy of the run")
        grade = trial.grade or GradeDetails()
        return TrialRecord(
            model=self.model_names[trial.model],
            question=self._questions[trial.question],
            trial=trial.number,
            round=trial.round,
            answer=trial.answer,
            category=trial.category,
            signals=grade.signals,
            extracted=grade.extracted,
            grader_error=AWAITS_VERDICT if trial.state is JUDGING else grade.error,
            cost=trial.cost if trial.state is JUDGING else trial.total,
        )


def loss_of(charge: Charge, model: str, at: float) -> AnswersLost:
    """Charges of a model as an event."""
    is_answer, kind = charge.what == "answer", charge.kind
    return AnswersLost(
        model,
        charge.number if is_answer else 0,
        *charge.cost,
        kind is ChargeKind.KILLED,
        0 if is_answer else charge.number,
        estimated=charge.estimated or None,
        failed=kind is ChargeKind.WASTED or None,
        discarded=kind is ChargeKind.DISCARDED or None,
        at=at,
    )


def describe_example(record: TrialRecord, key: str) -> str:
    """A stored answer, cut to its end, where the result stands, with what the grader has found in it."""
    text = record.answer.text.strip()
    cut = text if len(text) <= SHOWN_CHARACTERS else f"…{text[-SHOWN_CHARACTERS:]}"
    extracted = "nothing" if record.extracted is None else repr(record.extracted[:SHOWN_CHARACTERS])
    return f"for example {cut!r} to question {record.question}: found {extracted}, key {key[:SHOWN_CHARACTERS]!r}"


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise DamagedValue(f"a stored number is of type {type(value).__name__}")
    return value
