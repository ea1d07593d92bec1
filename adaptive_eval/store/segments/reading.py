"""Reads texts of answers from segments on demand."""

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.files import closed_on_error
from adaptive_eval.store.records import AnswerTexts, answer_digest
from adaptive_eval.store.segments.files import KeptGroups, SegmentFile
from adaptive_eval.store.segments.places import VARIABLE, AnswerPlace, is_given, place_at

MOST_OPEN = 8
CHUNK = 1024 * 1024

_SEGMENTS = "SELECT id, name, place, trials, bytes, digest FROM segments WHERE trials > 0 ORDER BY id"
_MOVED = "SELECT row, moved.id, digest FROM moved JOIN trials ON trials.id = moved.id WHERE segment = ? ORDER BY row"


_KINDS = (int, str, str, int, int, str)
"""Types of these columns, which SQLite does not enforce."""


class StoredSegment(NamedTuple):
    """A segment's row in the ledger."""

    number: int
    name: str
    url: str
    trials: int
    size: int
    digest: str


class StoredTexts:
    """Reads texts from segments; raises `StoreError` for damaged ones."""

    def __init__(self, directory: Path, connection: sqlite3.Connection, given: str | None) -> None:
        self._directory, self._connection, self._given = directory, connection, given
        self._files: OrderedDict[int, SegmentFile] = OrderedDict()
        """Those open now, by number; the one that was used last comes last."""
        self._kept = KeptGroups()

    def read(self, segment: int, row: int, digest: int | None) -> AnswerTexts:
        """The texts in a row of a segment, checked against their digest in the ledger."""
        if not isinstance(segment, int) or not isinstance(row, int):
            raise self._damaged("it does not say where an answer lies")
        file = self._file(segment)
        texts = self._kept.read(file, row)
        if answer_digest(texts) != digest:
            raise file.refused(f"the text in row {row} is not the one that was stored")
        return texts

    def damages(self) -> Iterator[str]:
        """Check the segments that may be opened, each as a whole and each text in it; yields the damages."""
        for one in self.segments():
            if not self.is_open_to(one):
                continue
            try:
                self._require_whole(one)
                for row, trial, digest in self._connection.execute(_MOVED, (one.number,)):
                    try:
                        self.read(one.number, row, digest)
                    except StoreError as error:
                        yield f"trials {trial}: {error}"
            except StoreError as error:
                yield f"segments {one.number}: {error}"

    def unchecked(self) -> list[str]:
        """Notes on segments that may not be opened, since the user has not allowed their URLs."""
        return [
            f"the answers at {url} are not checked: if you know that place, set {VARIABLE}={url.rpartition('/')[0]}"
            for url in sorted({one.url for one in self.segments() if not self.is_open_to(one)})
        ]

    def segments(self) -> list[StoredSegment]:
        """The segments that the ledger lists."""
        rows = self._connection.execute(_SEGMENTS).fetchall()
        if any(tuple(map(type, row)) != _KINDS for row in rows):
            raise self._damaged("its list of segments has values of the wrong kind")
        return [StoredSegment(*row) for row in rows]

    def is_open_to(self, one: StoredSegment) -> bool:
        """Whether a segment may be opened: it lies in the run directory, or at an allowed URL."""
        return not one.url or is_given(one.url, self._given)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._files.popitem()[1].close()

    def _file(self, number: int) -> SegmentFile:
        if number not in self._files:
            listed = {one.number: one for one in self.segments()}
            if number not in listed:
                raise self._damaged(f"an answer lies in segment {number}, which it does not list")
            one = listed[number]
            while len(self._files) >= MOST_OPEN:
                self._files.popitem(last=False)[1].close()
            source, size = self._place(one).open(one.name)
            with closed_on_error(source):
                if size != one.size:
                    raise StoreError(
                        f"the segment {one.name} is damaged: it has {size} bytes, and was written with {one.size}; "
                        "restore a copy of it"
                    )
                self._files[number] = SegmentFile(f"{one.url}/{one.name}", source, size)
        self._files.move_to_end(number)
        return self._files[number]

    def _damaged(self, what: str) -> StoreError:
        return StoreError(f"the ledger of {self._directory} is damaged: {what}; restore a copy of the run")

    def _place(self, one: StoredSegment) -> AnswerPlace:
        if not self.is_open_to(one):
            raise StoreError(
                f"the answers of {self._directory} lie at {one.url}, and what a run directory names is not opened by "
                f"itself: if you know that place, set {VARIABLE}={one.url.rpartition('/')[0]}"
            )
        return place_at(self._directory, one.url)

    def _require_whole(self, one: StoredSegment) -> None:
        source, size = self._place(one).open(one.name)
        digest = blake2b(digest_size=32)
        with closing(source):
            while size == one.size and (part := source.read(CHUNK)):
                digest.update(part)
        if digest.hexdigest() != one.digest:
            raise StoreError(f"the segment {one.name} is damaged: it is not what was written; restore a copy of it")
