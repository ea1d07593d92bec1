"""Chooses the reader of a file by its content; file names matter only when a folder is searched."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.files import real_path
from adaptive_eval.config.load import YAML
from adaptive_eval.exchange import harnesses, inspect_log, recording
from adaptive_eval.exchange.log_files import (
    MOST_BYTES,
    MOST_FILE,
    Archive,
    LogError,
    LogFile,
    open_log,
    parse_log_json,
    read_file,
)
from adaptive_eval.exchange.samples import Record, mapping
from adaptive_eval.exchange.tables import reader as long_form
from adaptive_eval.exchange.tables.reader import (
    BOM,
    PARQUET_MAGIC,
    Row,
    Rows,
    csv_columns,
    csv_rows,
    first_bytes,
    json_rows,
    parquet_columns,
    parquet_rows,
)

Records = Iterator[Record]

ENDINGS = (".eval", ".json", ".jsonl", ".ndjson", ".csv", ".parquet", ".npz")
SKIPPED = re.compile(r"results_.*\.json|.*logs\.json|eval-set\.json|\..*")
"""Names of other files that harnesses write next to their logs."""


LOGS = "Inspect logs (.eval, .json), samples of lm-eval, .npz arrays"
"""Names of the formats that are read besides plain tables, for messages."""
READABLE_FORMATS = (
    f"supported are {LOGS}, and CSV, JSONL or Parquet with one row per trial and the columns model, question, and "
    "one of category, score, correct and text"
)
MAX_COLUMNS_TEXT = 500
"""Characters of the column names in a message."""
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")


def log_files(
    given: Sequence[str],
    scorer: str | None = None,
    graded_anew: bool = False,
    scorers: Mapping[str, str] = {},
) -> list[LogFile]:
    """The files to import: paths or folders, each optionally with a name for its model as NAME=PATH."""
    files: list[LogFile] = []
    for word in given:
        name, mark, path_text = word.partition("=")
        is_named = bool(mark) and not Path(word).exists()
        path = Path(path_text) if is_named else Path(word)
        paths = _logs_in(path) if path.is_dir() else [path]
        own_names = set[str]()
        files += [
            LogFile(log_path, name if is_named else None, scorer, scorers, graded_anew, own_names=own_names)
            for log_path in paths
        ]
    seen: set[Path] = set()
    for file in files:
        if (real := real_path(file.path)) in seen:
            raise file.refuse("is given twice; give it once")
        seen.add(real)
    return files


def _logs_in(folder: Path) -> list[Path]:
    paths = [path for path in folder.rglob("*") if path.name.endswith(ENDINGS) and not SKIPPED.fullmatch(path.name)]
    if not paths:
        raise ConfigError(f"{folder} contains no log ({', '.join(ENDINGS)})")
    return sorted(paths)


def read_records(file: LogFile) -> Records:
    """Read the trials of a file; raises `LogError`."""
    if file.path.suffix.lower() in YAML:
        raise file.refuse("is a configuration, not a log; give it as --config, and the logs as FILE")
    head = first_bytes(file)
    if head.startswith(ZIP_MAGIC):
        return _read_zip(file)
    if head.startswith(PARQUET_MAGIC):
        columns = parquet_columns(file)
        return _read_table(file, columns, parquet_rows(file, sorted(columns & long_form.COLUMNS)))
    if not head:
        raise file.refuse("is empty")
    if head.startswith((b"{", b"[")):
        return _read_json(file)
    return _read_table(file, csv_columns(file), csv_rows(file))


def _read_zip(file: LogFile) -> Records:
    """Read the samples of an Inspect log, or arrays."""
    with open_log(file) as handle:
        archive = Archive(file, handle)
        if inspect_log.is_inspect(archive):
            yield from inspect_log.read_archive(file, archive)
            return
    if archive.claimed > MOST_FILE:
        raise file.refuse(f"claims arrays of {archive.claimed:,} bytes; at most {MOST_FILE:,} can be read")
    yield from recording.read_tensor(file)


def _read_table(file: LogFile, columns: frozenset[str], rows: Rows) -> Records:
    """Read a table of this project's form."""
    if "question" in columns and ("model" in columns or file.model is not None):
        return (long_form.record_of_row(file, place, row) for place, row in rows)
    names = ", ".join(sorted(columns))[:MAX_COLUMNS_TEXT] or "none"
    raise file.refuse(f"has the columns {names}, which match no supported log; {READABLE_FORMATS}")


def _read_json(file: LogFile) -> Records:
    """Read JSON lines, or a single JSON text."""
    row = _first_line(file)
    if row is None:
        row = mapping(parse_log_json(file, read_file(file)))
    if harnesses.is_samples(row):
        return harnesses.read_samples(file)
    if "eval" in row:
        return inspect_log.read_json(file, row)
    if "results" in row or "config_general" in row:
        raise file.refuse("contains only means; import the trials: samples_*.jsonl of lm-eval")
    return _read_table(file, frozenset(row), json_rows(file))


def _first_line(file: LogFile) -> Row | None:
    """The object on the first line; None if it spans several lines."""
    with open_log(file) as handle:
        line = handle.readline(MOST_BYTES)
    try:
        return mapping(parse_log_json(file, line.removeprefix(BOM)))
    except LogError:
        return None
