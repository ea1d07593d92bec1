"""The tables of `run.sqlite`.

A model and a question have a small integer here, which only the tables know; outside they go by name and id. A trial is
unique by (model, question, trial). A look belongs to the configuration that took it: a resume that changes a setting
takes its looks anew on the same trials, and those taken before stay readable. `configurations` has one row for each
distinct configuration the run was started with, the newest last.
"""

DATABASE_FILE = "run.sqlite"

APPLICATION_ID = 0x61644576
"""Marks the file as ours (PRAGMA application_id)."""

SCHEMA_VERSION = 1
"""PRAGMA user_version; a file with another number is refused, never guessed at."""

TABLES = """
CREATE TABLE run (
    key TEXT PRIMARY KEY,          -- name, created, version, meaning, elapsed
    value NOT NULL
) WITHOUT ROWID;

CREATE TABLE configurations (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,              -- every time is in seconds since 1970, UTC
    body TEXT NOT NULL             -- JSON
);

CREATE TABLE models (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    meaning TEXT NOT NULL          -- JSON: what its trials depend on
);

CREATE TABLE questions (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL             -- JSON: prompt, answer, choices, cluster, metadata
);

CREATE TABLE trials (
    id INTEGER PRIMARY KEY,        -- in the order of commitment
    model INTEGER NOT NULL REFERENCES models (id),
    question INTEGER NOT NULL REFERENCES questions (id),
    trial INTEGER NOT NULL,
    round INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    category INTEGER,              -- NULL: the grader failed, see grader_error
    signals TEXT,                  -- JSON, of the grader
    extracted TEXT,
    grader_error TEXT,
    flags TEXT,                    -- of the answer: truncated, empty, ... by spaces
    digest INTEGER,                -- of text and reasoning where long, to find identical answers
    finish_reason TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    latency REAL NOT NULL,
    ttft REAL,
    replica TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    completion_bpt REAL,
    prompt_bpt REAL,
    tokens INTEGER NOT NULL,       -- the cost that the budgets count
    usd REAL NOT NULL,
    gpu_seconds REAL NOT NULL,
    at REAL NOT NULL,
    text BLOB,                     -- TEXT as it is, or BLOB: zlib; the long columns come last, so that what is summed
    reasoning BLOB,                -- over all trials is read without following their texts over the pages
    UNIQUE (model, question, trial)
);

CREATE TABLE looks (
    configuration INTEGER NOT NULL REFERENCES configurations (id),
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,            -- JSON, zlib: the whole look with every verdict
    PRIMARY KEY (configuration, number)
) WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,            -- an EventKind
    body TEXT NOT NULL             -- JSON
);
"""
