"""Finds the unpacked size of a column of a Parquet file from its page headers, before anything is unpacked.

The size that a Parquet file declares for a row group is not binding: a page of a few bytes may unpack to gigabytes, and
a dictionary or a shared prefix may stand for one text a million times. The size in a page's own header is binding,
since a page is unpacked into a buffer of exactly that size. So the headers, structs of Thrift's compact protocol, are
parsed here, and only pages of plain values are accepted: their values are no longer than the page. The position of a
column is parsed here, too, since pyarrow aborts the whole process if the footer gives an impossible one.
"""

from typing import Any, NamedTuple

MOST_HEADER = 64 * 1024
"""Largest page header in bytes: one has some twenty, and more only with statistics, which are not written here."""
MOST_DEPTH = 4
DATA_PAGE, PLAIN = 0, 0
_TYPE, _UNPACKED, _PACKED, _DATA = 1, 2, 3, 5
_VALUES, _ENCODING = 1, 2
"""Field numbers of a PageHeader, and of the DataPageHeader in it."""
_GROUPS, _COLUMNS, _META, _LENGTH, _OFFSET, _DICTIONARY = 4, 1, 3, 7, 9, 11
"""Field numbers of a FileMetaData, a RowGroup in it, a ColumnChunk in that, and its ColumnMetaData."""


class PagesRefused(ValueError):
    """The pages do not hold plain values, or not as many as declared."""


class ColumnPlace(NamedTuple):
    """The position of a column's pages in the file."""

    start: int
    length: int


def parse_footer(data: bytes) -> dict[int, Any]:
    """Parse a file's footer into fields by number; raises `PagesRefused`."""
    try:
        return _struct(data, 0, 0, 0)[0]
    except IndexError:
        raise PagesRefused("has a footer that is cut off") from None


def column_place(footer: dict[int, Any], group: int, column: int) -> ColumnPlace:
    """The position of a column of a row group, from the footer; raises `PagesRefused`."""
    try:
        meta = footer[_GROUPS][group][_COLUMNS][column][_META]
        place, apart = ColumnPlace(meta[_OFFSET], meta[_LENGTH]), meta.get(_DICTIONARY)
    except (IndexError, KeyError, TypeError, AttributeError):
        raise PagesRefused("has a footer that does not say where its pages are") from None
    if apart is not None or not all(isinstance(one, int) and one >= 0 for one in place):
        raise PagesRefused("has pages that lie elsewhere")
    return place


def unpacked_size(pages: bytes, rows: int) -> int:
    """Bytes that the pages of one column unpack to; raises `PagesRefused`."""
    at, total, values = 0, 0, 0
    while at < len(pages):
        header, at = _header(pages, at)
        data = header.get(_DATA)
        unpacked, packed = header.get(_UNPACKED), header.get(_PACKED)
        if header.get(_TYPE) != DATA_PAGE or not isinstance(data, dict) or data.get(_ENCODING) != PLAIN:
            raise PagesRefused("has pages of another kind than are written here")
        if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
            raise PagesRefused("has a page without a size")
        number = data.get(_VALUES)
        values += number if isinstance(number, int) and number >= 0 else rows + 1
        total, at = total + unpacked, at + packed
    if at != len(pages) or values != rows:
        raise PagesRefused("has pages of other rows than it says")
    return total


def _header(pages: bytes, at: int) -> tuple[dict[int, Any], int]:
    try:
        return _struct(pages[at : at + MOST_HEADER], 0, at, 0)
    except IndexError:
        raise PagesRefused("has a page whose header is cut off") from None


def _struct(data: bytes, at: int, start: int, depth: int) -> tuple[dict[int, Any], int]:
    """Parse a struct into fields by number; also returns its end, counted from `start`."""
    if depth > MOST_DEPTH:
        raise PagesRefused("has a page whose header is nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, start + at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        data[at]
        return None, at + 1
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 7:
        return None, _within(data, at + 8)
    if kind == 8:
        length, at = _unsigned(data, at)
        return None, _within(data, at + length)
    if kind in (9, 10):
        return _list(data, at, depth)
    if kind == 12:
        return _struct(data, at, 0, depth + 1)
    raise PagesRefused("has a page whose header has maps, which none has")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    size, kind = data[at] >> 4, data[at] & 15
    size, at = _unsigned(data, at + 1) if size == 15 else (size, at + 1)
    found: list[Any] = []
    for _ in range(size):  # bounded by the data, since each takes at least a byte
        one, at = (data[at], at + 1) if kind in (1, 2) else _value(data, at, kind, depth)
        found.append(one)
    return found, at


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError(at)
    return at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Parse a zigzag integer, in which 0, -1, 1, -2 ... are encoded as 0, 1, 2, 3 ..."""
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Parse an integer of seven bits a byte, lowest first; the highest bit says that more bytes follow."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise PagesRefused("has a page whose header has an endless number")
