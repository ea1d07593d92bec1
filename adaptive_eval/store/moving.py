"""Moves texts of answers from the ledger into segments.

A trial is committed with its texts in the ledger, as always. When texts of some thousand trials have gathered, they are
written as one segment in a separate thread. Once that is safe, one transaction records where each text lies and removes
it from the ledger. So at any moment a text is in the ledger or in a segment that the ledger names. A segment is named
in the ledger before it is written: what a kill leaves behind is known, and removed at the next start.

If the place cannot be written, the texts stay in the ledger, an event says so, and it is tried again later.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from adaptive_eval.errors import StoreError
from adaptive_eval.sections import LEDGER, SEGMENTS
from adaptive_eval.store import database
from adaptive_eval.store.answer_places import AnswerPlace, is_given, place_at
from adaptive_eval.store.events.answers import AnswersKept
from adaptive_eval.store.records import TrialRecord, counted_size
from adaptive_eval.store.rows import unpack_text
from adaptive_eval.store.segments import TEXTS, SegmentRow, encode_segment, load_parquet
from adaptive_eval.store.tables import COLUMNS

SEGMENT_CHARACTERS = 64 * 1024 * 1024
SEGMENT_TRIALS = 8192
"""A segment is written when this much text, or this many trials, are waiting."""
SHORTEST_MOVED = 64
"""Bytes; the place of a shorter text would take as much room in the ledger as the text itself."""
AGAIN_SECONDS = 60.0
"""Seconds from a failure to the next attempt."""

_WAITING = "SELECT count(*), total(length(text)) + total(length(reasoning)) FROM trials WHERE id > ?"
_LAST = "SELECT coalesce(max(last), 0) FROM segments"
_TEXTS = (
    "SELECT trials.id, models.name, questions.key, trial, {}, text, reasoning FROM trials "
    "JOIN models ON models.id = model JOIN questions ON questions.id = question WHERE trials.id > ? ORDER BY trials.id"
)
_WRITTEN = "UPDATE segments SET last = ?, trials = ?, bytes = ?, digest = ? WHERE name = ?"
_MOVED = "INSERT INTO moved (id, segment, row, size) SELECT ?, segments.id, ?, ? FROM segments WHERE name = ?"
_KEPT = ", ".join(name for name in COLUMNS["trials"] if name not in TEXTS)
_LIGHTENED = (
    f"CREATE TEMP TABLE lightened AS SELECT {_KEPT} FROM trials WHERE id BETWEEN ? AND ? "
    "AND id IN (SELECT id FROM moved WHERE id BETWEEN ? AND ?)"
)
_WITHOUT_TOKENS = (
    "DELETE FROM token_logprobs WHERE id BETWEEN ? AND ? AND id IN (SELECT id FROM moved WHERE id BETWEEN ? AND ?)"
)
_PUT_BACK = (
    "DELETE FROM trials WHERE id IN (SELECT id FROM lightened)",
    f"INSERT INTO trials ({_KEPT}) SELECT {_KEPT} FROM lightened ORDER BY id",
    "DROP TABLE lightened",
)
"""Delete trials and insert them again without texts: updated rows would shrink, but leave their pages mostly empty."""


class MovedText(NamedTuple):
    """A trial whose texts are in a segment: its id, its row there, and its size as the ledger counts it."""

    trial: int
    row: int
    size: int


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment that was safely written."""

    name: str
    last: int
    """The id of the last trial that was considered for it."""
    moved: Sequence[MovedText]
    size: int
    digest: str


