"""Texts of answers on their way out of the ledger.

A trial is committed with its texts in the ledger, as always. When those of some thousand trials are there, they are
written as one segment, in a thread of its own beside the writer; once that is safe, one transaction enters where each
of them lies and takes the texts out of the ledger. So at any moment a text is in the ledger, or in a segment that the
ledger names, and never in neither. A segment is named in the ledger before it is written: what a kill leaves behind is
known, and removed at the next start.

A place that cannot be written stops nothing: texts stay in the ledger, which is told, and it is tried again.
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
from adaptive_eval.store.checksums import COLUMNS
from adaptive_eval.store.events.answers import AnswersKept
from adaptive_eval.store.records import TrialRecord, counted_size
from adaptive_eval.store.rows import unpack_text
from adaptive_eval.store.segments import TEXTS, SegmentRow, encode_segment, load_parquet

SEGMENT_CHARACTERS = 64 * 1024 * 1024
SEGMENT_TRIALS = 8192
"""A segment is written when so much text, or so many trials, wait for it."""
SHORTEST_MOVED = 64
"""Bytes: where a shorter text lies takes as much room in the ledger as the text."""
AGAIN_SECONDS = 60.0
"""From a failure to the next attempt."""

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
"""Trials without their texts, taken out and put back: a row that only shrinks leaves its page to itself for ever."""


class MovedText(NamedTuple):
    """A trial whose texts are in a segment: its number, its row there, and its size as the ledger counts it."""

    trial: int
    row: int
    size: int


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A segment that is safe, and what it has."""

    name: str
    last: int
    """The last trial that was looked at for it."""
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
        self._kept_until = 0.0
        self._told = ""

    def count(self, trials: Sequence[TrialRecord]) -> None:
        """Count trials that were committed."""
        self._trials += len(trials)
        self._characters += sum(len(one.answer.text) + len(one.answer.reasoning or "") for one in trials)

    def due(self, whatever_is_there: bool) -> bool:
        """Whether a segment is to be written now."""
        full = self._trials >= SEGMENT_TRIALS or self._characters >= SEGMENT_CHARACTERS
        there = full or (whatever_is_there and self._trials > 0)
        return there and self._writing is None and time.monotonic() >= self._kept_until

    def name_next(self) -> None:
        """Name the next segment, within a transaction; one that could not be written is tried again."""
        if self._name is None:
            name = f"{self._last + 1:09}-{uuid4().hex[:12]}.parquet"
            self._connection.execute("INSERT INTO segments (name, place, last) VALUES (?, ?, 0)", (name, self._url))
            self._name = name

    def begin(self) -> None:
        """Begin to write the named segment, after that transaction."""
        assert self._name is not None
        self._writing = self._thread.submit(self._write, self._name, self._last)

    def wait(self) -> None:
        """Wait until the segment at work is safe, or has failed."""
        if self._writing is not None:
            self._writing.exception()

    def enter(self) -> tuple[WrittenSegment | None, AnswersKept | None]:
        """Within a transaction: take texts out of the ledger whose segment is safe now.

        Gives that segment, for `entered`, or what went wrong where that is new.
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
        else:  # nothing but short texts: there is no file, and they are not looked at again
            connection.execute("UPDATE segments SET last = ?, trials = 0 WHERE name = ?", (segment.last, segment.name))
        return segment, None

    def entered(self, segment: WrittenSegment) -> None:
        """Note that the transaction which enters a segment is committed."""
        self._writing, self._name, self._told = None, None, ""
        self._last = segment.last
        self._count_waiting()

    @property
    def busy(self) -> bool:
        """A segment is being written, or has been and is not entered."""
        return self._writing is not None

    @property
    def failing(self) -> bool:
        """The place could not be written at the last attempt."""
        return bool(self._told)

    @property
    def ready(self) -> bool:
        """Whether the segment at work has been written, or writing it has failed."""
        return self._writing is not None and self._writing.done()

    def give_room_back(self) -> None:
        """Make the ledger smaller, which texts have left."""
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
        self._writing, self._kept_until = None, time.monotonic() + AGAIN_SECONDS
        news = None if str(error) == self._told else AnswersKept(str(error).replace(str(self._directory), "."))
        self._told = str(error)
        return news

    def _write(self, name: str, last: int) -> WrittenSegment:
        """Read texts from the ledger and write them as a segment; runs in the writer's thread."""
        with closing(database.open_readonly(self._directory)) as connection, database.explained(self._directory):
            tokens = database.has_token_logprobs(connection)
            query = _TEXTS.format("(SELECT body FROM token_logprobs WHERE id = trials.id)" if tokens else "NULL")
            gathering = _Gathering(connection.execute(query, (last,)), last)
            data = encode_segment(gathering, tokens=tokens)
        if gathering.moved:
            self._place.write(name, data)
        digest = blake2b(data, digest_size=32).hexdigest()
        return WrittenSegment(name, gathering.last, gathering.moved, len(data), digest)


class _Gathering:
    """The texts for one segment, one after the other."""

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
    """Parquet has no other texts: half of a surrogate pair stays in the ledger."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def open_mover(directory: Path, answers: str, name: str, connection: sqlite3.Connection) -> AnswerMover | None:
    """Open the mover of a run's texts to the place `answers`; None if they stay in the ledger."""
    if answers == LEDGER:
        return None
    load_parquet()
    key = database.keep_segments(connection)
    url = "" if answers == SEGMENTS else f"{answers.rstrip('/')}/{name}-{key}"
    return AnswerMover(directory, url, place_at(directory, url), connection)


def sweep(directory: Path, connection: sqlite3.Connection, given: str | None) -> None:
    """Remove segments that were begun and not entered: their texts are in the ledger still."""
    if not database.has_segments(connection):
        return
    begun = connection.execute("SELECT id, name, place FROM segments WHERE trials IS NULL").fetchall()
    for number, name, url in begun:
        if not url or is_given(url, given):
            place_at(directory, url).remove(name)
            connection.execute("DELETE FROM segments WHERE id = ?", (number,))
