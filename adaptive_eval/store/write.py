"""Writing a run: rows of the log, committed by one thread of one process at a time."""

import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from adaptive_eval import __version__
from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import closed_on_error
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.machine.charges import Charge
from adaptive_eval.machine.facts import answer_digest
from adaptive_eval.machine.records import SETTINGS, Dropped, LooksForgotten, LookTaken, Note, Record, Row
from adaptive_eval.machine.trial import Key, Trial
from adaptive_eval.store.database import RunDatabase
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.lock import make_directory
from adaptive_eval.store.packing import (
    compress,
    dump_json,
    pack_json,
    pack_logprobs,
    pack_text,
    real,
    valid_text,
)
from adaptive_eval.store.read import LogReader, StoredReport
from adaptive_eval.store.redact import redact_note, redact_trial
from adaptive_eval.store.schema import ANSWER_FIELDS, COVERED, Stored, insert_into, sealed

TICK_SECONDS = 1e-6
"""Between two commits, if a clock says that the second came before the first."""
_INSERT = {table: insert_into(table) for table in COVERED}
ReportMaker = Callable[[LogReader], StoredReport]
"""Makes a report of all that is stored; it is called when the rows of a commit are written."""
ChangeGrade = Callable[[int, Trial], Trial | None]
"""Gives a stored answer, at its place in the log, another grade; None: it stays as it is."""
_DROP = "DELETE FROM trials WHERE model = ? AND question = ? AND number = ?"
_DROP_SUMS = """
DELETE FROM sums WHERE seq >= (
    SELECT seq FROM trials WHERE model = ? AND question = ? AND number = ? AND state IN ('done', 'ungraded')
)
"""
"""Removes sums that count a trial."""
_IN_PLACE = "SELECT model, question, number, at FROM trials WHERE seq = ?"


