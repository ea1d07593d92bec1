"""Checks a stored run for damage: the structure of the database, its commits, and every row.

SQLite enforces no types, and a run directory may be a stranger's: `MISFORMED` finds trials that are not in the form in
which trials are written. Stored JSON is checked where it is parsed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.machine.trial import RESERVED
from adaptive_eval.store.database import RunDatabase, structure_faults
from adaptive_eval.store.errors import translate_errors
from adaptive_eval.store.lock import missing_commits, noted_seq
from adaptive_eval.store.read import STATES
from adaptive_eval.store.schema import DECLARED, damaged_rows

MAX_TRIALS = 2**31
"""Upper limit of a trial's number, round and seed."""
MAX_VALUE = 2**53
"""Upper limit of token counts, seconds and USD."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999: a clock may be wrong, but no date lies outside them."""
_PLACES = ("model", "question", "number", "round")


def _conditions() -> Iterator[str]:
    """SQL conditions that every trial meets, column by column, by the types with which they are declared."""
    for name, declared in DECLARED["trials"].items():
        may_be_null = "NOT NULL" not in declared
        match declared.split()[0]:
            case "INTEGER" if name == "digest":
                condition = f"typeof({name}) = 'integer'"
            case "INTEGER":
                most = MAX_TRIALS if name in _PLACES else MAX_VALUE
                condition = f"typeof({name}) = 'integer' AND {name} BETWEEN -1 AND {most}"
            case "REAL":
                least = -MAX_VALUE if may_be_null or name == "at" else -1
                condition = f"typeof({name}) IN ('real', 'integer') AND {name} BETWEEN {least} AND {MAX_VALUE}"
            case "TEXT":
                condition = f"typeof({name}) = 'text'"
            case _:
                condition = f"typeof({name}) IN ('text', 'blob')"
        yield f"{name} IS NULL OR {condition}" if may_be_null else condition
    yield f"at BETWEEN {FIRST_SECOND} AND {LAST_SECOND}"
    yield f"state IN ({', '.join(repr(state) for state in STATES)})"
    yield "category IS NULL OR state = 'done'"


MISFORMED = (
    f"SELECT seq FROM trials WHERE NOT ({' AND '.join(f'({condition})' for condition in _conditions())}) LIMIT 1"
)
"""Finds a trial that is not in the form in which trials are written."""


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
                damages += [
                    f"trials: the row {seq} is not as trials are written" for (seq,) in connection.execute(MISFORMED)
                ]
                damages += map(str, damaged_rows(connection))
            except (sqlite3.Error, UnicodeDecodeError) as error:
                damages.append(f"the database: cannot be read ({error})")
        return cls(trials, looks, tuple(damages), 0 < len(structure) == len(damages))
