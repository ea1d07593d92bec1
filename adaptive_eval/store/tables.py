"""The tables of `run.sqlite`, each column with a comment on a line of its own.

Models and questions are small integers here; outside the tables they go by name and id. A trial is unique by (model,
question, trial). A look belongs to the configuration under which it was taken, and stands when a later start changes
settings: looks under these settings have the numbers that follow. `configurations` has one row for each distinct
configuration with which the run was started, the newest last.
"""

import re

TABLES = """
CREATE TABLE run (
    key TEXT PRIMARY KEY,          -- name, created, version, meaning, elapsed, held (JSON)
    value NOT NULL,
    checksum INTEGER NOT NULL      -- of the row, as in every table: see store/checksums.py
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
    digest INTEGER,                -- of text and reasoning, to find identical answers
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
    checksum INTEGER NOT NULL,
    text BLOB,                     -- TEXT as it is, or BLOB: zlib; the long columns come last, so that what is summed
    reasoning BLOB,                -- over all trials is read without following their texts over the pages
    UNIQUE (model, question, trial)
);

CREATE TABLE looks (
    configuration INTEGER NOT NULL REFERENCES configurations (id),
    number INTEGER NOT NULL,
    at REAL NOT NULL,
    body BLOB NOT NULL,            -- JSON, zlib: the whole look with every verdict
    checksum INTEGER NOT NULL,
    PRIMARY KEY (configuration, number)
) WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    kind TEXT NOT NULL,            -- see store/events/
    body TEXT NOT NULL,            -- JSON
    checksum INTEGER NOT NULL
);

CREATE TABLE asked_for (           -- trials that were sent and have no answer yet, where a cap must hold
    model INTEGER PRIMARY KEY,
    trials INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);

CREATE TABLE token_logprobs (      -- only with `sampling: {logprobs: tokens}`
    id INTEGER PRIMARY KEY,        -- of the trial
    body BLOB NOT NULL,            -- zlib of JSON: its tokens, and their log-probabilities times 10,000
    checksum INTEGER NOT NULL
);
"""


def _columns(tables: str) -> dict[str, list[str]]:
    """Names of the columns by table; what begins with a capital is a constraint."""
    found = re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", tables, re.DOTALL | re.MULTILINE)
    return {table: re.findall(r"^    ([a-z_]+) ", body, re.MULTILINE) for table, body in found}


COLUMNS = _columns(TABLES)
"""The columns of every table."""
