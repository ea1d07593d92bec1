"""Assembly of a run from existing trials, such as those of logs.

Models and questions are added as they occur, and the header comes last. Everything is written in one transaction
without a journal: an unfinished draft is thrown away.
"""

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from adaptive_eval.store import database
from adaptive_eval.store.events.event import Event
from adaptive_eval.store.records import RunHeader, TrialRecord
from adaptive_eval.store.rows import (
    INSERT_TRIAL,
    dump_json,
    insert_models,
    insert_questions,
    trial_row,
    write_events,
    write_run,
)

_CELL = "SELECT id FROM trials WHERE model = ? AND question = ? ORDER BY trial"


class Draft:
    """Collects trials and turns them into a run."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self._directory, self._connection = directory, connection
        self._models: dict[str, int] = {}
        self._questions: dict[str, int] = {}

    @classmethod
    def begin(cls, directory: Path) -> Self:
        """Create an empty draft in an existing directory."""
        connection = database.create(directory)
        with database.explained(directory):
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
        return cls(directory, connection)

    def name(self, models: Iterable[str], questions: Iterable[str]) -> None:
        """Fix the order of models and questions before any trial is added."""
        with database.explained(self._directory):
            for one in models:
                self._model(one)
            for key in questions:
                self._question(key)

    def add(self, trials: Iterable[TrialRecord]) -> None:
        """Add trials; within a cell (model and question) their numbers must differ."""
        now = time.time()
        rows = (trial_row(self._model(one.model), self._question(one.question), one, now) for one in trials)
        with database.explained(self._directory):
            self._connection.executemany(INSERT_TRIAL, rows)

    def renumber(self, model: str, question: str) -> None:
        """Number the trials of a cell 0, 1, 2 ... in their order."""
        with database.explained(self._directory):
            ids = self._connection.execute(_CELL, (self._model(model), self._question(question))).fetchall()
            # in ascending order, each number is free when it is assigned
            numbers = ((number, row) for number, (row,) in enumerate(ids))
            self._connection.executemany("UPDATE trials SET trial = ? WHERE id = ?", numbers)

    def finish(self, header: RunHeader, keys: Mapping[str, str], events: Sequence[Event]) -> None:
        """Make it a run; `keys` maps the id of a question to the one under which its trials were added."""
        now = time.time()
        with database.explained(self._directory):
            write_run(self._connection, header, now)
            for name, meaning in header.models.items():
                self._connection.execute(
                    "UPDATE models SET meaning = ? WHERE id = ?", (dump_json(meaning), self._model(name))
                )
            for key, body in header.questions.items():
                number = self._question(keys.get(key, key))
                self._connection.execute(
                    "UPDATE questions SET key = ?, body = ? WHERE id = ?", (key, dump_json(body), number)
                )
            write_events(self._connection, events, now)
            self._connection.execute("COMMIT")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the database, finished or not."""
        self._connection.close()

    def _model(self, name: str) -> int:
        if name not in self._models:
            insert_models(self._connection, {name: {}})
            self._models[name] = self._last_number()
        return self._models[name]

    def _question(self, key: str) -> int:
        if key not in self._questions:
            insert_questions(self._connection, {key: {}})
            self._questions[key] = self._last_number()
        return self._questions[key]

    def _last_number(self) -> int:
        ((number,),) = self._connection.execute("SELECT last_insert_rowid()")
        return int(number)