class RunStore:
    """Commits rows; a row counts once `commit` has returned."""

    def __init__(
        self, directory: Path, database: RunDatabase, redactor: Redactor | None = None, *, is_resumed: bool = True
    ) -> None:
        self.directory = directory
        self.is_resumed = is_resumed
        """Whether the run was there before this store was opened."""
        self.redactor = Redactor() if redactor is None else redactor
        """Removes the secrets of the run from whatever is written."""
        self.reader = LogReader(directory, database)
        """Reads through the writer's connection, before and after writing."""
        self._database = database
        self._names = {*self.reader.models(), *self.reader.questions()}
        self._configuration = self.reader.newest_configuration()
        self._last_at = self.reader.newest_at()
        self.last_seq = database.last_seq()
        """The newest sequence number."""
        self.opened_at = self.last_seq
        """The newest sequence number when this store was opened."""
        self._is_closed = False

    @classmethod
    def attach(cls, directory: Path, redactor: Redactor | None = None) -> Self:
        """Open the run in `directory` to change what is stored; raises `StoreError` if there is none."""
        if not (directory / DATABASE_FILE).exists():
            RunDatabase.open_to_read(directory).close()  # raises what is wrong
        database, is_begun = RunDatabase.open_to_write(directory)
        with closed_on_error(database):
            if not is_begun:
                raise StoreError(
                    f"{directory} has no run: it was started, but nothing is stored; run the same command again"
                )
            database.require_intact()
            return cls(directory, database, redactor)

    @classmethod
    def open(cls, directory: Path, header: RunHeader, redactor: Redactor | None = None) -> Self:
        """Begin a run in `directory`, or open the one there.

        Raises `RunLocked`, `StoreFull` or `StoreError`. Whether `header` fits a run that is there is for the caller.
        """
        make_directory(directory)
        database, is_begun = RunDatabase.open_to_write(directory)
        with closed_on_error(database):
            if is_begun:
                database.require_intact()
            else:
                with database.transaction() as connection:
                    insert_run(connection, header, time.time(), count(), count())
            return cls(directory, database, redactor, is_resumed=is_begun)

    def commit(
        self,
        rows: Sequence[Row],
        *,
        elapsed: float | None = None,
        held: Mapping[str, Any] | None = None,
        in_flight: Mapping[int, int] | None = None,
        report: ReportMaker | None = None,
    ) -> list[Row]:
        """Write rows atomically; returns them as they were written, without secrets.

        `elapsed`: seconds that the run was active; `held`: for how long servers were held, as plain values;
        `in_flight`: by model, trials in flight that have no row. If the report cannot be made, the rows are written
        without it, and the error is raised.
        """
        failure: Exception | None = None
        with self._database.transaction() as connection:
            written = self._write(connection, rows)
            for key, value in (("elapsed", elapsed), ("held", held), ("in_flight", in_flight)):
                if value is not None:
                    stored = value if isinstance(value, float | int) else dump_json(value)
                    connection.execute(_INSERT["run"], sealed(key, stored))
            if report is not None:
                try:
                    made = report(self.reader)
                except Exception as error:
                    failure = error
                else:
                    connection.execute(
                        _INSERT["reports"], sealed(made.look, made.seq, self._last_at, compress(made.body))
                    )
                    connection.execute("DELETE FROM cells")
                    connection.execute(_INSERT["cells"], sealed(made.look, compress(*made.cells)))
                    if made.sums is not None:
                        connection.execute("DELETE FROM sums")
                        body = compress(*made.sums.body)
                        connection.execute(_INSERT["sums"], sealed(made.sums.seq, self._configuration, body))
        self._note_written(rows)
        if failure is not None:
            raise failure
        return written

    def append(self, *records: Record) -> list[Row]:
        """Write records at the end of the log, in one commit."""
        return self.commit([*enumerate(records, self.last_seq + 1)])

    def change_settings(self, header: RunHeader, changes: Sequence[Sequence[object]]) -> list[Row]:
        """Continue with another configuration, recorded in the log; models that are new, or that without answers have
        other settings now, are stored."""
        stored = self.reader.header().models
        new = [name for name in header.models if stored.get(name) != header.models[name]]
        places = {name: place for place, name in enumerate(dict.fromkeys([*stored, *header.models]))}
        rows = [(self.last_seq + 1, self._settings_note(changes))]
        self._names.update(new)
        with self._database.transaction() as connection:
            for name in new:
                connection.execute(_INSERT["models"], sealed(places[name], name, dump_json(header.models[name])))
            self._insert_configuration(connection, header)
            written = self._write(connection, rows)
        self._note_written(rows)
        return written

    def _settings_note(self, changes: Sequence[Sequence[object]]) -> Note:
        """The note that the next configuration begins."""
        ((looks, newest),) = self._database.rows("SELECT count(*), max(configuration) FROM looks")
        ((trials,),) = self._database.rows("SELECT count(*) FROM trials WHERE state != 'reserved'")
        body = {"configuration": self._configuration + 1, "changes": list(changes), "trials": trials, "looks": looks}
        return Note(SETTINGS, None, {**body, "has_looked": newest == self._configuration})

    def _insert_configuration(self, connection: sqlite3.Connection, header: RunHeader) -> None:
        """Insert the next configuration, under which looks are taken from now on."""
        self._configuration += 1
        values = (self._configuration, time.time(), dump_json(header.configuration))
        connection.execute(_INSERT["configurations"], sealed(*values))

    def regrade(
        self, change: ChangeGrade, records: Sequence[Record], header: RunHeader, changes: Sequence[Sequence[object]]
    ) -> None:
        """Give stored answers other grades, in their places, and write further records, all or nothing.

        `change` is given each stored answer, and returns it as it is to be, or None if it stays. `header`: that of the
        run as it is graded now; `changes`: of its configuration.
        """
        if changes:
            records = [self._settings_note(changes), *records]
        rows: list[Row] = [*enumerate(records, self.last_seq + 1)]
        with self._database.transaction() as connection:
            for stored in self.reader.batches():
                self._write(connection, [(seq, new) for seq, trial in stored if (new := change(seq, trial))])
            connection.execute(_INSERT["run"], sealed("meaning", dump_json(header.meaning)))
            numbers = self.reader.questions()
            connection.executemany(
                _INSERT["questions"],
                [sealed(numbers[key], key, dump_json(body)) for key, body in header.questions.items()],
            )
            if changes:
                self._insert_configuration(connection, header)
            self._write(connection, rows)
        self._note_written(rows)

    def _write(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> list[Row]:
        """Write rows in a transaction, with one time; returns them without secrets."""
        written = [(seq, self._redacted(record)) for seq, record in rows]
        at = self._last_at = max(time.time(), self._last_at + TICK_SECONDS)
        trials: dict[Key, tuple[int, Trial, float | None]] = {}
        others: dict[str, list[tuple[Stored, ...]]] = {"charges": [], "notes": [], "looks": []}
        dropped, in_place = list[Key](), list[int]()
        for seq, record in written:
            stored_at = self._require_new(seq, record)
            if type(record) is Trial:
                trials[record.key] = seq, record, stored_at
                in_place += [] if stored_at is None else [seq]
            elif type(record) is Dropped:
                trials.pop(record.key, None)
                dropped.append(record.key)
            elif type(record) is Charge:
                kind, what, model, number, cost, is_estimated = record
                values = (seq, kind.value, what, model, number, *_costs(cost), int(is_estimated), at)
                others["charges"].append(sealed(*values))
            elif type(record) is LookTaken:
                others["looks"].append(sealed(record.number, seq, self._configuration, at, pack_json(record.body)))
            elif type(record) is LooksForgotten:
                others["looks"] = [row for row in others["looks"] if int(row[0] or 0) < record.number]
                connection.execute("DELETE FROM looks WHERE number >= ?", (record.number,))
                connection.execute("DELETE FROM reports WHERE look >= ?", (record.number,))
            elif type(record) is Note:
                others["notes"].append(sealed(seq, record.kind, record.model, at, dump_json(record.body)))
        connection.executemany(_DROP_SUMS, dropped)
        connection.executemany(_DROP, dropped)
        if in_place:
            connection.execute("DELETE FROM sums WHERE seq >= ?", (min(in_place),))
        connection.executemany(
            _INSERT["trials"],
            [trial_row(seq, trial, at if stored is None else stored) for seq, trial, stored in trials.values()],
        )
        for table, values_of in others.items():
            if values_of:
                connection.executemany(_INSERT[table], values_of)
        return written

    def _note_written(self, rows: Sequence[Row]) -> None:
        """Note the newest sequence number, once rows are committed."""
        self.last_seq = max([self.last_seq, *(seq for seq, _ in rows)])

    def close(self) -> None:
        """Close the database and release the run directory."""
        if not self._is_closed:
            self._is_closed = True
            self._database.close()

    def _redacted(self, record: Record) -> Record:
        if type(record) is Trial and record.answer is not None:
            return redact_trial(record, record.answer, self.redactor) if self.redactor else record
        if type(record) is Note:
            return redact_note(record, self.redactor, self._names)
        return record

    def _require_new(self, seq: int, record: Record) -> float | None:
        """Time of the row that this one replaces: a regraded trial keeps its place, and counts as part of the same
        commit. None for a new row; raises `StoreError` if it would replace another record."""
        if seq > self.last_seq:
            return None
        existing = [*self._database.rows(_IN_PLACE, seq)]
        if type(record) is not Trial or [place[:3] for place in existing] != [record.key]:
            raise StoreError(f"{self.directory}: record {seq} already exists, and another would replace it")
        return float(str(existing[0][3]))


def insert_run(
    connection: sqlite3.Connection, header: RunHeader, now: float, models: Iterable[int], questions: Iterable[int]
) -> None:
    """Insert a new run: its values, its first configuration, and its models and questions, with these numbers."""
    values: dict[str, Stored] = {"name": header.name, "created": now, "version": __version__, "elapsed": 0.0}
    values |= {"held": "{}", "in_flight": "{}", "meaning": dump_json(header.meaning)}
    connection.executemany(_INSERT["run"], [sealed(key, value) for key, value in values.items()])
    connection.execute(_INSERT["configurations"], sealed(0, now, dump_json(header.configuration)))
    for table, named, numbers in (("models", header.models, models), ("questions", header.questions, questions)):
        rows = [
            sealed(number, name, dump_json(body)) for number, (name, body) in zip(numbers, named.items(), strict=False)
        ]
        connection.executemany(_INSERT[table], rows)


def _costs(cost: tuple[int, float, float]) -> tuple[int, float, float]:
    return cost[0], cost[1] + 0.0, cost[2] + 0.0


_fields_of = attrgetter(*ANSWER_FIELDS)
_FLOATS = [place for place, kind in enumerate(ANSWER_FIELDS.values()) if kind in (float, float | None)]
_NO_ANSWER: tuple[Stored, ...] = (None,) * (2 + len(ANSWER_FIELDS))


def trial_row(seq: int, trial: Trial, at: float) -> tuple[Stored, ...]:
    """The values of a trial, in the order of the columns."""
    grade, answer = trial.grade, trial.answer
    signals = dump_json(grade.signals) if grade is not None and grade.signals else None
    texts: tuple[Stored, ...] = (None, None, None)
    of_answer = _NO_ANSWER
    if answer is not None:
        fields: list[Any] = [*_fields_of(answer)]
        for place in _FLOATS:
            fields[place] = real(fields[place])
        of_answer = (" ".join(sorted(answer.signals)) or None, answer_digest(answer), *fields)
        texts = pack_logprobs(answer.token_logprobs), pack_text(answer.text), pack_text(answer.reasoning)
    return sealed(
        seq,
        *trial.key,
        trial.round,
        trial.state.value,
        *_costs(trial.cost),
        *_costs(trial.verdict),
        trial.category,
        signals,
        None if grade is None else valid_text(grade.extracted),
        None if grade is None else valid_text(grade.error),
        *of_answer,
        at,
        *texts,
    )
