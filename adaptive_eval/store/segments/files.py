"""Segments: Parquet files with the texts of some thousand trials each, compressed with zstd.

Rows are in groups of half a megabyte of text, so that one answer is read without all others. Each row names its model,
question and trial, so that any Parquet reader can use the file without the ledger. A file may come from a stranger: a
group is unpacked only if the headers of its pages declare no more than was ever written.
"""

import io
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from adaptive_eval.base.errors import StoreError
from adaptive_eval.base.imports import load_pyarrow
from adaptive_eval.store.records import AnswerTexts
from adaptive_eval.store.rows import MOST_UNPACKED
from adaptive_eval.store.segments.pages import PagesRefused, column_place, parse_footer, unpacked_size

GROUP_BYTES = 512 * 1024
"""Bytes of text in a group: about what one disk read or one request to object storage brings anyway."""
LEVEL = 3
MOST_GROUP_ROWS = 65_536
MOST_GROUPS = 65_536
MOST_FOOTER = 16 * 1024 * 1024
MOST_BYTES = 4 * 1024 * 1024 * 1024
"""Largest size of a segment that is read; those written are far smaller."""
MOST_KEPT = 16 * 1024 * 1024
"""Bytes of unpacked text that a reader caches, besides the group that it reads from."""
WRITTEN_BY = "parquet-cpp-arrow"
MAGIC = b"PAR1"
TEXTS = ("text", "reasoning")
TOKENS = "token_logprobs"
"""The column of answers' tokens, as packed in the ledger; only if the run stores them."""


class SegmentRow(NamedTuple):
    """An answer's texts, with its model, question and trial."""

    model: str
    question: str
    trial: int
    text: str | None
    reasoning: str | None
    token_logprobs: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of its texts and token log-probabilities."""
        texts = sum(len(one.encode()) for one in (self.text, self.reasoning) if one is not None)
        return texts + len(self.token_logprobs or b"")


def load_parquet() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module; raises `ConfigError` if they are not installed."""
    return load_pyarrow("segments", "answers in segments")


def encode_segment(rows: Iterable[SegmentRow], *, tokens: bool = False) -> bytes:
    """Encode rows as a Parquet file; `tokens` includes the answers' tokens."""
    pyarrow, parquet = load_parquet()
    kinds = {"model": pyarrow.string(), "question": pyarrow.string(), "trial": pyarrow.int64()}
    beside = {TOKENS: pyarrow.binary()} if tokens else {}
    schema = pyarrow.schema({**kinds, **dict.fromkeys(TEXTS, pyarrow.string()), **beside})
    out = io.BytesIO()
    how: dict[str, Any] = {"compression": "zstd", "compression_level": LEVEL, "use_dictionary": ["model", "question"]}
    with parquet.ParquetWriter(out, schema, **how, write_statistics=False, write_page_checksum=True) as writer:
        for group in _groups(rows):
            columns = dict(zip(SegmentRow._fields, map(list, zip(*group, strict=True)), strict=True))
            table = pyarrow.table({name: columns[name] for name in schema.names}, schema=schema)
            writer.write_table(table, row_group_size=len(group))
    return out.getvalue()


def _groups(rows: Iterable[SegmentRow]) -> Iterator[list[SegmentRow]]:
    group: list[SegmentRow] = []
    size = 0
    for row in rows:
        group.append(row)
        size += row.size
        if size >= GROUP_BYTES or len(group) == MOST_GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


