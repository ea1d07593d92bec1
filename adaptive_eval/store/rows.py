"""How the values of a run become rows of its tables."""

import sqlite3
from collections.abc import Iterable

from adaptive_eval import __version__
from adaptive_eval.store.packing import clean, dump_json, pack_text
from adaptive_eval.store.records import Event, Json, RunHeader, TrialRecord

INSERT_TRIAL = (
    "INSERT INTO trials (model, question, trial, round, seed, category, signals, extracted, grader_error, flags, text, "
    "reasoning, digest, finish_reason, prompt_tokens, completion_tokens, latency, ttft, replica, attempts, "
    "completion_bpt, prompt_bpt, tokens, usd, gpu_seconds, at) VALUES (" + ", ".join("?" * 26) + ")"
)


def trial_row(model: int, question: int, record: TrialRecord, now: float) -> tuple[object, ...]:
    """The values of INSERT_TRIAL; model and question by the tables' own numbers."""
    answer, outcome = record.answer, record.outcome()
    return (
        model,
        question,
        record.trial,
        record.round,
        answer.seed,
        record.category,
        dump_json(record.signals) if record.signals else None,
        clean(record.extracted),
        clean(record.grader_error),
        outcome.flags or None,
        pack_text(answer.text),
        pack_text(answer.reasoning),
        outcome.digest,
        answer.finish_reason,
        answer.prompt_tokens,
        answer.completion_tokens,
        answer.latency,
        answer.ttft,
        answer.replica,
        answer.attempts,
        answer.completion_bpt,
        answer.prompt_bpt,
        *record.cost,
        now,
    )


def write_run(connection: sqlite3.Connection, header: RunHeader, now: float) -> None:
    """What a run is, and its first configuration."""
    run = {"name": header.name, "created": now, "version": __version__, "elapsed": 0.0}
    connection.executemany("INSERT INTO run VALUES (?, ?)", [*run.items(), ("meaning", dump_json(header.meaning))])
    insert_configuration(connection, header.configuration, now)


def insert_configuration(connection: sqlite3.Connection, configuration: Json, now: float) -> int:
    """A configuration; gives its number."""
    return _insert(connection, "INSERT INTO configurations (at, body) VALUES (?, ?)", now, dump_json(configuration))


def insert_model(connection: sqlite3.Connection, name: str, meaning: Json) -> int:
    """A model; gives its number."""
    return _insert(connection, "INSERT INTO models (name, meaning) VALUES (?, ?)", name, dump_json(meaning))


def insert_question(connection: sqlite3.Connection, key: str, body: Json) -> int:
    """A question; gives its number."""
    return _insert(connection, "INSERT INTO questions (key, body) VALUES (?, ?)", key, dump_json(body))


def write_events(connection: sqlite3.Connection, events: Iterable[Event], now: float) -> None:
    """Events that happened now."""
    connection.executemany(
        "INSERT INTO events (at, kind, body) VALUES (?, ?, ?)",
        ((now, str(event.kind), dump_json(event.body)) for event in events),
    )


def _insert(connection: sqlite3.Connection, statement: str, *values: object) -> int:
    number = connection.execute(statement, values).lastrowid
    assert number is not None
    return number
