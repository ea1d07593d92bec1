"""Reading a run: for a resume, for reports and monitors (also while it runs), and for grading stored answers again."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, cast

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer, Signal
from adaptive_eval.errors import StoreError
from adaptive_eval.store import checksums, database
from adaptive_eval.store.events import Event, Json, event_of
from adaptive_eval.store.forms import MISFORMED
from adaptive_eval.store.records import (
    AWAITS,
    LARGEST_SIZE,
    WAITS,
    CellCount,
    GradedCell,
    GradingUse,
    HeldTime,
    JudgeUse,
    ReplicaSums,
    ReplicaTraffic,
    RoundCount,
    RunHeader,
    Spending,
    StoredLook,
    StoredOutcome,
    TrialFacts,
    TrialKey,
    TrialPlace,
    TrialRecord,
    TrialUse,
    bits_of,
)
from adaptive_eval.store.rows import json_object, unpack_json, unpack_text
from adaptive_eval.store.stored_texts import StoredTexts

Row = tuple[Any, ...]

# what is longer than the size that counts is stored compressed, as a BLOB
_SIZE = f"CASE typeof({{0}}) WHEN 'blob' THEN {LARGEST_SIZE} ELSE ifnull(length(CAST({{0}} AS BLOB)), 0) END"
_SAID = "CASE json_type(signals, '$.{0}') WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"


class _OutcomeRow(NamedTuple):
    """The columns of a trial without its texts."""

    model: str
    question: str
    trial: int
    category: int | None
    tokens: int
    usd: float
    gpu_seconds: float
    flags: str | None
    digest: int | None
    size: int
    correct: int | None
    found: int | None
    completion_bpt: float | None
    completion_tokens: int
    latency: float
    awaits: int | None
    waits: int | None


class _TrialRow(NamedTuple):
    """The columns of a trial with its texts."""

    model: str
    question: str
    trial: int
    round: int
    seed: int
    category: int | None
    signals: str | None
    extracted: str | None
    grader_error: str | None
    flags: str | None
    text: str | bytes | None
    reasoning: str | bytes | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    latency: float
    ttft: float | None
    replica: str
    attempts: int
    completion_bpt: float | None
    prompt_bpt: float | None
    tokens: int
    usd: float
    gpu_seconds: float
    damaged: int | None
    """None: it has no checksum."""
    digest: int | None
    segment: int | None
    """Where its texts lie, if not here."""
    row: int | None


class _PlaceRow(NamedTuple):
    """The columns of a trial that say where it belongs."""

    model: str
    round: int
    question: str
    trial: int
    flags: str | None


_MEANT = {
    "model": "models.name",
    "question": "questions.key",
    "size": f"{_SIZE.format('text')} + {_SIZE.format('reasoning')}",
    "correct": _SAID.format("is_correct"),
    "found": _SAID.format("has_answer"),
    "trials": "count(*)",
    "awaits": f"category IS NULL AND grader_error = '{AWAITS}'",
    "waits": f"category IS NULL AND grader_error = '{WAITS}'",
    "damaged": "(SELECT crc FROM trial_checks WHERE id = trials.id) <> "
    + checksums.checksum_in_sql("trials", "trials."),
    "segment": "NULL",
    "row": "NULL",
}
"""What a name stands for where the table of trials has no column of that name."""
_MEANT_SEGMENTED = {"size": f"ifnull(moved.size, {_MEANT['size']})", "segment": "moved.segment", "row": "moved.row"}
"""The same where texts may lie in segments."""
_NAMED = "FROM trials JOIN models ON models.id = model JOIN questions ON questions.id = question "


def _selected(names: tuple[str, ...], *, checked: bool = True, segmented: bool = False) -> str:
    """The start of a query for these columns, in this order: that of the fields of a row."""
    meant = _MEANT | (_MEANT_SEGMENTED if segmented else {}) | ({} if checked else {"damaged": "NULL"})
    beside = "LEFT JOIN moved ON moved.id = trials.id " if segmented else ""
    return f"SELECT {', '.join(meant.get(name, f'trials.{name}') for name in names)} {_NAMED}{beside}"


_USES = _selected(TrialUse._fields) + "ORDER BY trials.id"
_MARKED = _selected(TrialFacts._fields) + "WHERE category IS NOT NULL ORDER BY trials.id"
_AGREEMENTS = [f"avg(json_extract(signals, '$.agreement_{number}'))" for number in range(1, 10)]
"""Of as many judges as there may be."""
_JUDGE_USE = (
    "SELECT count(*), total(json_extract(signals, '$.judge_prompt_tokens')), "
    "total(json_extract(signals, '$.judge_completion_tokens')), total(json_extract(signals, '$.judge_usd')), "
    "total(json_extract(signals, '$.judge_gpu_seconds')), count(json_extract(signals, '$.order_dependent')), "
    "total(json_extract(signals, '$.order_dependent')), total(json_extract(signals, '$.prefers_first')), "
    f"{', '.join(_AGREEMENTS)} FROM trials "
    "WHERE json_type(signals, '$.judge_prompt_tokens') IS NOT NULL"
)
_GRADING_USES = (
    "SELECT name, count(*), total(json_extract(signals, '$.judge_prompt_tokens')) + "
    "total(json_extract(signals, '$.judge_completion_tokens')), total(json_extract(signals, '$.judge_usd')), "
    "total(json_extract(signals, '$.judge_gpu_seconds')) FROM trials JOIN models ON models.id = model "
    "WHERE json_type(signals, '$.judge_prompt_tokens') IS NOT NULL GROUP BY name"
)
_PLACES = _selected(_PlaceRow._fields) + "ORDER BY trials.id"
_CELLS = _selected(CellCount._fields) + "WHERE trials.id <= ? GROUP BY model, question"
_LOOKS = "SELECT number, body FROM looks WHERE configuration = (SELECT max(id) FROM configurations) "
_SPENDING = (
    "SELECT max(at) AS at, count(*) AS trials, sum(tokens) AS tokens, sum(usd) AS usd, sum(gpu_seconds) AS gpu_seconds "
    "FROM trials GROUP BY (id - 1) * ? / (SELECT max(id) FROM trials) ORDER BY max(id)"
)
# both by number: the index by model and question would be read from one end to the other for a few new trials
_GRADED = (
    "SELECT models.name, questions.key, category, graded FROM (SELECT model, question, category, count(*) AS graded "
    "FROM trials NOT INDEXED WHERE id > ? AND category IS NOT NULL GROUP BY model, question, category) "
    "JOIN models ON models.id = model JOIN questions ON questions.id = question"
)
_ROUND_COUNTS = _selected(RoundCount._fields) + "WHERE category IS NOT NULL GROUP BY model, question, round, category"
_SUMMED = {
    "replica": "replica",
    "trials": "count(*)",
    "retries": "sum(attempts - 1)",
    "prompt_tokens": "sum(prompt_tokens)",
    "completion_tokens": "sum(completion_tokens)",
    "latency": "sum(latency)",
    "timed": "count(ttft)",
    "ttft": "total(ttft)",
    "tokens": "sum(tokens)",
    "usd": "sum(usd)",
    "gpu_seconds": "sum(gpu_seconds)",
    "last": "max(id)",
    "at": "max(at)",
}
_SUMS = (
    f"SELECT models.name, {', '.join(f'summed.{name}' for name in ReplicaSums._fields[1:])} "
    f"FROM (SELECT model, {', '.join(f'{meant} AS {name}' for name, meant in _SUMMED.items())} "
    "FROM trials NOT INDEXED WHERE id > ? GROUP BY model, trials.replica) AS summed "
    "JOIN models ON models.id = summed.model ORDER BY models.id, summed.replica"
)
"""By the names of the fields of what is made of a row."""


class RunReader:
    """Everything that is stored of a run, as frozen values."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, given: str | None = None) -> None:
        """`given` is the URL under which the user has said now that answers may lie."""
        self.directory = directory
        self._connection = connection
        self._texts: StoredTexts | None = None
        with database.explained(directory):
            segmented, checked = database.has_segments(connection), checksums.has_checksums(connection)
            self._outcomes = _selected(_OutcomeRow._fields, segmented=segmented) + "ORDER BY trials.id"
            self._trials = _selected(_TrialRow._fields, checked=checked, segmented=segmented)
            if segmented:
                self._texts = StoredTexts(directory, connection, given)

    @classmethod
    @contextmanager
    def intact(cls, directory: Path) -> Iterator[Self]:
        """Read the run in `directory` as it is at one moment; raises `StoreError` where it is damaged."""
        with closing(cls.open(directory)) as reader, reader.one_moment():
            reader.require_intact()
            yield reader

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Read the run in `directory`, whether or not another process is writing it."""
        return cls(directory, database.open_readonly(directory))

    @classmethod
    @contextmanager
    def if_begun(cls, directory: Path) -> Iterator[Self | None]:
        """The same for a while; None where no run was begun in `directory`."""
        connection = database.open_if_begun(directory)
        if connection is None:
            yield None
            return
        with closing(cls(directory, connection)) as reader:
            yield reader

    def close(self) -> None:
        """Close a reader that was opened by `open`."""
        self.close_texts()
        self._connection.close()

    def close_texts(self) -> None:
        """Close the segments that it has open."""
        if self._texts is not None:
            self._texts.close()

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read everything as it is at one moment, whatever the run commits meanwhile."""
        with database.explained(self.directory):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.rollback()

    def header(self) -> RunHeader:
        """What the run is, with its newest configuration."""
        return RunHeader(
            name=str(self._value("name")),
            configuration=self.configurations()[-1],
            meaning=json_object(self._value("meaning"), "what the run means"),
            models={
                str(name): json_object(meaning, "what a model's trials mean")
                for name, meaning in self._rows("SELECT name, meaning FROM models ORDER BY id")
            },
            questions={
                str(key): json_object(body, "a stored question")
                for key, body in self._rows("SELECT key, body FROM questions ORDER BY id")
            },
        )

    def configurations(self) -> list[Json]:
        """Every configuration with which the run was started, the newest last."""
        bodies = self._rows("SELECT body FROM configurations ORDER BY id")
        return [json_object(body, "the stored configuration") for (body,) in bodies]

    def newest_configuration_id(self) -> int:
        """The table's number of the configuration that looks belong to now."""
        ((number,),) = self._rows("SELECT max(id) FROM configurations")
        return int(number)

    @property
    def created(self) -> float:
        """When the run was begun, in seconds since 1970."""
        return self._seconds("created")

    @property
    def elapsed(self) -> float:
        """Seconds the run has been active, over all its starts."""
        return self._seconds("elapsed")

    def held(self) -> dict[str, HeldTime] | None:
        """How long each model has held its servers; None in a run that was begun before that was measured."""
        rows = list(self._rows("SELECT value FROM run WHERE key = 'held'"))
        held = json_object(rows[0][0], "for how long servers were held") if rows else {}
        try:
            times = {name: (float(one[0]), float(one[1]), any(one[2:])) for name, one in held.items()}
        except (TypeError, ValueError, LookupError) as error:
            raise self._damaged("for how long servers were held is no time") from error
        return {name: HeldTime(*one) for name, one in times.items()} if rows else None

    def trial_count(self) -> int:
        """How many trials are stored."""
        ((count,),) = self._rows("SELECT count(*) FROM trials")
        return int(count)

    def outcomes(self) -> Iterator[StoredOutcome]:
        """Every trial without its texts, in the order of commitment."""
        for row in map(_OutcomeRow._make, self._rows(self._outcomes)):
            cost, said = Cost(row.tokens, row.usd, row.gpu_seconds), (_truth(row.correct), _truth(row.found))
            digest = (row.flags or "", row.digest, row.size)
            trial = (row.model, row.question, row.trial, row.category)
            bits = bits_of(row.completion_bpt, row.completion_tokens)
            flags = (bool(row.awaits), bool(row.waits))
            yield StoredOutcome(*trial, cost, *digest, *said, bits, row.latency, *flags)

    def in_flight(self) -> dict[str, int]:
        """How many trials of each model were sent and have no answer."""
        rows = self._rows("SELECT name, trials FROM asked_for JOIN models ON models.id = model WHERE trials > 0")
        return {str(name): int(count) for name, count in rows}

    def trial_facts(self) -> Iterator[TrialFacts]:
        """Every graded trial with what a rubric could go by, in the order of commitment."""
        return map(TrialFacts._make, self._rows(_MARKED))

    def judge_use(self) -> JudgeUse | None:
        """What a judge has used on these answers; None where there was none."""
        (row,) = self._rows(_JUDGE_USE)
        used, agreements = row[: -len(_AGREEMENTS)], row[-len(_AGREEMENTS) :]
        return replace(JudgeUse(*used), agreements=tuple(agreements)) if row[0] else None

    def grading_uses(self) -> dict[str, GradingUse]:
        """By model, what grades have used that somebody was asked for."""
        rows = self._rows(_GRADING_USES)
        return {str(name): GradingUse(int(answers), Cost(int(tokens), *rest)) for name, answers, tokens, *rest in rows}

    def places(self) -> Iterator[TrialPlace]:
        """The round of every trial, and whether it timed out."""
        for row in map(_PlaceRow._make, self._rows(_PLACES)):
            key, flags = TrialKey(row.question, row.trial), (row.flags or "").split()
            yield TrialPlace(row.model, row.round, key, timed_out="timed_out" in flags)

    def cells(self, rows: int) -> Iterator[CellCount]:
        """Trials by model and question among the first so many that were committed."""
        return map(CellCount._make, self._rows(_CELLS, rows))

    def trials(self, which: Literal["all", "ungraded"] = "all") -> Iterator[TrialRecord]:
        """Trials with their texts, in the order of commitment; one at a time, since texts are long."""
        condition = "WHERE category IS NULL " if which == "ungraded" else ""
        for row in self._rows(f"{self._trials}{condition}ORDER BY trials.id"):
            yield self._record(row)

    def trials_of(self, model: str) -> Iterator[TrialRecord]:
        """The trials of one model with their texts, question by question."""
        for row in self._rows(f"{self._trials}WHERE models.name = ? ORDER BY question, trial", model):
            yield self._record(row)

    def cell(self, model: str, question: str, after: int = -1) -> Iterator[TrialRecord]:
        """The trials of one model and question whose number is beyond `after`, in the order of their numbers."""
        condition = "WHERE models.name = ? AND questions.key = ? AND trial > ? ORDER BY trial"
        yield from map(self._record, self._rows(self._trials + condition, model, question, after))

    def sums(self, after: int = 0) -> list[ReplicaSums]:
        """What the trials come to, by model and replica, counted from after the trial with this number."""
        return list(map(ReplicaSums._make, self._rows(_SUMS, after)))

    def trial_uses(self) -> Iterator[TrialUse]:
        """What every trial used, in the order of commitment."""
        return map(TrialUse._make, self._rows(_USES))

    def looks(self, first: int = 0) -> list[StoredLook]:
        """The looks that were taken under the newest configuration, from number `first` on."""
        return list(self._looks("AND number >= ? ORDER BY number", first))

    def most_looks(self) -> int:
        """How many looks were taken under whichever configuration saw most of them."""
        ((most,),) = self._rows("SELECT coalesce(max(number) + 1, 0) FROM looks")
        return int(most)

    def latest_look(self) -> StoredLook | None:
        """The last of these looks; None before the first."""
        return next(self._looks("ORDER BY number DESC LIMIT 1"), None)

    def graded(self, after: int = 0) -> dict[GradedCell, int]:
        """How many trials of each model, question and category there are after the trial with this number."""
        return {GradedCell(*cell): trials for *cell, trials in self._rows(_GRADED, after)}

    def round_counts(self) -> Iterator[RoundCount]:
        """How many graded trials of each model and question have each category, by round."""
        return map(RoundCount._make, self._rows(_ROUND_COUNTS))

    def count_until(self, at: float) -> int:
        """How many trials were stored by a moment."""
        ((count,),) = self._rows("SELECT count(*) FROM trials WHERE at <= ?", at)
        return int(count)

    def look_times(self) -> dict[int, float]:
        """When each of these looks was taken first, in seconds since 1970."""
        rows = self._rows("SELECT number, at FROM looks WHERE configuration = (SELECT max(id) FROM configurations)")
        return {number: at for number, at in rows}

    def spending(self, steps: int) -> list[Spending]:
        """What had been used after about each 1/steps of the trials, in the order of commitment."""
        used = [Spending(0.0, 0, 0, 0.0, 0.0)]
        for part in (Spending(*row) for row in self._rows(_SPENDING, steps)):
            used.append(used[-1].and_then(part))
        return used[1:]

    def traffic(self) -> list[ReplicaTraffic]:
        """The stored answers by model and replica."""
        return [one.traffic() for one in self.sums()]

    def events(self) -> list[Event]:
        """Everything that happened to the run."""
        rows = self._rows("SELECT kind, body, at FROM events ORDER BY id")
        try:
            return [event_of(kind, json_object(body, f"an event of the kind {kind}"), at) for kind, body, at in rows]
        except StoreError as error:
            raise StoreError(
                f"{self.directory}: {error}. Restore a copy of the run, or begin anew with --fresh"
            ) from error

    def ids(self, table: Literal["models", "questions"], column: Literal["name", "key"]) -> dict[str, int]:
        """The tables' own numbers of models or questions, in the order in which they joined the run."""
        return {str(key): int(number) for number, key in self._rows(f"SELECT id, {column} FROM {table} ORDER BY id")}

    def _value(self, key: str) -> str | float:
        ((value,),) = self._rows("SELECT value FROM run WHERE key = ?", key)
        return cast(str | float, value)

    def _seconds(self, key: str) -> float:
        try:
            return float(self._value(key))
        except (TypeError, ValueError) as error:
            raise self._damaged(f"run {key} is no time") from error

    def _looks(self, which: str, *parameters: object) -> Iterator[StoredLook]:
        """Looks of the newest configuration."""
        for number, body in self._rows(_LOOKS + which, *parameters):
            found = unpack_json(body)
            if not isinstance(found, dict):
                raise self._damaged(f"look {number} is not as looks are written")
            yield StoredLook(number, found)

    def require_intact(self) -> None:
        """Compare every row with its checksum, and check the order by which rows are found; raises `StoreError` with
        the first that is not what was written."""
        with database.explained(self.directory):
            for table in checksums.COLUMNS:
                for damage in checksums.check_table(self._connection, table).damages:
                    raise self._damaged(str(damage))
            for (number,) in self._connection.execute(MISFORMED):
                raise self._damaged(f"trials {number} is not as trials are written")
            for fault in database.disorder(self._connection):
                raise self._damaged(f"{fault}; {database.order_anew(self.directory)}")

    def _record(self, values: Row) -> TrialRecord:
        row = _TrialRow._make(values)
        if row.damaged:
            raise self._damaged(f"trial {row.trial} of {row.model} on {row.question} is not what was written")
        if row.segment is None or row.row is None or self._texts is None:
            return _record(row, unpack_text(row.text) or "", unpack_text(row.reasoning))
        texts = self._texts.read(row.segment, row.row, row.digest)
        return _record(row, texts.text or "", texts.reasoning)

    def _damaged(self, what: str) -> StoreError:
        return StoreError(
            f"{self.directory / database.DATABASE_FILE} is damaged: {what}. `adaptive-eval verify {self.directory}` "
            "lists all that is; restore a copy of it, or begin anew with --fresh"
        )

    def _rows(self, query: str, *parameters: object) -> Iterator[Row]:
        with database.explained(self.directory):
            # not the cursor itself, which complains when it is left after the database was closed
            yield from map(tuple, self._connection.execute(query, parameters))


def _truth(value: int | None) -> bool | None:
    """SQLite has numbers for true and false."""
    return None if value is None else bool(value)


def _record(row: _TrialRow, text: str, reasoning: str | None) -> TrialRecord:
    answer = Answer(
        text=text,
        finish_reason=row.finish_reason,
        seed=row.seed,
        replica=row.replica,
        latency=row.latency,
        reasoning=reasoning,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        ttft=row.ttft,
        attempts=row.attempts,
        completion_bpt=row.completion_bpt,
        prompt_bpt=row.prompt_bpt,
        signals=cast(frozenset[Signal], frozenset((row.flags or "").split())),
    )
    return TrialRecord(
        model=row.model,
        question=row.question,
        trial=row.trial,
        round=row.round,
        answer=answer,
        category=row.category,
        signals=json_object(row.signals, "what a grader has said") if row.signals else {},
        extracted=row.extracted,
        grader_error=row.grader_error,
        cost=Cost(row.tokens, row.usd, row.gpu_seconds),
    )
