"""A run from answers that are there already, such as those of logs.

Models and questions are numbered as they occur, and named with the header at the end. Everything is written in one
transaction without a journal: an unfinished import is thrown away.
"""

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.machine.records import Note
from adaptive_eval.machine.trial import Trial
from adaptive_eval.store.database import create_database
from adaptive_eval.store.errors import translate_errors
from adaptive_eval.store.header import RunHeader
from adaptive_eval.store.packing import dump_json
from adaptive_eval.store.redact import redact_note, redact_trial
from adaptive_eval.store.schema import COVERED, insert_into, sealed
from adaptive_eval.store.write import insert_run, trial_row

_TRIALS = insert_into("trials")
_CELL = f"SELECT {', '.join(COVERED['trials'])} FROM trials WHERE model = ? AND question = ? ORDER BY number"
_NUMBER = COVERED["trials"].index("number")


class BulkImport:
    """Collects answers, and makes a run of them."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, redactor: Redactor | None = None) -> None:
        self._directory, self._connection = directory, connection
        self._redactor = Redactor() if redactor is None else redactor
        self._models: dict[str, int] = {}
        """Their numbers, in the order in which they occurred."""
        self._questions: dict[str, int] = {}
        self._seq, self._at = 0, 0.0

    @classmethod
    def begin(cls, directory: Path, redactor: Redactor | None = None) -> Self:
        """Begin an import in an existing directory; `redactor` removes secrets from whatever is written."""
        connection = create_database(directory)
        with translate_errors(directory):
            connection.execute("COMMIT")
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("BEGIN")
        return cls(directory, connection, redactor)

    def model(self, name: str) -> int:
        """The number of a model."""
        return self._models.setdefault(name, len(self._models))

    def question(self, key: str) -> int:
        """The number of a question."""
        return self._questions.setdefault(key, len(self._questions))

    def add(self, trials: Iterable[Trial]) -> None:
        """Add answers; the numbers of those of one model and question must differ."""
        self._at, rows = max(time.time(), self._at), []  # a clock may be set back
        for trial in trials:
            self._seq += 1
            clean = trial if trial.answer is None else redact_trial(trial, trial.answer, self._redactor)
            rows.append(trial_row(self._seq, clean, self._at))
        with translate_errors(self._directory):
            self._connection.executemany(_TRIALS, rows)

    def renumber(self, model: str, question: str) -> None:
        """Number the trials of a model and question 0, 1, 2 ... in their order."""
        with translate_errors(self._directory):
            rows = self._connection.execute(_CELL, (self.model(model), self.question(question))).fetchall()
            # in ascending order, each number is free when it is assigned
            for number, row in enumerate(rows):
                if row[_NUMBER] != number:
                    values = [*row]
                    values[_NUMBER] = number
                    self._connection.execute(_TRIALS, sealed(*values))

    def finish(self, header: RunHeader, keys: Mapping[str, str], notes: Sequence[Note]) -> None:
        """Make it a run; `keys` gives the key under which the trials of a question were added, if it is another."""
        now = max(time.time(), self._at)
        with translate_errors(self._directory):
            models = [self.model(name) for name in header.models]
            questions = [self.question(keys.get(key, key)) for key in header.questions]
            insert_run(self._connection, header, now, models, questions)
            names = {*self._models, *self._questions, *keys}
            for note in notes:
                self._seq += 1
                clean = redact_note(note, self._redactor, names)
                values = (self._seq, clean.kind, clean.model, now, dump_json(clean.body))
                self._connection.execute(insert_into("notes"), sealed(*values))
            self._connection.execute("COMMIT")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close the database, finished or not."""
        self._connection.close()
