"""Checksums of stored rows: a bit that a disk, a copy or a cosmic ray has flipped is noticed when it is read.

Every row has a CRC-32 of all its values in a separate table. Triggers write it in the same transaction as the row, so
that no writer can forget it; they are temporary, so that the file is an ordinary database for every other program. Rows
of versions before checksums have none, and cannot be checked.

CRC-32 finds every change within 32 neighbouring bits of a row, and all but one in 4 billion of the others. It is no
defence against someone who changes a row on purpose.
"""

import marshal
import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from adaptive_eval.store.tables import COLUMNS

TABLES = """
CREATE TABLE IF NOT EXISTS trial_checks (
    id INTEGER PRIMARY KEY,        -- of the trial
    crc INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS row_checks (
    place TEXT NOT NULL,           -- the table
    row TEXT NOT NULL,             -- its key, parts of it joined by a slash
    crc INTEGER NOT NULL,
    PRIMARY KEY (place, row)
) WITHOUT ROWID;
"""

KEYS = {"run": ["key"], "looks": ["configuration", "number"], "asked_for": ["model"]}
"""Key columns of the tables without an `id`."""
OPTIONAL_TABLES = {"summed"}
"""Tables that are created only when a run needs them."""
TRIAL_TABLES = {"trials", "token_logprobs"}
"""Tables with a row for each trial, or for many trials."""
SMALL_TABLES = [table for table in COLUMNS if table not in TRIAL_TABLES]


def checksum(*values: Any) -> int:
    """CRC-32 of the values of a row in marshal's format 2, which encodes equal values as equal bytes."""
    return zlib.crc32(marshal.dumps(values, 2))


def checksum_in_sql(table: str, row: str = "") -> str:
    """The SQL expression for the checksum of a row."""
    return f"checksum({', '.join(f'{row}{column}' for column in COLUMNS[table])})"


def keep_checksums(connection: sqlite3.Connection) -> None:
    """Write checksums of all that this connection writes; creates their tables if they are missing."""
    for statement in TABLES.split(";")[:-1]:
        connection.execute(statement)
    for table in COLUMNS:
        for statement in _triggers(table) if has_table(connection, table) else ():
            connection.execute(statement)


def has_checksums(connection: sqlite3.Connection) -> bool:
    """Whether the run has checksums; one of an earlier version has none until it is resumed."""
    return has_table(connection, "trial_checks") and has_table(connection, "row_checks")


def has_table(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a run has this table."""
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    return bool(connection.execute(query, (table,)).fetchone()[0])


def _triggers(table: str) -> Iterator[str]:
    if table == "trials":
        into, old = f"trial_checks VALUES (new.id, {checksum_in_sql(table, 'new.')})", "trial_checks WHERE id = old.id"
    else:
        into = f"row_checks VALUES ('{table}', {_key(table, 'new.')}, {checksum_in_sql(table, 'new.')})"
        old = f"row_checks WHERE place = '{table}' AND row = {_key(table, 'old.')}"
    begin = f"CREATE TEMP TRIGGER IF NOT EXISTS {table}_{{0}} AFTER {{0}} ON main.{table} BEGIN "
    yield begin.format("INSERT") + f"INSERT OR REPLACE INTO {into}; END"
    # not OR REPLACE: within an upsert SQLite applies the upsert's own conflict clause
    yield begin.format("UPDATE") + f"DELETE FROM {old}; INSERT INTO {into}; END"
    yield begin.format("DELETE") + f"DELETE FROM {old}; END"


def _key(table: str, row: str = "") -> str:
    return " || '/' || ".join(f"CAST({row}{part} AS TEXT)" for part in KEYS.get(table, ["id"]))


class CheckedTable(NamedTuple):
    """The outcome of checking a table."""

    rows: int
    unchecked: int
    """Rows without a checksum."""
    damages: tuple[str, ...]
    """Rows that were changed or are missing, by table and key."""


def check_table(connection: sqlite3.Connection, table: str, after: int = 0) -> CheckedTable:
    """Compare the rows of a table with their checksums, in tables by trial only ids above `after`.

    Raises `sqlite3.Error` if the table cannot be read at all.
    """
    rows, unchecked, damages = 0, 0, []
    if table in OPTIONAL_TABLES and not has_table(connection, table):
        return CheckedTable(0, 0, ())
    after = after if table in TRIAL_TABLES else 0
    expected, missing = _expected(connection, table, after)
    whole = connection.text_factory
    # so that invalid UTF-8 fails its checksum instead of raising an error
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    query = f"SELECT {_key(table)}, {', '.join(COLUMNS[table])}, {expected} FROM {table}"
    query += f" WHERE id > {after:d}" if after else ""
    try:
        for key, *values, crc in connection.execute(query):
            rows += 1
            unchecked += crc is None
            if crc is not None and crc != checksum(*values):
                damages.append(f"{table} {key}: is not what was written")
        damages += [f"{table} {key}: is missing" for (key,) in connection.execute(missing)]
    finally:
        connection.text_factory = whole
    return CheckedTable(rows, unchecked, tuple(damages))


def _expected(connection: sqlite3.Connection, table: str, after: int) -> tuple[str, str]:
    """SQL for the stored checksum of a row, and for the keys of missing rows; neither loads all rows at once."""
    if not has_checksums(connection):
        return "NULL", "SELECT NULL WHERE 0"
    if table == "trials":
        return (
            "(SELECT crc FROM trial_checks WHERE trial_checks.id = trials.id)",
            f"SELECT CAST(id AS TEXT) FROM trial_checks WHERE id > {after:d} AND NOT EXISTS "
            "(SELECT 1 FROM trials WHERE trials.id = trial_checks.id)",
        )
    key = _key(table, f"{table}.")
    by_number = "" if table in KEYS else "id = CAST(row_checks.row AS INTEGER) AND "  # uses the primary key
    beyond = f"CAST(row AS INTEGER) > {after:d} AND " if after else ""
    return (
        f"(SELECT crc FROM row_checks WHERE place = '{table}' AND row_checks.row = {key})",
        f"SELECT row_checks.row FROM row_checks WHERE place = '{table}' AND {beyond}NOT EXISTS "
        f"(SELECT 1 FROM {table} WHERE {by_number}{key} = row_checks.row)",
    )