class SegmentFile:
    """A segment open for reading, a group at a time; raises `StoreError` if it is not what was written."""

    def __init__(self, name: str, source: BinaryIO, size: int) -> None:
        self.name = name
        self._source, self._size = source, size
        self._pyarrow, parquet = load_parquet()
        try:
            self._footer = parse_footer(self._read_footer())
            self._file = parquet.ParquetFile(source, page_checksum_verification=True)
            self._groups = self._rows_of_groups()
            self._columns = self._text_columns()
        except (self._pyarrow.ArrowException, OSError, ValueError, KeyError) as error:
            raise self.refused(str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def refused(self, why: str) -> StoreError:
        """The error of a damaged segment."""
        first = why.strip().partition("\n")[0]
        return StoreError(f"the segment {self.name} is damaged: {first}. Restore a copy of it")

    def find_group(self, row: int) -> tuple[int, int]:
        """The group that contains a row, and the row's number in it."""
        left = row
        for group, rows in enumerate(self._groups if row >= 0 else ()):
            if left < rows:
                return group, left
            left -= rows
        raise self.refused(f"it has no row {row}")

    def read(self, group: int) -> "TextGroup":
        """Unpack the texts of a group."""
        try:
            for column in self._columns.values():
                self._require_bounded(group, column)
            table = self._file.read_row_group(group, columns=list(self._columns), use_threads=False)
        except (self._pyarrow.ArrowException, OSError, ValueError) as error:
            raise self.refused(str(error)) from error
        return TextGroup(self, *(table.column(name) for name in self._columns))

    def _read_footer(self) -> bytes:
        if not 12 <= self._size <= MOST_BYTES:
            raise PagesRefused("it is not a Parquet file, or larger than any that was written")
        self._source.seek(self._size - 8, os.SEEK_SET)
        tail = self._source.read(8)
        if tail[4:] != MAGIC or int.from_bytes(tail[:4], "little") > min(MOST_FOOTER, self._size - 12):
            raise PagesRefused("it is not a Parquet file, or cut off")
        length = int.from_bytes(tail[:4], "little")
        self._source.seek(self._size - 8 - length, os.SEEK_SET)
        footer = self._source.read(length)
        self._source.seek(0)
        return footer

    def _rows_of_groups(self) -> list[int]:
        told = self._file.metadata
        if told.num_row_groups > MOST_GROUPS or not str(told.created_by).startswith(WRITTEN_BY):
            raise PagesRefused("it is not a segment that was written here")
        rows = [told.row_group(group).num_rows for group in range(told.num_row_groups)]
        if not all(0 <= one <= MOST_GROUP_ROWS for one in rows):
            raise PagesRefused("it has more rows in a group than are written")
        return rows

    def _text_columns(self) -> dict[str, int]:
        """The numbers of the columns with texts, by name."""
        columns = {column.path: (number, column) for number, column in enumerate(self._file.schema)}
        found = {}
        for name in (*TEXTS, *({TOKENS} & columns.keys())):
            number, column = columns.get(name, (0, None))
            if column is None or column.physical_type != "BYTE_ARRAY" or column.max_repetition_level:
                raise PagesRefused(f"it has no column {name}")
            found[name] = number
        return found

    def _require_bounded(self, group: int, column: int) -> None:
        start, length = column_place(self._footer, group, column)
        if start + length > self._size:
            raise PagesRefused("it has pages that lie elsewhere")
        self._source.seek(start)
        pages = self._source.read(length)
        if unpacked_size(pages, self._groups[group]) > MOST_UNPACKED + GROUP_BYTES + 8 * self._groups[group]:
            raise PagesRefused("its texts unpack to more than was ever written")


class TextGroup(NamedTuple):
    """The unpacked texts of a group, still as Arrow arrays: most are never looked at."""

    segment: SegmentFile
    texts: Any
    reasonings: Any
    tokens: Any = None

    @property
    def size(self) -> int:
        """Bytes of memory it takes."""
        return int(self.texts.nbytes + self.reasonings.nbytes + (0 if self.tokens is None else self.tokens.nbytes))

    def at(self, row: int) -> AnswerTexts:
        """The texts of a row."""
        try:
            packed = None if self.tokens is None else self.tokens[row].as_py()
            found = AnswerTexts(self.texts[row].as_py(), self.reasonings[row].as_py(), packed)
        except (ValueError, IndexError) as error:
            raise self.segment.refused(str(error)) from error
        if not all(one is None or isinstance(one, str) for one in found[:2]) or not isinstance(packed, bytes | None):
            raise self.segment.refused("its texts are none")
        return found


class KeptGroups:
    """A cache of the groups that were read last."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, int], TextGroup] = OrderedDict()
        self._size = 0

    def read(self, segment: SegmentFile, row: int) -> AnswerTexts:
        """The texts in a row of a segment, from the cache if possible."""
        group, at = segment.find_group(row)
        key = segment.name, group
        if key not in self._groups:
            self._make_room()
            self._groups[key] = segment.read(group)
            self._size += self._groups[key].size
        self._groups.move_to_end(key)
        return self._groups[key].at(at)

    def _make_room(self) -> None:
        """Evict groups, before another is read: it may be as large as the cache."""
        while self._groups and self._size > MOST_KEPT:
            self._size -= self._groups.popitem(last=False)[1].size