class AnswerMover:
    """Moves the texts of stored trials into segments, one segment at a time."""

    def __init__(self, directory: Path, url: str, place: AnswerPlace, connection: sqlite3.Connection) -> None:
        self._directory, self._url, self._place, self._connection = directory, url, place, connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="segment-writer")
        ((self._last,),) = connection.execute(_LAST)
        self._count_waiting()
        self._name: str | None = None
        self._writing: Future[WrittenSegment] | None = None
        self._retry_at = 0.0
        self._last_error = ""

    def count(self, trials: Sequence[TrialRecord]) -> None:
        """Count committed trials towards the next segment."""
        self._trials += len(trials)
        self._characters += sum(len(one.answer.text) + len(one.answer.reasoning or "") for one in trials)

    def due(self, even_if_small: bool) -> bool:
        """Whether a segment should be written now."""
        full = self._trials >= SEGMENT_TRIALS or self._characters >= SEGMENT_CHARACTERS
        there = full or (even_if_small and self._trials > 0)
        return there and self._writing is None and time.monotonic() >= self._retry_at

    def name_next(self) -> None:
        """Name the next segment, within a transaction; one that could not be written keeps its name."""
        if self._name is None:
            name = f"{self._last + 1:09}-{uuid4().hex[:12]}.parquet"
            self._connection.execute("INSERT INTO segments (name, place, last) VALUES (?, ?, 0)", (name, self._url))
            self._name = name

    def begin(self) -> None:
        """Start writing the named segment, after that transaction."""
        assert self._name is not None
        self._writing = self._thread.submit(self._write, self._name, self._last)

    def wait(self) -> None:
        """Wait until the current segment is written or has failed."""
        if self._writing is not None:
            self._writing.exception()

    def enter(self) -> tuple[WrittenSegment | None, AnswersKept | None]:
        """Record the written segment and remove its texts from the ledger, within a transaction.

        Returns that segment, for `entered`; or, if writing failed, the event of a new kind of failure.
        """
        assert self._writing is not None
        error = self._writing.exception()
        if error is not None:
            return None, self._failed(error)
        segment, connection = self._writing.result(), self._connection
        if segment.moved:
            told = len(segment.moved), segment.size, segment.digest, segment.name
            connection.execute(_WRITTEN, (segment.last, *told))
            connection.executemany(_MOVED, ((one.trial, one.row, one.size, segment.name) for one in segment.moved))
            ends = (segment.moved[0].trial, segment.moved[-1].trial)
            connection.execute(_LIGHTENED, 2 * ends)
            if database.has_token_logprobs(connection):
                connection.execute(_WITHOUT_TOKENS, 2 * ends)
            for statement in _PUT_BACK:
                connection.execute(statement)
        else:  # only short texts: there is no file, and they are not considered again
            connection.execute("UPDATE segments SET last = ?, trials = 0 WHERE name = ?", (segment.last, segment.name))
        return segment, None

    def entered(self, segment: WrittenSegment) -> None:
        """Note that the transaction of `enter` was committed."""
        self._writing, self._name, self._last_error = None, None, ""
        self._last = segment.last
        self._count_waiting()

    @property
    def busy(self) -> bool:
        """Whether a segment is being written, or is written and not yet recorded."""
        return self._writing is not None

    @property
    def failing(self) -> bool:
        """Whether the last attempt to write the place failed."""
        return bool(self._last_error)

    @property
    def ready(self) -> bool:
        """Whether writing the current segment has finished or failed."""
        return self._writing is not None and self._writing.done()

    def give_room_back(self) -> None:
        """Shrink the ledger by the room of the moved texts."""
        database.give_room_back(self._connection)

    def close(self) -> None:
        """Wait for the thread to end."""
        self._thread.shutdown()

    def _count_waiting(self) -> None:
        ((self._trials, characters),) = self._connection.execute(_WAITING, (self._last,))
        self._characters = int(characters)

    def _failed(self, error: BaseException) -> AnswersKept | None:
        if not isinstance(error, StoreError):
            raise error
        self._writing, self._retry_at = None, time.monotonic() + AGAIN_SECONDS
        event = None if str(error) == self._last_error else AnswersKept(str(error).replace(str(self._directory), "."))
        self._last_error = str(error)
        return event

    def _write(self, name: str, last: int) -> WrittenSegment:
        """Read texts from the ledger and write them as a segment; runs in the writer's thread."""
        with closing(database.open_readonly(self._directory)) as connection, database.explained(self._directory):
            tokens = database.has_token_logprobs(connection)
            query = _TEXTS.format("(SELECT body FROM token_logprobs WHERE id = trials.id)" if tokens else "NULL")
            gathering = _SegmentRows(connection.execute(query, (last,)), last)
            data = encode_segment(gathering, tokens=tokens)
        if gathering.moved:
            self._place.write(name, data)
        digest = blake2b(data, digest_size=32).hexdigest()
        return WrittenSegment(name, gathering.last, gathering.moved, len(data), digest)


class _SegmentRows:
    """Iterates over the texts for one segment."""

    def __init__(self, rows: Iterator[tuple[Any, ...]], last: int):
        self._rows = rows
        self.last = last
        self.moved: list[MovedText] = []

    def __iter__(self) -> Iterator[SegmentRow]:
        characters = seen = 0
        for number, model, question, trial, tokens, *packed in self._rows:
            if characters >= SEGMENT_CHARACTERS or seen == SEGMENT_TRIALS:
                return
            self.last, seen = number, seen + 1
            if sum(len(one) for one in packed if one is not None) < SHORTEST_MOVED:
                continue
            text, reasoning = map(unpack_text, packed)
            characters += len(text or "") + len(reasoning or "") + len(tokens or b"")
            if _is_unicode(text) and _is_unicode(reasoning):
                size = counted_size(text or "") + counted_size(reasoning or "")
                self.moved.append(MovedText(number, len(self.moved), size))
                yield SegmentRow(model, question, trial, text, reasoning, tokens)


def _is_unicode(text: str | None) -> bool:
    """Whether a text is valid Unicode, as Parquet needs; one with lone surrogates stays in the ledger."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def open_mover(directory: Path, answers: str, name: str, connection: sqlite3.Connection) -> AnswerMover | None:
    """Create the mover of a run's texts to the place `answers`; None if they stay in the ledger."""
    if answers == LEDGER:
        return None
    load_parquet()
    key = database.keep_segments(connection)
    url = "" if answers == SEGMENTS else f"{answers.rstrip('/')}/{name}-{key}"
    return AnswerMover(directory, url, place_at(directory, url), connection)


def remove_unfinished_segments(directory: Path, connection: sqlite3.Connection, given: str | None) -> None:
    """Remove segments that were begun but not recorded: their texts are still in the ledger."""
    if not database.has_segments(connection):
        return
    begun = connection.execute("SELECT id, name, place FROM segments WHERE trials IS NULL").fetchall()
    for number, name, url in begun:
        if not url or is_given(url, given):
            place_at(directory, url).remove(name)
            connection.execute("DELETE FROM segments WHERE id = ?", (number,))
