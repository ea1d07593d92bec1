"""Checks a stored run for damage: the structure of the database, and every row's checksum."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.store import checksums, database
from adaptive_eval.store.log_check import lost_commits
from adaptive_eval.store.tables import COLUMNS

LOST_COMMIT = (
    "the log of the database: its last commit cannot be read; if a kill or a power failure has cut that write, "
    "nothing is lost, for nobody was told of it, and the next start of the run mends it"
)


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of checking a run."""

    rows: dict[str, int]
    """Number of rows by table, without unreadable tables."""
    unchecked: dict[str, int]
    """Rows without a checksum by table, from earlier versions."""
    damages: tuple[str, ...]
    only_structure: bool = False
    """Whether all rows are intact, and only the structure of the database is damaged."""

    @classmethod
    def check(cls, directory: Path) -> "Integrity":
        """Check the run in `directory` in one consistent read; raises `StoreError` if it cannot be opened."""
        found, damages = {}, [LOST_COMMIT] if lost_commits(directory / database.DATABASE_FILE) else []
        with closing(database.open_readonly(directory, "")) as connection, database.explained(directory, ""):
            connection.execute("BEGIN")
            structure = [f"the database: {fault}" for fault in database.structure_faults(connection)]
            damages += structure
            for table in COLUMNS:
                try:
                    found[table] = checksums.check_table(connection, table)
                except sqlite3.Error as error:
                    damages.append(f"{table}: cannot be read ({error})")
            damages += [damage for checked in found.values() for damage in checked.damages]
        return cls(
            {table: checked.rows for table, checked in found.items()},
            {table: checked.unchecked for table, checked in found.items() if checked.unchecked},
            tuple(damages),
            0 < len(structure) == len(damages),
        )
