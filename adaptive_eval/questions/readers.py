"""Reads rows of question files and data sets, with their places, so that errors can name the line.

Values stay as written: numbers with a decimal point are `Decimal` (0.10 stays 0.10), and integers have any size.
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
from adaptive_eval.base.json_objects import RepeatedKey, object_of
from adaptive_eval.questions.types import FORMATS, Format, QuestionsConfig

SEPARATORS = {";": "semicolons", "\t": "tabs"}
"""Other separators that occur in CSV files."""
HUB = "Hugging Face data sets"
HUB_SECONDS = 4.0
"""Timeout for a response of the hub."""
NO_HUB = "the Hugging Face hub cannot be reached"
NO_UTF_8 = "is not UTF-8 (byte {}); save the file as UTF-8"


class FileRow(NamedTuple):
    """A row with its place, and the `problem` if it cannot be used."""

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
            raise ConfigError(f"questions.path: {path} is a folder; give the path of a file")
        if not path.exists():
            raise ConfigError(
                f"questions.path: {path} does not exist; paths are relative to the folder of the configuration"
            )
        yield from reader(path)
    except OSError as error:
        raise ConfigError(
            f"questions.path: {path} cannot be read: {error.strerror or error}; allow access, or use another file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {NO_UTF_8.format(error.start + 1)}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error


def _json(path: Path) -> Iterator[FileRow]:
    """Read an array of objects, or one object per line."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not text.lstrip().startswith(b"["):
        # split only at line feeds: str.splitlines would also split at U+2028, which a question may contain
        lines = ((f"line {number}", line) for number, line in enumerate(text.split(b"\n"), start=1) if line.strip())
        yield from (_json_row(place, line) for place, line in lines)
        return
    for number, entry in enumerate(_parse_json(text), start=1):
        problem = None if isinstance(entry, dict) else f"is {_type_name(entry)}, not an object"
        yield FileRow(f"entry {number}", {} if problem else entry, problem)


def _json_row(place: str, line: bytes) -> FileRow:
    try:
        value = _parse_json(line)
    except ValueError as error:
        return FileRow(place, {}, str(error))
    if not isinstance(value, dict):
        return FileRow(place, {}, f"is {_type_name(value)}, not an object; a JSONL file has one object per line")
    return FileRow(place, value)


def _parse_json(raw: bytes) -> Any:
    """Parse JSON; the message of a `ValueError` has the problem and its fix."""
    try:
        return json.loads(
            raw.decode(),
            parse_float=Decimal,
            parse_int=_integer,
            parse_constant=_refuse_constant,
            object_pairs_hook=object_of,
        )
    except UnicodeDecodeError as error:
        raise ValueError(NO_UTF_8.format(error.start + 1)) from error
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        what = f"{error.msg[0].lower()}{error.msg[1:]}".removesuffix(" starting at")
        rule = f"is not JSON at {line}column {error.colno} ({what})"
        raise ValueError(f"{rule}; write an array of objects, or one object per line") from error
    except RepeatedKey as error:
        raise ValueError(f"has an object with the key {error} twice; remove one of them, or rename it") from error
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}; write an array of objects, or one object per line") from error
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
    text = path.read_bytes().decode("utf-8-sig")
    if not text:
        raise ValueError("is empty, but must have a header and a line for each question")
    yield from csv_rows(io.StringIO(text, newline="\n"), sys.maxsize)  # split only at line feeds


MAX_SHOWN_HEADER = 500
"""Characters shown of a header."""
MAX_COMMAS = 2**20
"""Maximum commas in a row of a CSV text; long answers of models have some thousands."""


class _RowLines:
    """The lines of a text, limited per row; raises `csv.Error` if a row exceeds a limit."""

    def __init__(self, text: IO[str], max_characters: int) -> None:
        self._text, self._max_characters = text, max_characters
        self._size = self._commas = self.number = 0

    def begin_row(self) -> None:
        """Reset the counts."""
        self._size = self._commas = 0

    def __iter__(self) -> "_RowLines":
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._max_characters)
        if not line:
            raise StopIteration
        self.number += 1
        self._size += len(line)
        self._commas += line.count(",")
        if self._size >= self._max_characters or self._commas > MAX_COMMAS:
            limit = f"{MAX_COMMAS:,} commas"
            if self._size >= self._max_characters:
                limit = f"{self._max_characters:,} characters"
            raise csv.Error(f"a row has more than {limit}; a quotation mark may be missing")
        return line


def csv_rows(text: IO[str], max_characters: int) -> Iterator[FileRow]:
    """The rows of a CSV text, limited to `max_characters` per row; raises `ValueError` for an invalid header."""
    lines = _RowLines(text, max_characters)
    limit, reader = csv.field_size_limit(max_characters), csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            shown = str(header)[:MAX_SHOWN_HEADER]
            raise ValueError(f"line 1: needs a header with different names for all columns, but got {shown}")
        if len(header) == 1 and (other := [name for mark, name in SEPARATORS.items() if mark in header[0]]):
            raise ValueError(f"line 1: must separate columns by commas, but has {other[0]}; save it with commas")
        end = reader.line_num
        lines.begin_row()
        for values in reader:
            place, end = f"line {end + 1}", reader.line_num
            lines.begin_row()
            if values and len(values) != len(header):
                problem = f"has {len(values)} values, but the header has {len(header)}; quote values with commas"
                yield FileRow(place, {}, problem)
            elif values:
                yield FileRow(place, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        problem = f"is not CSV: {error}"
        if "new-line character" in problem:  # whose advice is for programmers
            problem = "has a carriage return that ends no line; save the file with the line ends of Unix or Windows"
        yield FileRow(f"line {lines.number}", {}, problem)
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
    """Use only cached data sets if the hub does not respond, which saves half a minute; returns a clause for errors."""
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
    """The rows returned by a user's function, which is called in the configuration's folder, like a grader."""
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
        raise ConfigError(f"questions.world: unknown world {name!r}; the worlds are {', '.join(WORLDS)}")
    for number, fields in enumerate(question_rows(WORLDS[name]()), start=1):
        yield FileRow(f"question {number}", fields)


READERS: dict[Format, Callable[[Path], Iterator[FileRow]]] = {
    "jsonl": _json,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
}
