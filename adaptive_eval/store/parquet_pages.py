"""Unpacked size of a column of a Parquet file, by the headers of its pages, before anything is unpacked.

A Parquet file says of each row group how large it is, and nothing holds it to that: a page of a few bytes may unpack to
gigabytes, a dictionary or a shared prefix may stand for one text a million times. What stands in a page's own header
does hold, since a page is unpacked into a buffer of exactly that size. So the headers are read here, which are structs
of Thrift's compact protocol, and only pages of plain values are let through: their values are no longer than the page.
Where a column lies is read here, too: pyarrow ends the whole process where the footer says impossible things of one.
"""

from typing import Any, NamedTuple

MOST_HEADER = 64 * 1024
"""Bytes of a page's header: one has some twenty, and statistics, which are not written here."""
MOST_DEPTH = 4
DATA_PAGE, PLAIN = 0, 0
_TYPE, _UNPACKED, _PACKED, _DATA = 1, 2, 3, 5
_VALUES, _ENCODING = 1, 2
"""Fields of a PageHeader, and of the DataPageHeader in it, by their numbers."""
_GROUPS, _COLUMNS, _META, _LENGTH, _OFFSET, _DICTIONARY = 4, 1, 3, 7, 9, 11
"""Fields of a FileMetaData, of a RowGroup in it, of a ColumnChunk in that, and of its ColumnMetaData."""


class PagesRefused(ValueError):
    """The pages do not hold plain values, or not those of the rows that are said to be there."""


class ColumnPlace(NamedTuple):
    """The bytes of the file in which the pages of a column lie."""

    start: int
    length: int


def parse_footer(data: bytes) -> dict[int, Any]:
    """Fields of a file's footer by their numbers; raises `PagesRefused`."""
    try:
        return _struct(data, 0, 0, 0)[0]
    except IndexError:
        raise PagesRefused("has a footer that is cut off") from None


def column_place(footer: dict[int, Any], group: int, column: int) -> ColumnPlace:
    """The position of a column of a row group, by the file's footer; raises `PagesRefused`."""
    try:
        told = footer[_GROUPS][group][_COLUMNS][column][_META]
        place, apart = ColumnPlace(told[_OFFSET], told[_LENGTH]), told.get(_DICTIONARY)
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
    """A struct's fields by number, and where it ends, counted from `start` on."""
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
    for _ in range(size):  # each takes a byte at least, and the data has an end
        one, at = (data[at], at + 1) if kind in (1, 2) else _value(data, at, kind, depth)
        found.append(one)
    return found, at


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError(at)
    return at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag integer: 0, -1, 1, -2 ... are 0, 1, 2, 3 ..."""
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
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
