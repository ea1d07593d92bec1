"""Checks a stored run for damage: the structure of the database, its commits, and every row by its checksum."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.store import database
from adaptive_eval.store.checksums import damaged_rows
from adaptive_eval.store.forms import MISFORMED


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of checking a run."""

    trials: int
    looks: int
    damages: tuple[str, ...]
    only_structure: bool = False
    """Whether all rows are intact, and only the structure of the database is damaged."""

    @classmethod
    def check(cls, directory: Path) -> "Integrity":
        """Check the run in `directory` in one consistent read; raises `StoreError` if it cannot be opened."""
        trials, looks, damages = 0, 0, list[str]()
        with closing(database.open_readonly(directory, "")) as connection, database.explained(directory, ""):
            connection.execute("BEGIN")
            structure = [f"the database: {fault}" for fault in database.structure_faults(connection)]
            lost = database.missing_commits(directory, connection, database.noted_commits(directory))
            damages += [*structure, *([] if lost is None else [lost])]
            try:
                ((trials, looks),) = connection.execute("SELECT (SELECT count(*) FROM trials), count(*) FROM looks")
                damages += [f"trials {one}: is not as trials are written" for (one,) in connection.execute(MISFORMED)]
                damages += [row.describe(connection) for row in damaged_rows(connection)]
            except (sqlite3.Error, UnicodeDecodeError) as error:
                damages.append(f"the database: cannot be read ({error})")
        return cls(trials, looks, tuple(damages), 0 < len(structure) == len(damages))
