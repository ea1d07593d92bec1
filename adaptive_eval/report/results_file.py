"""Read and write results.json.

Writing is atomic: even after a power failure a reader finds the old file or the new one. The last field is `checksum`,
the CRC-32 of the file without it.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, TypeAdapter, ValidationError

from adaptive_eval.base.files import read_file, write_atomic
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.report.gate import OUTCOMES
from adaptive_eval.report.question_rows import CountedRows
from adaptive_eval.report.results import FORMAT, Results, Unjudged

RESULTS_FILE = "results.json"
MAX_BYTES = 2**30
"""More than the file of a million questions has."""
MAX_NUMBER = 1e100


def read_results(directory: Path) -> Results | None:
    """Read the file in `directory`; None before the first look, or if it is damaged or of an unknown version.

    The rows of questions, most of a large file, are left out unread.
    """
    try:
        data = read_file(directory / RESULTS_FILE, MAX_BYTES)
        is_judged = data.startswith(_JUDGED) and _has_valid_checksum(data)
        return _reader().validate_json(_without_rows(data)) if is_judged else None
    except (OSError, ValidationError):
        return None


_JUDGED = b'{"format":%b,' % orjson.dumps(FORMAT)
_BEFORE_ROWS, _AFTER_ROWS = b'],"questions":[{"id":', b'}],"warnings":['
"""Delimiters of the rows. Strings within the file cannot contain them, since their quotes are escaped. Options of a
plug-in may have the first one as JSON, but they stand before the rows."""


def _without_rows(data: bytes) -> bytes:
    before = data.rfind(_BEFORE_ROWS)
    end = data.find(_AFTER_ROWS, max(before, 0))
    return data if before < 0 or end < 0 else data[: before + _BEFORE_ROWS.index(b"{")] + data[end + 1 :]


@cache
def _reader() -> TypeAdapter[Results]:
    return TypeAdapter(Annotated[Results, AfterValidator(_checked)])


def _checked(results: Results) -> Results:
    """The results, if their settings are those that a configuration may have, and all names are known."""
    names = {name for pair in results.pairs for name in (pair.first, pair.second)}
    names |= {name for row in results.gate for name in (row.model, row.baseline)}
    names |= {row.model for row in results.frontier}
    outcomes = {row.outcome for row in results.gate}
    if not results.weights or not names <= {row.name for row in results.models} | {None} or not outcomes <= {*OUTCOMES}:
        raise ValueError("no run has written it")
    given = {name: section for name, section in results.decisions.items() if name in Decisions.model_fields}
    try:
        valid = Decisions.model_validate_json(orjson.dumps(given), strict=True)
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from None
    return replace(results, decisions={**results.decisions, **valid.stated()})


def write_results(directory: Path, results: Results | Unjudged) -> Path:
    """Replace the file in `directory`; on `StoreFull` or `StoreError` the old file stays."""
    path = directory / RESULTS_FILE
    # not indented: with thousands of questions the file is large, and written at every look
    parts = _append_checksum(_json_parts(results))
    write_atomic(path, parts, "Stored answers are intact: fix that and run the same command")
    return path


def to_json(results: Results) -> bytes:
    """The results without their rows of questions, as JSON."""
    return b"".join(_json_parts(replace(results, questions=()))) + b"}"


def from_json(data: bytes) -> Results | None:
    """Results from `to_json`; None if they are of another version, or forged."""
    try:
        if not data.startswith(_JUDGED):
            return None
        results = _reader().validate_json(data, strict=True)
        return results if _has_plausible_numbers(orjson.loads(data)) else None  # which is not nested deeply, then
    except ValueError:
        return None


def _has_plausible_numbers(value: Any) -> bool:
    """Whether sums and squares of all numbers are numbers, too."""
    if isinstance(value, dict):
        return all(map(_has_plausible_numbers, value.values()))
    if isinstance(value, list):
        return all(map(_has_plausible_numbers, value))
    return not isinstance(value, int | float) or abs(value) < MAX_NUMBER


def _json_parts(results: Results | Unjudged) -> Iterator[bytes]:
    """JSON of the results, part by part, without the last bracket."""
    for number, field in enumerate(fields(results)):
        value = getattr(results, field.name)
        yield b'%b"%b":' % (b"," if number else b"{", field.name.encode())
        if isinstance(value, CountedRows):
            yield b"["
            for place, part in enumerate(value.parts()):
                yield b"," + part if place else part
            yield b"]"
        else:
            yield orjson.dumps(value)


def _append_checksum(members: Iterable[bytes]) -> Iterator[bytes]:
    crc = 0
    for part in members:
        crc = zlib.crc32(part, crc)
        yield part
    yield b',"checksum":%d}\n' % zlib.crc32(b"}", crc)


_CHECKSUM = re.compile(rb',"checksum":([0-9]{1,10})}\n\Z')


def is_intact(directory: Path) -> bool | None:
    """Whether the file matches its checksum; None if there is no file."""
    try:
        return _has_valid_checksum(read_file(directory / RESULTS_FILE, MAX_BYTES))
    except OSError:
        return None


def _has_valid_checksum(data: bytes) -> bool:
    match = _CHECKSUM.search(data[-40:])
    return match is not None and zlib.crc32(b"}", zlib.crc32(memoryview(data)[: -len(match[0])])) == int(match[1])
