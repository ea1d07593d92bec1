"""Checks a stored run for damage: the structure of the database, its commits, and every row.

Stored JSON is checked where it is parsed.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.machine.trial import RESERVED
from adaptive_eval.store.database import RunDatabase, structure_faults
from adaptive_eval.store.errors import translate_errors
from adaptive_eval.store.forms import misformed_rows
from adaptive_eval.store.lock import missing_commits, noted_seq
from adaptive_eval.store.schema import damaged_rows


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of checking a run."""

    trials: int
    """Stored answers; trials that are in flight are checked as well."""
    looks: int
    damages: tuple[str, ...]
    only_structure: bool = False
    """Whether all rows are intact, and only the structure of the database is damaged."""

    @classmethod
    def check(cls, directory: Path) -> "Integrity":
        """Check the run in `directory` in one consistent read; raises `StoreError` if it cannot be opened."""
        trials, looks, damages = 0, 0, list[str]()
        with closing(RunDatabase.open_to_read(directory, "")) as database, translate_errors(directory, ""):
            connection = database.connection
            connection.execute("BEGIN")
            structure = [f"the database: {fault}" for fault in structure_faults(connection)]
            lost = missing_commits(directory, database.last_seq(), noted_seq(directory))
            damages += [*structure, *([] if lost is None else [lost])]
            try:
                ((trials, looks),) = connection.execute(
                    f"SELECT (SELECT count(*) FROM trials WHERE state <> '{RESERVED.value}'), count(*) FROM looks"
                )
                damages += map(str, misformed_rows(connection))
                damages += map(str, damaged_rows(connection))
            except (sqlite3.Error, UnicodeDecodeError) as error:
                damages.append(f"the database: cannot be read ({error})")
        return cls(trials, looks, tuple(damages), 0 < len(structure) == len(damages))
