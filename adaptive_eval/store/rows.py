"""Conversion of a run's values to rows of its tables.

A text of up to 512 bytes is stored as it is; a longer one is compressed by zlib, at level 2 with a window of 8 KiB. Of
English prose this takes, for 1,000, 4,000 and 30,000 characters, 0.05, 0.09 and 0.66 ms and 57, 51 and 46% of the
bytes. The default of zlib takes 0.15, 0.11 and 1.36 ms for 56, 49 and 42%: setting up its window of 32 KiB costs more
than storing the rest of a short trial.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_eval import __version__
from adaptive_eval.base.errors import StoreError
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.notes.event import Event, Json
from adaptive_eval.storage.header import RunHeader
from adaptive_eval.store.checksums import Stored, insert_into, sealed
from adaptive_eval.store.records import TrialRecord

MOST_UNPACKED = 256 * 1024 * 1024
"""No response, so no text, is longer (`endpoints.wire.MAX_BODY`): what unpacks to more was not written here."""
PLAIN_UP_TO = 512


def pack_text(text: str | None) -> str | bytes | None:
    """Convert a text to SQLite TEXT if it is short, or to a zlib BLOB if it is long or not valid Unicode."""
    if text is None:
        return None
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= PLAIN_UP_TO and not has_surrogates(text):
        return text
    return _compress(data)


def unpack_text(stored: str | bytes | None) -> str | None:
    """Restore the text that was given to `pack_text`."""
    if isinstance(stored, bytes):
        return _decompress(stored).decode("utf-8", "surrogatepass")
    if not isinstance(stored, str | None):
        raise StoreError(f"a stored text is of type {type(stored).__name__}")
    return stored


def pack_json(value: object) -> bytes:
    """Convert plain values to compressed JSON."""
    return _compress(dump_json(value).encode())


def unpack_json(stored: object) -> dict[str, Any]:
    """Restore the object that was given to `pack_json`; raises `StoreError` if it is damaged."""
    return json_object(_decompress(stored) if isinstance(stored, bytes) else None, "a stored look")


LOGPROB_STEPS = 10_000
"""Log-probabilities are stored to four decimals."""


def pack_logprobs(logprobs: AnswerLogprobs) -> bytes:
    """Compress tokens with their log-probabilities."""
    steps = [None if value is None else round(value * LOGPROB_STEPS) for value in logprobs.values]
    return pack_json([logprobs.tokens, steps])


def unpack_logprobs(stored: object) -> AnswerLogprobs:
    """Restore log-probabilities, to four decimals; raises `StoreError` if they are damaged."""
    try:
        tokens, steps = json.loads(_decompress(stored if isinstance(stored, bytes) else b""))
        if len(tokens) == len(steps) and all(isinstance(one, str) for one in tokens):
            return AnswerLogprobs(tuple(tokens), tuple(None if one is None else one / LOGPROB_STEPS for one in steps))
    except (ValueError, TypeError, RecursionError, OverflowError):
        pass
    raise StoreError("stored log-probabilities are damaged; restore a copy of the run")


def json_object(stored: object, what: str) -> dict[str, Any]:
    """Parse a stored JSON object; raises `StoreError` if it is anything else."""
    try:
        found = json.loads(stored) if isinstance(stored, str | bytes) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise StoreError(f"{what} is damaged: it is not a JSON object; restore a copy of the run")
    return found


def dump_json(value: object) -> str:
    """Convert plain values to ASCII JSON with sorted keys: equal values give equal texts, whatever a model wrote."""
    return _PLAIN_JSON.encode(value)


_PLAIN_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def valid_text(text: str | None) -> str | None:
    """A short text for a TEXT column, with question marks for invalid Unicode."""
    return text.encode("utf-8", "replace").decode() if text is not None and has_surrogates(text) else text


def _compress(data: bytes) -> bytes:
    compressor = zlib.compressobj(level=2, wbits=13, memLevel=7)
    return compressor.compress(data) + compressor.flush()


def _decompress(stored: bytes) -> bytes:
    """Decompress stored data; raises `StoreError` if they are damaged or unpack to more than was ever written."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(stored, MOST_UNPACKED)
    except zlib.error as error:
        raise StoreError(f"a stored text is damaged ({error}); restore a copy of the run") from error
    if not unpacking.eof:
        raise StoreError(
            f"a stored text is cut off, or unpacks to more than {MOST_UNPACKED} bytes; restore a copy of the run"
        )
    return data


def has_surrogates(text: str) -> bool:
    """Whether a text has lone surrogates, so that it is not valid Unicode."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


INSERT_TRIAL = insert_into("trials")


def trial_row(model: int, question: int, record: TrialRecord, now: float) -> tuple[Stored, ...]:
    """The values of INSERT_TRIAL; `model` and `question` are ids of the tables."""
    answer, outcome = record.answer, record.outcome()
    return sealed(
        model,
        question,
        record.trial,
        record.round,
        answer.seed,
        record.category,
        dump_json(record.signals) if record.signals else None,
        valid_text(record.extracted),
        valid_text(record.grader_error),
        outcome.flags or None,
        outcome.digest,
        answer.finish_reason,
        answer.prompt_tokens,
        answer.completion_tokens,
        _real(answer.latency),
        _real(answer.ttft),
        answer.replica,
        answer.attempts,
        _real(answer.completion_bpt),
        _real(answer.prompt_bpt),
        record.cost.tokens,
        _real(record.cost.usd),
        _real(record.cost.gpu_seconds),
        now,
        pack_text(answer.text),
        pack_text(answer.reasoning),
    )


def _real(value: float | None) -> float | None:
    """A number as SQLite returns it from a column of type REAL: without integers, -0.0 and nan."""
    return None if value is None or value != value else value + 0.0


INSERT_LOGPROBS = (
    "INSERT INTO token_logprobs (id, body, checksum) "
    "SELECT id, ?, ? FROM trials WHERE model = ? AND question = ? AND trial = ?"
)


def write_run(connection: sqlite3.Connection, header: RunHeader, now: float) -> None:
    """Write the header of a run with its first configuration."""
    run: dict[str, Stored] = {"name": header.name, "created": now, "version": __version__, "elapsed": 0.0, "held": "{}"}
    values = [*run.items(), ("meaning", dump_json(header.meaning))]
    connection.executemany(insert_into("run"), [sealed(key, value) for key, value in values])
    insert_configuration(connection, header.configuration, now)


def insert_configuration(connection: sqlite3.Connection, configuration: Json, now: float) -> None:
    """Write a configuration, which becomes the newest."""
    connection.execute(insert_into("configurations"), sealed(now, dump_json(configuration)))


def insert_models(connection: sqlite3.Connection, models: Mapping[str, Json]) -> None:
    """Write models, each with the settings that its trials depend on."""
    rows = [sealed(name, dump_json(meaning)) for name, meaning in models.items()]
    connection.executemany(insert_into("models"), rows)


def insert_questions(connection: sqlite3.Connection, questions: Mapping[str, Json]) -> None:
    """Write the questions of a run."""
    rows = [sealed(key, dump_json(body)) for key, body in questions.items()]
    connection.executemany(insert_into("questions"), rows)


def write_events(connection: sqlite3.Connection, events: Iterable[Event], now: float) -> None:
    """Write events, with the time at which they happened."""
    connection.executemany(
        insert_into("events"),
        [sealed(now, event.kind, dump_json(event.body())) for event in events],
    )
