"""Checksums of stored rows: a bit that a disk or a copy has changed is noticed when the run is read.

Every row has a CRC-32 of its values, written in the same statement as the row. It finds every change within 32
neighbouring bits, and all but one in 4 billion of the others; it is no defence against who changes a row on purpose.
"""

import marshal
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from adaptive_eval.store.tables import COLUMNS

Stored = str | bytes | int | float | None
"""A value of a column."""
COVERED = {table: [name for name in columns if name not in ("id", "checksum")] for table, columns in COLUMNS.items()}
"""The columns of every table that its checksums cover; SQLite itself checks the order of ids."""
_KEYS = {"run": "key", "looks": "number", "asked_for": "model"}
"""Columns that name a row, in tables without an id."""
_PLACE_OF_TRIAL = (
    "SELECT trial || ' of ' || models.name || ' on ' || questions.key FROM trials "
    "JOIN models ON models.id = model JOIN questions ON questions.id = question WHERE trials.id = ?"
)


class DamagedRow(NamedTuple):
    """A row whose values are not what was written."""

    table: str
    key: object

    def describe(self, connection: sqlite3.Connection) -> str:
        """What is damaged, by names where they can be read."""
        place = connection.execute(_PLACE_OF_TRIAL, (self.key,)).fetchone() if self.table == "trials" else None
        return f"{self.table}: {self.key if place is None else f'trial {place[0]}'} is not what was written"


def checksum(*values: Stored) -> int:
    """CRC-32 of values in marshal's format 2, in which equal values are equal bytes."""
    return zlib.crc32(marshal.dumps(values, 2))


def sealed(*values: Stored) -> tuple[Stored, ...]:
    """The values of a row with their checksum: the parameters of `insert_into`."""
    return (*values, checksum(*values))


def checksum_sql(table: str, changes: Mapping[str, str] | None = None) -> str:
    """SQL for the checksum of a row, with these expressions in place of columns."""
    there = {} if changes is None else changes
    return f"checksum({', '.join(there.get(name, f'{table}.{name}') for name in COVERED[table])})"


def insert_into(table: str, *further: str) -> str:
    """SQL that inserts a `sealed` row of what the checksum covers, and the values of further columns."""
    names = [*COVERED[table], "checksum", *further]
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def set_columns(table: str, changes: Mapping[str, str]) -> str:
    """The SET clause of an UPDATE that gives columns the values of these expressions."""
    said = ", ".join(f"{name} = {value}" for name, value in changes.items())
    return f"SET {said}, checksum = {checksum_sql(table, changes)}"


def damaged_rows(connection: sqlite3.Connection) -> list[DamagedRow]:
    """All rows whose values are not what was written."""
    try:
        return list(_damaged_rows(connection))
    except sqlite3.OperationalError:  # what is not UTF-8 has another checksum
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        try:
            return list(_damaged_rows(connection))
        finally:
            connection.text_factory = str


def _damaged_rows(connection: sqlite3.Connection) -> Iterator[DamagedRow]:
    for table, columns in COVERED.items():
        for key, written, *values in connection.execute(
            f"SELECT {_KEYS.get(table, 'id')}, checksum, {', '.join(columns)} FROM {table}"
        ):
            if checksum(*values) != written:
                yield DamagedRow(table, key)
