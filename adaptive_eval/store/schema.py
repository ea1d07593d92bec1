"""The tables of `run.sqlite`, with a checksum in every row.

`seq` numbers the rows of the log: trials, charges, looks and notes together. Decisions are a function of these rows in
this order. A trial and a look have one row each, the newest; charges and notes are only added. Models and questions are
small integers, which never change in a run.

The checksum of a row is the CRC-32 of its values. It finds every change within 32 neighbouring bits, and all but one in
4 billion of the others; it is no defence against who changes a row on purpose.
"""

import marshal
import re
import sqlite3
import zlib
from collections.abc import Iterator
from typing import NamedTuple, get_type_hints

from adaptive_eval.endpoints.types import Answer

Stored = str | bytes | int | float | None
"""A value of a column."""

APPLICATION_ID = 0x61644576
"""Marks the file as one of adaptive-eval (PRAGMA application_id)."""
SCHEMA_VERSION = 12
"""PRAGMA user_version; a file with another number is refused."""

TABLES = """
CREATE TABLE run (
    key TEXT PRIMARY KEY,          -- name, created, version, meaning, elapsed, held, in_flight (JSON)
    value NOT NULL,
    checksum INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE configurations (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,              -- every time is in seconds since 1970, UTC
    body TEXT NOT NULL,            -- JSON
    checksum INTEGER NOT NULL
);

CREATE TABLE models (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    meaning TEXT NOT NULL,         -- JSON: what its trials depend on
    checksum INTEGER NOT NULL
);

CREATE TABLE questions (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL,            -- JSON: prompt, answer, choices, cluster, metadata
    checksum INTEGER NOT NULL
);

CREATE TABLE trials (
    seq INTEGER PRIMARY KEY,
    model INTEGER NOT NULL,
    question INTEGER NOT NULL,
    number INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state TEXT NOT NULL,           -- reserved, judging, done, ungraded (machine/trial.py)
    tokens INTEGER NOT NULL,       -- of the answer: reserved, then paid
    usd REAL NOT NULL,
    gpu_seconds REAL NOT NULL,
    v_tokens INTEGER NOT NULL,     -- of its grade: reserved until there is one, then paid
    v_usd REAL NOT NULL,
    v_gpu_seconds REAL NOT NULL,
    category INTEGER,
    signals TEXT,                  -- JSON, of the grader
    extracted TEXT,
    grader_error TEXT,
    flags TEXT,                    -- of the answer: truncated, empty, ... by spaces
    digest INTEGER,                -- of text and reasoning, to find identical answers
    seed INTEGER,                  -- from here on fields of the answer, by their names
    finish_reason TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    latency REAL,
    ttft REAL,
    replica TEXT,
    attempts INTEGER,
    completion_bpt REAL,
    prompt_bpt REAL,
    cached_tokens INTEGER,
    at REAL NOT NULL,              -- of its commit: equal for all rows of a commit
    checksum INTEGER NOT NULL,
    logprobs BLOB,                 -- zlib of JSON: tokens, and their log-probabilities times 10,000
    text BLOB,                     -- TEXT as it is, or BLOB: zlib; the long columns come last, so that sums over all
    reasoning BLOB,                -- trials do not follow their texts over the pages
    UNIQUE (model, question, number)
);

CREATE TABLE charges (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,            -- lost, killed, wasted, discarded (machine/charges.py)
    what TEXT NOT NULL,            -- answer, verdict
    model INTEGER NOT NULL,        -- -1: of none
    number INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    usd REAL NOT NULL,
    gpu_seconds REAL NOT NULL,
    estimated INTEGER NOT NULL,    -- 1: no cap counts it
    at REAL NOT NULL,
    checksum INTEGER NOT NULL
);

CREATE TABLE looks (
    number INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    configuration INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,            -- JSON, zlib: the decisions of the look
    checksum INTEGER NOT NULL
);

CREATE TABLE reports (
    look INTEGER PRIMARY KEY,      -- the newest look when it was made
    seq INTEGER NOT NULL,          -- the newest row that it counts
    at REAL NOT NULL,
    body BLOB NOT NULL,            -- JSON, zlib: the report without its questions
    checksum INTEGER NOT NULL
);

CREATE TABLE cells (
    look INTEGER PRIMARY KEY,      -- of the newest report alone
    body BLOB NOT NULL,            -- zlib of integers: trials by model, question and category
    checksum INTEGER NOT NULL
);

CREATE TABLE sums (
    seq INTEGER PRIMARY KEY,       -- the newest trial that they count; there is one row at most
    configuration INTEGER NOT NULL,
    body BLOB NOT NULL,            -- zlib: sums over the trials, so that readers of a large run need not read them all
    checksum INTEGER NOT NULL
);

CREATE TABLE notes (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    model INTEGER,
    at REAL NOT NULL,
    body TEXT NOT NULL,            -- JSON
    checksum INTEGER NOT NULL
);
"""


def _declared(tables: str) -> dict[str, dict[str, str]]:
    """The type of each column, with NOT NULL if declared, by table; lines that begin with a capital are constraints."""
    declarations = re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", tables, re.DOTALL | re.MULTILINE)
    column = re.compile(r"^    ([a-z_]+) (\w+(?: NOT NULL)?)", re.MULTILINE)
    return {table: dict(column.findall(body)) for table, body in declarations}


DECLARED = _declared(TABLES)
"""The columns of every table, with their types."""
_HINTS = get_type_hints(Answer)
ANSWER_FIELDS: dict[str, object] = {
    name: _HINTS[name] for name in DECLARED["trials"] if name in _HINTS and name not in ("text", "reasoning", "signals")
}
"""Fields of an answer that are stored unchanged, each in the column of its name, with their types. Texts are packed,
and the column `signals` is the grader's."""
_LOGGED = ("trials", "charges", "notes")
"""Tables whose key is the sequence number; that of `looks` is a column."""
LAST_SEQ = (
    "SELECT max(" + ", ".join(f"coalesce((SELECT max(seq) FROM {table}), 0)" for table in (*_LOGGED, "looks")) + ")"
)
"""The newest sequence number, 0 before the first."""
_KEYS = {table: next(iter(columns)) for table, columns in DECLARED.items()}
COVERED = {table: [name for name in columns if name != "checksum"] for table, columns in DECLARED.items()}
"""The columns that the checksum of a row covers: all others."""


def checksum(*values: Stored) -> int:
    """CRC-32 of values in marshal's format 2, in which equal values are equal bytes."""
    return zlib.crc32(marshal.dumps(values, 2))


def sealed(*values: Stored) -> tuple[Stored, ...]:
    """The values of a row, in the order of `COVERED`, with their checksum: the parameters of `insert_into`."""
    return (*values, checksum(*values))


def insert_into(table: str) -> str:
    """SQL that inserts a sealed row, in place of one with the same key."""
    names = [*COVERED[table], "checksum"]
    return f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


class DamagedRow(NamedTuple):
    """A row whose values are not what was written."""

    table: str
    key: object

    def __str__(self) -> str:
        return f"{self.table}: the row {self.key} is not what was written"


def damaged_rows(connection: sqlite3.Connection) -> Iterator[DamagedRow]:
    """All rows whose values are not what was written; text that is not UTF-8 has another checksum."""
    factory = connection.text_factory
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        for table, columns in COVERED.items():
            for written, *values in connection.execute(f"SELECT checksum, {', '.join(columns)} FROM {table}"):
                if checksum(*values) != written:
                    yield DamagedRow(table, values[columns.index(_KEYS[table])])
    finally:
        connection.text_factory = factory
