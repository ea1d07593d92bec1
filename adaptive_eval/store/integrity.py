"""Checks a stored run for damage: the structure of the database, its commits, and every answer by its digest."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.base.errors import StoreError
from adaptive_eval.store import database, queries
from adaptive_eval.store.forms import MISFORMED
from adaptive_eval.store.records import text_digest
from adaptive_eval.store.rows import unpack_text


@dataclass(frozen=True, slots=True)
class Integrity:
    """The result of checking a run."""

    trials: int
    looks: int
    damages: tuple[str, ...]
    only_structure: bool = False
    """Whether all answers are intact, and only the structure of the database is damaged."""

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
                ((looks,),) = connection.execute("SELECT count(*) FROM looks")
                damages += [f"trials {one}: is not as trials are written" for (one,) in connection.execute(MISFORMED)]
                for damage in _check_answers(connection):
                    trials += 1
                    damages += [] if damage is None else [damage]
            except (sqlite3.Error, UnicodeDecodeError) as error:
                damages.append(f"the database: cannot be read ({error})")
        return cls(trials, looks, tuple(damages), 0 < len(structure) == len(damages))


def _check_answers(connection: sqlite3.Connection) -> Iterator[str | None]:
    """For each answer what is wrong with it, if anything."""
    connection.text_factory = lambda data: data.decode("utf-8", "replace")  # what is not UTF-8 has another digest
    for row in map(queries.TrialRow._make, connection.execute(f"{queries.TRIALS}ORDER BY trials.id")):
        name = f"trials: the answer of trial {row.trial} of {row.model} on {row.question}"
        try:
            digest = text_digest(unpack_text(row.text), unpack_text(row.reasoning))
            yield None if digest == row.digest else f"{name} is not what was written"
        except (StoreError, UnicodeDecodeError) as error:
            yield f"{name} cannot be read ({error})"
