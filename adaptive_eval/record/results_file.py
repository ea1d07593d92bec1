"""results.json, read and written.

A reader finds the whole old file or the whole new one, even after a power failure. After the fields of `Results` it has
`checksum`: the CRC-32 of the file as it is without it.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.files import read_whole, write_whole
from adaptive_eval.record.question_rows import QuestionRows, WrittenRows
from adaptive_eval.record.results import FORMAT, FROM_0_FORMAT, UNJUDGED_FORMAT, Results, Unjudged

RESULTS_FILE = "results.json"
MOST_BYTES = 2**30
"""Larger than that of a million questions."""


def read_results(directory: Path, *, rows: bool = True) -> Results | None:
    """The file in `directory`; None before the first look, and where it is of another version or damaged.

    Without `rows` there are none of questions, which are most of a large file, and nobody has looked at them.
    """
    try:
        data = read_whole(directory / RESULTS_FILE, MOST_BYTES)
        return None if data.startswith(_UNJUDGED) or _is_whole(data) is False else _parse_file(data, rows)
    except (OSError, ValidationError):
        return None


_UNJUDGED = b'{"format":%b,' % orjson.dumps(UNJUDGED_FORMAT)
_BEFORE_ROWS, _AFTER_ROWS = b'],"questions":[{"id":', b'}],"warnings":['
"""No text within the file has one of them: its quotes have a backslash before them. What a plug-in is told may have the
first one, but stands before the rows."""


def _parse_file(data: bytes, rows: bool) -> Results:
    """Parse the file; its rows of questions are parsed when they are wanted, if they are as written here."""
    before = data.rfind(_BEFORE_ROWS)
    begin, end = before + _BEFORE_ROWS.index(b"{"), data.find(_AFTER_ROWS, max(before, 0)) + 1
    if before >= 0 and end > 0:
        written = WrittenRows.within(data, begin, end) if rows else ()
        if written is not None:
            return replace(_results(data[:begin] + data[end:]), questions=written)
    found = _results(data)
    return found if rows else replace(found, questions=())


def _results(data: bytes) -> Results:
    found = _reader().validate_json(data)
    if found.format != FROM_0_FORMAT:
        return found
    return replace(found, format=FORMAT, looks=tuple(replace(one, look=one.look + 1) for one in found.looks))


@cache
def _reader() -> TypeAdapter[Results]:
    return TypeAdapter(Results)


def write_results(directory: Path, results: Results | Unjudged) -> Path:
    """Replace the file in `directory`; raises `StoreFull` or `StoreError`, and leaves the old file as it was."""
    path = directory / RESULTS_FILE
    # not indented: with thousands of questions the file is large, and written at every look
    write_whole(path, _sealed(_members(results)), "What was committed is intact: mend that and run the same command")
    return path


def _members(results: Results | Unjudged) -> Iterator[bytes]:
    """The JSON of the results up to the bracket that ends it, part by part."""
    for number, field in enumerate(fields(results)):
        value = getattr(results, field.name)
        yield b'%b"%b":' % (b"," if number else b"{", field.name.encode())
        if isinstance(value, QuestionRows):
            for place, part in enumerate(value.parts()):
                yield (b"," if place else b"[") + part
            yield b"]" if value else b"[]"
        else:
            yield orjson.dumps(value)


def _sealed(members: Iterable[bytes]) -> Iterator[bytes]:
    crc = 0
    for part in members:
        crc = zlib.crc32(part, crc)
        yield part
    yield b',"checksum":%d}\n' % zlib.crc32(b"}", crc)


_CHECKSUM = re.compile(rb',"checksum":([0-9]{1,10})}\n\Z')


def is_whole(directory: Path) -> bool | None:
    """Whether the file is what was written; None where there is none, or it is from before it had a checksum."""
    try:
        return _is_whole(read_whole(directory / RESULTS_FILE, MOST_BYTES))
    except OSError:
        return None


def _is_whole(data: bytes) -> bool | None:
    found = _CHECKSUM.search(data[-40:])
    if found is None:
        return None if data.endswith(b"}\n") and b"checksum" not in data[-40:] else False
    return zlib.crc32(b"}", zlib.crc32(memoryview(data)[: -len(found[0])])) == int(found[1])
