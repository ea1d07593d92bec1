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
from contextlib import closing, suppress
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import uuid4

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.sections import LEDGER, SEGMENTS
from adaptive_eval.store import database, tables
from adaptive_eval.store.checksums import has_table
from adaptive_eval.store.events.answers import AnswersKept
from adaptive_eval.store.records import TrialRecord, counted_size
from adaptive_eval.store.rows import has_surrogates, unpack_text, write_events
from adaptive_eval.store.run_database import RunDatabase
from adaptive_eval.store.segments.files import TEXTS, SegmentRow, encode_segment, load_parquet
from adaptive_eval.store.segments.places import AnswerPlace, is_given, place_at

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
_MOVED = "INSERT INTO moved (id, row, size, segment) SELECT ?, ?, ?, segments.id FROM segments WHERE name = ?"
_KEPT = ", ".join(name for name in tables.COLUMNS["trials"] if name not in TEXTS)
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


class WrittenSegment(NamedTuple):
    """A segment that was safely written."""

    last: int
    """The id of the last trial that was considered for it."""
    moved: Sequence[tuple[int, int, int]]
    """By trial whose texts it has: the id, the row there, and the size as the ledger counts it."""
    size: int
    digest: str


class AnswerMover:
    """Moves the texts of stored trials into segments, one segment at a time."""

    def __init__(self, ledger: RunDatabase, url: str, place: AnswerPlace) -> None:
        self._database, self._url, self._place = ledger, url, place
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="segment-writer")
        ((self._last,),) = ledger.rows(_LAST)
        self._count_waiting()
        self._name: str | None = None
        """The segment that is written next; one that could not be written keeps its name."""
        self._writing: Future[WrittenSegment] | None = None
        """The segment that is being written, or is written and not yet recorded."""
        self._retry_at = 0.0
        self._last_error = ""
        """Why the last attempt to write the place failed; empty if it did not."""
        self._events: list[AnswersKept] = []

    def add(self, trials: Sequence[TrialRecord], now: float) -> None:
        """Count committed trials towards the next segment; record what is written, and write the next if it is due."""
        self._trials += len(trials)
        self._characters += sum(len(one.answer.text) + len(one.answer.reasoning or "") for one in trials)
        self._record_written(now)
        if self._trials >= SEGMENT_TRIALS or self._characters >= SEGMENT_CHARACTERS:
            self._begin()

    def wait(self) -> None:
        """Wait until the current segment is written or has failed."""
        if self._writing is not None:
            self._writing.exception()

    def settle(self, now: float) -> None:
        """Wait for the current segment, and record it."""
        self.wait()
        self._record_written(now)

    def take_events(self) -> list[AnswersKept]:
        """Events that were recorded since the last call."""
        told, self._events = self._events, []
        return told

    def finish(self, now: float) -> None:
        """Move all remaining texts as long as their place can be written, and shrink the ledger by their room."""
        with suppress(StoreError):  # the next start moves them
            self.settle(now)
            while self._trials > 0 and not self._last_error:
                self._begin()
                self.settle(now)
        ((empty,),), ((pages,),) = map(self._database.rows, ("PRAGMA freelist_count", "PRAGMA page_count"))
        if 4 * empty > pages:
            with suppress(sqlite3.Error):  # it needs free space and no readers: else the next start does it
                self._database.connection.execute("VACUUM")

    def close(self) -> None:
        """Wait for the thread to end."""
        self._thread.shutdown()

    def _begin(self) -> None:
        """Start writing the next segment, unless one is being written or the place has failed just now."""
        if self._writing is not None or time.monotonic() < self._retry_at:
            return
        if self._name is None:
            name = f"{self._last + 1:09}-{uuid4().hex[:12]}.parquet"
            with self._database.transaction() as writes:
                writes.execute("INSERT INTO segments (name, place, last) VALUES (?, ?, 0)", (name, self._url))
            self._name = name
        self._writing = self._thread.submit(self._write, self._name, self._last)

    def _write(self, name: str, last: int) -> WrittenSegment:
        """Read texts from the ledger and write them as a segment; runs in the writer's thread."""
        directory = self._database.directory
        with closing(database.open_readonly(directory)) as connection, database.explained(directory):
            tokens = has_table(connection, "token_logprobs")
            query = _TEXTS.format("(SELECT body FROM token_logprobs WHERE id = trials.id)" if tokens else "NULL")
            gathering = _SegmentRows(connection.execute(query, (last,)), last)
            data = encode_segment(gathering, tokens=tokens)
        if gathering.moved:
            self._place.write(name, data)
        return WrittenSegment(gathering.last, gathering.moved, len(data), blake2b(data, digest_size=32).hexdigest())

    def _record_written(self, now: float) -> None:
        """Record the segment if it is written, and remove its texts from the ledger; or record why it is not."""
        if self._writing is None or not self._writing.done():
            return
        error = self._writing.exception()
        if error is not None:
            self._record_failure(error, now)
            return
        segment = self._writing.result()
        with self._database.transaction() as writes:
            if segment.moved:
                told = segment.last, len(segment.moved), segment.size, segment.digest
                writes.execute(_WRITTEN, (*told, self._name))
                writes.executemany(_MOVED, ((*one, self._name) for one in segment.moved))
                ends = (segment.moved[0][0], segment.moved[-1][0])
                writes.execute(_LIGHTENED, 2 * ends)
                if "token_logprobs" in self._database.tables_beside:
                    writes.execute(_WITHOUT_TOKENS, 2 * ends)
                for statement in _PUT_BACK:
                    writes.execute(statement)
            else:  # only short texts: there is no file, and they are not considered again
                writes.execute("UPDATE segments SET last = ?, trials = 0 WHERE name = ?", (segment.last, self._name))
        self._writing, self._name, self._last_error = None, None, ""
        self._last = segment.last
        self._count_waiting()

    def _record_failure(self, error: BaseException, now: float) -> None:
        if not isinstance(error, StoreError):
            raise error
        self._writing, self._retry_at = None, time.monotonic() + AGAIN_SECONDS
        if str(error) != self._last_error:
            event = AnswersKept(str(error).replace(str(self._database.directory), "."))
            with self._database.transaction() as writes:
                write_events(writes, [event], now)
            self._events.append(event)
        self._last_error = str(error)

    def _count_waiting(self) -> None:
        ((self._trials, characters),) = self._database.rows(_WAITING, self._last)
        self._characters = int(characters)


