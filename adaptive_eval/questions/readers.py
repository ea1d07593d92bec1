"""Reads rows of question files and data sets, each with its place so that errors can name the line.

Values are kept as written: numbers with a decimal point are `Decimal` (0.10 stays 0.10), and integers have any size.
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.imports import load_attribute, load_extra, load_pyarrow
from adaptive_eval.questions.types import FORMATS, Format, QuestionsConfig

SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""Wrong separators in files named CSV."""
HUB = "Hugging Face data sets"
HUB_SECONDS = 4.0
"""Seconds within which the hub must respond."""
NO_HUB = "the Hugging Face hub cannot be reached"


class FileRow(NamedTuple):
    """A row with its place; `problem` says why it cannot be used, if so."""

    place: str
    fields: Mapping[str, Any]
    problem: str | None = None


def read_rows(config: QuestionsConfig, folder: Path) -> Iterator[FileRow]:
    """Read the rows of the configured source, in order."""
    if config.dataset is not None:
        return _dataset(config)
    if config.function is not None:
        return _function(config.function, config.options, folder)
    if config.world is not None:
        return _world(config.world)
    assert config.path is not None, "a section without a source does not validate"
    path = folder / config.path
    return _read_file(path, READERS[FORMATS[path.suffix.lower()]])


def _read_file(path: Path, reader: Callable[[Path], Iterator[FileRow]]) -> Iterator[FileRow]:
    try:
        if path.is_dir():
            raise ConfigError(f"questions.path: {path} is a folder; name a file in it")
        if not path.exists():
            raise ConfigError(
                f"questions.path: there is no file {path}; give a path from the folder of the configuration"
            )
        yield from reader(path)
    except OSError as error:
        raise ConfigError(
            f"questions.path: {path} cannot be read: {error.strerror or error}; let it be read, or name another file"
        ) from error


