"""The form in which rows are written, as SQL conditions: SQLite enforces no types, and a run directory may be a
stranger's."""

import sqlite3
from collections.abc import Iterator

from adaptive_eval.machine.charges import NO_MODEL
from adaptive_eval.machine.trial import TrialState
from adaptive_eval.store.schema import DECLARED, DamagedRow

MAX_TRIALS = 2**31
"""Upper limit of a trial's number and round, and of the numbers of models and questions."""
MAX_VALUE = 2**53
"""Upper limit of all other numbers, such as token counts, seconds and USD."""
FIRST_SECOND, LAST_SECOND = -62_135_596_800.0, 253_402_300_800.0
"""The years 1 to 9999: a clock may be wrong, but no date lies outside them."""
_PLACES = ("model", "question", "number", "round")


def _conditions(table: str) -> Iterator[str]:
    """Conditions on every row of a table, column by column, by the types with which they are declared."""
    is_trial = table == "trials"
    for name, declared in DECLARED[table].items():
        may_be_null = "NOT NULL" not in declared
        lowest, highest = -MAX_VALUE, MAX_VALUE
        match declared.split()[0]:
            case "INTEGER" if name in ("digest", "checksum"):
                condition = f"typeof({name}) = 'integer'"
            case "INTEGER":
                lowest, highest = (-1, MAX_TRIALS if name in _PLACES else MAX_VALUE) if is_trial else (lowest, highest)
                condition = f"typeof({name}) = 'integer' AND {name} BETWEEN {lowest} AND {highest}"
            case "REAL":
                if name == "at":
                    lowest, highest = int(FIRST_SECOND), int(LAST_SECOND)
                elif is_trial and not may_be_null:
                    lowest = -1
                condition = f"typeof({name}) IN ('real', 'integer') AND {name} BETWEEN {lowest} AND {highest}"
            case "TEXT":
                condition = f"typeof({name}) = 'text'"
            case _:
                condition = f"typeof({name}) IN ('text', 'blob')"
        yield f"{name} IS NULL OR {condition}" if may_be_null else condition
    if is_trial:
        yield f"state IN ({', '.join(repr(state.value) for state in TrialState)})"
        yield "category IS NULL OR state = 'done'"
        yield "question IN (SELECT id FROM questions)"
    if "model" in DECLARED[table]:
        none = {"charges": f"model = {NO_MODEL} OR ", "notes": "model IS NULL OR "}
        yield f"{none.get(table, '')}model IN (SELECT id FROM models)"


_CHECKED = {
    table: next(iter(DECLARED[table])) for table in ("trials", "charges", "looks", "reports", "cells", "sums", "notes")
}
"""The tables whose values are read as they are, with their keys; `run` has values of any type, and the others JSON."""
MISFORMED = {
    table: f"SELECT {key} FROM {table} WHERE NOT ({' AND '.join(map('({})'.format, _conditions(table)))}) LIMIT 1"
    for table, key in _CHECKED.items()
}
"""Finds a row that is not in the form in which it is written, by table."""


def misformed_rows(connection: sqlite3.Connection) -> Iterator[DamagedRow]:
    """A row of each table that is not in the form in which it is written."""
    for table, query in MISFORMED.items():
        for (key,) in connection.execute(query):
            yield DamagedRow(table, key)