class _SegmentRows:
    """Iterates over the texts for one segment."""

    def __init__(self, rows: Iterator[tuple[Any, ...]], last: int):
        self._rows = rows
        self.last = last
        self.moved: list[tuple[int, int, int]] = []

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
            if not has_surrogates(f"{text}{reasoning}"):  # Parquet has none: such a text stays in the ledger
                size = counted_size(text or "") + counted_size(reasoning or "")
                self.moved.append((number, len(self.moved), size))
                yield SegmentRow(model, question, trial, text, reasoning, tokens)


def open_mover(ledger: RunDatabase, answers: str, name: str) -> AnswerMover | None:
    """Create the mover of a run's texts to the place `answers`; None if they stay in the ledger.

    Removes segments that an earlier start has begun and not recorded: their texts are still in the ledger.
    """
    directory = ledger.directory
    if "moved" in ledger.tables_beside:
        for number, begun, url in list(ledger.rows("SELECT id, name, place FROM segments WHERE trials IS NULL")):
            if not url or is_given(url, answers):
                place_at(directory, url).remove(begun)
                with ledger.transaction() as writes:
                    writes.execute("DELETE FROM segments WHERE id = ?", (number,))
    if answers == LEDGER:
        return None
    load_parquet()
    if "moved" not in ledger.tables_beside:
        ledger.add_tables(
            f"{tables.SEGMENTS}; INSERT INTO run VALUES ('key', '{uuid4().hex[:12]}'); "
            f"PRAGMA user_version = {database.SEGMENTED}"
        )
    ((key,),) = ledger.rows("SELECT value FROM run WHERE key = 'key'")
    url = "" if answers == SEGMENTS else f"{answers.rstrip('/')}/{name}-{key}"
    return AnswerMover(ledger, url, place_at(directory, url))