def _json(path: Path) -> Iterator[FileRow]:
    """Read an array of objects, or one object a line."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not text.lstrip().startswith(b"["):
        # split only at line feeds: str.splitlines would also split at U+2028, which a question may contain
        lines = ((f"line {number}", line) for number, line in enumerate(text.split(b"\n"), start=1) if line.strip())
        yield from (_json_row(place, line) for place, line in lines)
        return
    try:
        entries = _parse_json(text)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    for number, entry in enumerate(entries, start=1):
        problem = None if isinstance(entry, dict) else f"holds {_type_name(entry)}, not an object"
        yield FileRow(f"entry {number}", {} if problem else entry, problem)


def _json_row(place: str, line: bytes) -> FileRow:
    try:
        value = _parse_json(line)
    except ValueError as error:
        return FileRow(place, {}, str(error))
    if not isinstance(value, dict):
        return FileRow(place, {}, f"holds {_type_name(value)}, not an object; a JSONL file has one object a line")
    return FileRow(place, value)


def _parse_json(raw: bytes) -> Any:
    """Parse JSON; the message of a `ValueError` says what is wrong, and how to mend it."""
    try:
        return json.loads(raw.decode(), parse_float=Decimal, parse_int=_integer, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}; write an array of objects, or one object a line") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply to be read") from error


def _integer(digits: str) -> int | str:
    """Parse an integer; a very long one stays text, since Python limits conversion (`sys.get_int_max_str_digits`)."""
    return int(digits) if len(digits) < sys.int_info.str_digits_check_threshold else digits


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _type_name(value: object) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")


def _csv(path: Path) -> Iterator[FileRow]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        if not text:
            raise ValueError("is empty, but must have a header and a line for each question")
        yield from csv_rows(io.StringIO(text, newline="\n"), sys.maxsize)  # split only at line feeds
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


SHOWN = 500
"""Characters shown of a header."""
MOST_COMMAS = 2**20
"""Most commas in a row of a CSV text: a text that a model wrote has some thousands."""


class _RowLines:
    """The lines of a text, bounded for each row; raises `csv.Error` for a row beyond that."""

    def __init__(self, text: IO[str], most: int) -> None:
        self._text, self._most = text, most
        self._size = self._commas = self.number = 0

    def begin_row(self) -> None:
        """Count from here."""
        self._size = self._commas = 0

    def __iter__(self) -> "_RowLines":
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._most)
        if not line:
            raise StopIteration
        self.number += 1
        self._size += len(line)
        self._commas += line.count(",")
        if self._size >= self._most or self._commas > MOST_COMMAS:
            most = f"{self._most:,} characters" if self._size >= self._most else f"{MOST_COMMAS:,} commas"
            raise csv.Error(f"a row has more than {most}; a quotation mark may be missing")
        return line


def csv_rows(text: IO[str], most: int) -> Iterator[FileRow]:
    """The rows of a CSV text with less than `most` characters in a row; raises `ValueError` for a wrong header."""
    lines = _RowLines(text, most)
    limit, reader = csv.field_size_limit(most), csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise ValueError(f"line 1: needs a header with the name of each column once, but got {str(header)[:SHOWN]}")
        if len(header) == 1 and (other := [name for mark, name in SEPARATORS.items() if mark in header[0]]):
            raise ValueError(f"line 1: must separate its columns by commas, but has {other[0]}; save it so")
        end = reader.line_num
        lines.begin_row()
        for values in reader:
            place, end = f"line {end + 1}", reader.line_num
            lines.begin_row()
            if values and len(values) != len(header):
                problem = f"has {len(values)} values, but the header has {len(header)}; quote what holds commas"
                yield FileRow(place, {}, problem)
            elif values:
                yield FileRow(place, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        yield FileRow(f"line {lines.number}", {}, f"is not CSV: {error}")
    finally:
        csv.field_size_limit(limit)


def _parquet(path: Path) -> Iterator[FileRow]:
    pyarrow, parquet = load_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for fields in batch.to_pylist():
                    number += 1
                    yield FileRow(f"row {number}", fields)
    except pyarrow.ArrowException as error:
        raise ConfigError(f"{path}: is not a Parquet file that can be read: {error}") from error


def _dataset(config: QuestionsConfig) -> Iterator[FileRow]:
    datasets, away = load_extra("datasets", "hf", HUB), use_cache_without_hub()
    try:
        table = datasets.load_dataset(config.dataset, name=config.subset, split=config.split, revision=config.revision)
    except Exception as error:  # it raises errors of many libraries, each of which means that there are no questions
        raise ConfigError(f"questions.dataset: {config.dataset!r} could not be loaded: {error}{away}") from error
    for number, fields in enumerate(table, start=1):
        yield FileRow(f"row {number}", fields)


def use_cache_without_hub() -> str:
    """Use only cached data sets if the hub does not respond, to save half a minute; returns a clause that says so."""
    if hub_answers():
        return ""
    hub, datasets = load_extra("huggingface_hub", "hf", HUB), load_extra("datasets", "hf", HUB)
    hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    return f"; {NO_HUB}"


def hub_answers() -> bool:
    """Whether the Hugging Face hub can be reached."""
    hub = load_extra("huggingface_hub", "hf", HUB)
    try:
        hub.get_session().head(hub.constants.ENDPOINT, timeout=HUB_SECONDS)
    except Exception:  # depends on the HTTP client of the library
        return False
    return True


def _function(name: str, options: Mapping[str, Any], folder: Path) -> Iterator[FileRow]:
    """The rows that a user's function returns; like a grader, it is called in the configuration's folder."""
    function: Any = load_attribute(name, folder)
    with chdir(folder):
        try:
            rows = list(function(**options))
        except ConfigError:
            raise
        except Exception as error:  # the user's function may raise anything
            raise ConfigError(f"questions.function: {name} raised {type(error).__name__}: {error}") from error
    for number, fields in enumerate(rows, start=1):
        problem = None if isinstance(fields, Mapping) else f"is {fields!r:.80}, not a mapping"
        yield FileRow(f"row {number}", {} if problem else fields, problem)


def _world(name: str) -> Iterator[FileRow]:
    from adaptive_eval.simulate.answering import question_rows
    from adaptive_eval.simulate.worlds import WORLDS

    if name not in WORLDS:
        raise ConfigError(f"questions.world: there is no world {name!r}; the worlds are {', '.join(WORLDS)}")
    for number, fields in enumerate(question_rows(WORLDS[name]()), start=1):
        yield FileRow(f"question {number}", fields)


READERS: dict[Format, Callable[[Path], Iterator[FileRow]]] = {
    "jsonl": _json,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
}
