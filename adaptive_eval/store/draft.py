"""Assembly of a run from existing trials, such as those of logs.

Models and questions are numbered as they occur, and written with the header at the end. Everything is written in one
transaction without a journal: an unfinished draft is thrown away.
"""

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from adaptive_eval.endpoints.redaction import NOTHING_SECRET, Redactor
from adaptive_eval.notes.event import Event
from adaptive_eval.storage.header import RunHeader
from adaptive_eval.store import database
from adaptive_eval.store.checksums import insert_into, sealed, set_columns
from adaptive_eval.store.records import TrialRecord
from adaptive_eval.store.redaction import redact_event, redact_trial
from adaptive_eval.store.rows import INSERT_TRIAL, dump_json, trial_row, write_events, write_run

_CELL = "SELECT id FROM trials WHERE model = ? AND question = ? ORDER BY trial"
_RENUMBER = f"UPDATE trials {set_columns('trials', {'trial': '?1'})} WHERE id = ?2"


class Draft:
    """Collects trials and turns them into a run."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, redactor: Redactor = NOTHING_SECRET) -> None:
        self._directory, self._connection, self._redactor = directory, connection, redactor
        self._models: dict[str, int] = {}
        """Their ids, in the order in which they occurred."""
        self._questions: dict[str, int] = {}

    @classmethod
    def begin(cls, directory: Path, redactor: Redactor = NOTHING_SECRET) -> Self:
        """Create an empty draft in an existing directory; `redactor` removes secrets from whatever is written."""
        connection = database.create(directory)
        with database.explained(directory):
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
        return cls(directory, connection, redactor)

    def name(self, models: Iterable[str], questions: Iterable[str]) -> None:
        """Fix the order of models and questions before any trial is added."""
        for one in models:
            self._model(one)
        for key in questions:
            self._question(key)

    def add(self, trials: Iterable[TrialRecord]) -> None:
        """Add trials; within a cell (model and question) their numbers must differ."""
        now = time.time()
        stored = (redact_trial(one, self._redactor) for one in trials)
        rows = (trial_row(self._model(one.model), self._question(one.question), one, now) for one in stored)
        with database.explained(self._directory):
            self._connection.executemany(INSERT_TRIAL, rows)

    def renumber(self, model: str, question: str) -> None:
        """Number the trials of a cell 0, 1, 2 ... in their order."""
        with database.explained(self._directory):
            ids = self._connection.execute(_CELL, (self._model(model), self._question(question))).fetchall()
            # in ascending order, each number is free when it is assigned
            numbers = ((number, row) for number, (row,) in enumerate(ids))
            self._connection.executemany(_RENUMBER, numbers)

    def finish(self, header: RunHeader, keys: Mapping[str, str], events: Sequence[Event]) -> None:
        """Make it a run; `keys` maps the id of a question to the one under which its trials were added."""
        now = time.time()
        with database.explained(self._directory):
            write_run(self._connection, header, now)
            models = [(*sealed(name, dump_json(meaning)), self._model(name)) for name, meaning in header.models.items()]
            self._connection.executemany(insert_into("models", "id"), models)
            questions = [
                (*sealed(key, dump_json(body)), self._question(keys.get(key, key)))
                for key, body in header.questions.items()
            ]
            self._connection.executemany(insert_into("questions", "id"), questions)
            names = self._models.keys() | self._questions.keys() | keys.keys()
            write_events(self._connection, (redact_event(one, self._redactor, names) for one in events), now)
            self._connection.execute("COMMIT")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the database, finished or not."""
        self._connection.close()

    def _model(self, name: str) -> int:
        return self._models.setdefault(name, len(self._models) + 1)

    def _question(self, key: str) -> int:
        return self._questions.setdefault(key, len(self._questions) + 1)
