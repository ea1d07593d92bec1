"""Reads tables with one row per trial (CSV, JSONL or Parquet), including those of `adaptive-eval export`.

model, question               the model, and the id of the question
trial                         the trial's number; by default in the order of the rows
category | score | correct    the grade: a category of the rubric, a weight, or whether it is right
text, reasoning               what the model wrote, to be graded if there is no grade
prompt, answer, choices, cluster, task
                              the question
seed, finish_reason, flags, extracted, signals, grader_error, prompt_tokens, completion_tokens, tokens, usd,
gpu_seconds, latency, ttft, attempts, replica, completion_bpt, prompt_bpt, round
                              further facts

Rows are read one by one, each with its place for messages.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from adaptive_eval.base.imports import load_pyarrow
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.exchange.log_files import (
    ALLOWANCE,
    MOST_BYTES,
    MOST_GROWTH,
    LogFile,
    open_log,
    parse_log_json,
)
from adaptive_eval.exchange.samples import (
    MAX_EXACT_INTEGER,
    NO_ANSWER,
    NOT_LOGGED,
    LoggedQuestion,
    Record,
    logged_answer,
    tidy_text,
    value_of_score,
)
from adaptive_eval.exchange.tables.writer import unescape_formula
from adaptive_eval.graders.types import FLAGS, SignalValue
from adaptive_eval.questions import readers
from adaptive_eval.questions.load import as_text
from adaptive_eval.store.forms import MAX_TRIALS

Row = Mapping[str, Any]
Rows = Iterator[tuple[str, Row]]
PARQUET_MAGIC = b"PAR1"
BOM = b"\xef\xbb\xbf"
HEAD_BYTES, MAX_HEADER_BYTES = 4096, 2**16
BATCH_ROWS, BATCH_BYTES = 64, 4 * MOST_BYTES
"""Limits of a batch of Parquet rows: rows, and approximate bytes of a column (a row may have a thousand answers)."""
BUFFER_BYTES = 2**20
"""Bytes to read at once of each column of a Parquet file, instead of a whole row group."""
MAX_NESTED_VALUES = 2**24
"""Maximum list values in a row group, which may all be in one row."""
LIMITS = {
    "seed": (NOT_LOGGED, MAX_TRIALS),
    "value": (-MAX_EXACT_INTEGER, MAX_EXACT_INTEGER),
    **dict.fromkeys(("round", "attempts"), (0, MAX_TRIALS)),
    **dict.fromkeys(("completion_bpt", "prompt_bpt"), (-1, MAX_EXACT_INTEGER)),
}
"""Minimum and maximum by column; those of other columns are 0 and `MAX_EXACT_INTEGER`."""


def first_bytes(file: LogFile) -> bytes:
    """The beginning of a file without byte order mark and white space, to choose a reader."""
    with open_log(file) as handle:
        return handle.read(HEAD_BYTES).removeprefix(BOM).lstrip()


def json_rows(file: LogFile) -> Rows:
    """Read the objects of a JSONL file, whose lines are split only at line feeds."""
    with open_log(file) as handle:
        size = max(handle.seek(0, 2), 1)
        handle.seek(0)
        for number, line in enumerate(iter(partial(handle.readline, MOST_BYTES), b""), start=1):
            place, file.share = f"line {number}", handle.tell() / size
            if len(line) == MOST_BYTES:
                raise file.refuse(f"is longer than {MOST_BYTES:,} bytes", place)
            if not line.strip():
                continue
            row = parse_log_json(file, line.removeprefix(BOM) if number == 1 else line, place, is_row=True)
            if not isinstance(row, dict):
                raise file.refuse("is not a JSON object; a JSONL file has one per line", place)
            yield place, row


def csv_columns(file: LogFile) -> frozenset[str]:
    """The column names of a CSV file."""
    with open_log(file) as handle:
        line = handle.readline(MAX_HEADER_BYTES)
    try:
        return frozenset(next(csv.reader([line.decode("utf-8-sig")]), []))
    except (csv.Error, UnicodeDecodeError) as error:
        raise file.refuse("must be UTF-8 text with a header of comma-separated names", "line 1") from error


def csv_rows(file: LogFile) -> Rows:
    """Read the rows of a CSV file; empty cells are left out, as is the apostrophe of an export before a formula."""
    with open_log(file) as handle:
        size = max(handle.seek(0, 2), 1)
        handle.seek(0)
        text = io.TextIOWrapper(handle, encoding="utf-8-sig", newline="")
        try:
            for place, row, problem in readers.csv_rows(text, MOST_BYTES):
                if problem is not None:
                    raise file.refuse(problem, place)
                file.share = handle.tell() / size
                read = unescape_formula if row.keys() >= EXPORT_COLUMNS else str
                yield place, {key: read(value) for key, value in row.items() if value != ""}
        except UnicodeDecodeError as error:
            raise file.refuse("is not UTF-8; save it as UTF-8") from error
        except ValueError as error:
            raise file.refuse(str(error)) from error
        finally:
            text.detach()  # `open_log` closes the file


def parquet_rows(file: LogFile, columns: Sequence[str]) -> Rows:
    """Read the named columns of each row of a Parquet file; they may be nested (`a.b`) or missing."""
    pyarrow, parquet = load_pyarrow()
    try:
        with parquet.ParquetFile(file.path, buffer_size=BUFFER_BYTES, pre_buffer=False) as table:
            batch_size = _batch_size(file, table.metadata, columns)
            number, count = 0, max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(batch_size=batch_size, columns=columns):
                for row in _batch_rows(file, batch, number):
                    number += 1
                    if row is None:
                        raise file.refuse(f"is longer than {MOST_BYTES:,} bytes", f"row {number}")
                    file.share = number / count
                    yield f"row {number}", row
    except OSError as error:
        raise file.refuse(f"cannot be read: {error}") from error
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise file.refuse(f"is a damaged or truncated Parquet file: {error}") from error


def _batch_size(file: LogFile, metadata: Any, columns: Sequence[str]) -> int:
    """Number of rows to load at once: a column may repeat a large text in each row, or have a long list in a row.

    Raises `LogError` for a file that claims far more than its size allows.
    """
    max_bytes, largest = ALLOWANCE + MOST_GROWTH * file.path.stat().st_size, 1
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            part = group.column(place)
            if not f"{part.path_in_schema}.".startswith(tuple(f"{column}." for column in columns)):
                continue  # a nested column has paths such as `doc.choices.list.element`
            claims = max(part.num_values, part.total_uncompressed_size)
            if claims > max_bytes or (part.num_values > max(group.num_rows, MAX_NESTED_VALUES)):
                raise file.refuse(
                    f"claims {part.num_values:,} values of {part.total_uncompressed_size:,} bytes in the column "
                    f"{part.path_in_schema[:80]}, far more than its size allows"
                )
            largest = max(largest, part.total_uncompressed_size)
    return max(1, min(BATCH_ROWS, BATCH_BYTES // largest))


def _batch_rows(file: LogFile, batch: Any, before: int) -> Iterator[Row | None]:
    """The rows of an Arrow batch, after `before` others; None for a row that is too long.

    Long rows are converted one by one. Raises `LogError` for values without a Python equivalent.
    """
    is_long = batch.nbytes > MOST_BYTES
    parts = (batch.slice(at, 1) for at in range(batch.num_rows)) if is_long else [batch]
    try:
        for part in parts:
            if is_long and part.nbytes > MOST_BYTES:
                yield None
            else:
                yield from part.to_pylist()
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError, ArithmeticError, TypeError, LookupError) as error:
        place = f"row {before + 1}" + (f" to {before + batch.num_rows}" if batch.num_rows > 1 else "")
        raise file.refuse(f"has a value that cannot be read: {error}", place) from error


def parquet_columns(file: LogFile) -> frozenset[str]:
    """The column names of a Parquet file."""
    pyarrow, parquet = load_pyarrow()
    try:
        return frozenset(parquet.read_schema(file.path).names)
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise file.refuse(f"is a damaged or truncated Parquet file: {error}") from error


GRADES = ("category", "label", "value", "score", "correct")
TEXTS = ("text", "reasoning", "prompt", "answer", "choices", "cluster", "task", "finish_reason", "flags", "extracted")
NUMBERS = ("prompt_tokens", "completion_tokens", "tokens", "usd", "gpu_seconds", "latency", "ttft")
FURTHER = ("signals", "grader_error", "attempts", "replica", "completion_bpt", "prompt_bpt", "round", "seed", "trial")
COLUMNS = frozenset({"model", "question", *GRADES, *TEXTS, *NUMBERS, *FURTHER})
"""The columns that are read."""
EXPORT_COLUMNS = frozenset({"model", "question", "trial", "round", "seed", "attempts", "replica"})
"""Columns in every row that `adaptive-eval export` writes."""
Number = TypeVar("Number", int, float)


def record_of_row(file: LogFile, place: str, row: Row) -> Record:
    """Convert a row to a trial; raises `LogError` if a value is invalid."""
    return _Row(file, place, row).record()


class _Row:
    """Converts a row, checking each value."""

    def __init__(self, file: LogFile, place: str, row: Row) -> None:
        self._file, self._place, self._row = file, place, row

    def record(self) -> Record:
        said = self._said()
        value, category, error = self._grade(said)
        answer, is_own_export = self._answer(), self._row.keys() >= EXPORT_COLUMNS
        return Record(
            place=self._place,
            model=self._file.name_model(as_text(self._row.get("model")).strip(), self._place) or self._named("model"),
            question=self._named("question"),
            trial=self._number("trial", int),
            task=self._text("task") or "",
            asked=self._question(),
            answer=answer,
            has_text=self._row.get("text") is not None,
            category=category,
            label=None if category is None else self._text("label"),
            value=value,
            said=None if category is None else next(iter(said.values()), None),
            signals=self._signals(),
            extracted=self._text("extracted"),
            grader_error=error,
            cost=Cost(
                self._number("tokens", int) or 0,
                self._number("usd", float) or 0.0,
                self._number("gpu_seconds", float) or 0.0,
            ),
            round=self._number("round", int) or 0,
            identity=f"{answer.seed} {category}" if is_own_export and answer is not None else None,
            is_own_export=is_own_export,
        )

    def _said(self) -> dict[str, float | None]:
        """What the columns `score` and `correct` say, None for no number; without empty ones."""
        given = {name: self._row.get(name) for name in ("score", "correct")}
        said = {name: value_of_score(value) for name, value in given.items() if value is not None}
        if set(said.values()) == {0.0, 1.0}:
            raise self._log_error(
                f"score is {as_text(given['score']):.80}, and correct {as_text(given['correct']):.80}; remove the "
                "wrong one of these columns"
            )
        return said

    def _grade(self, said: Mapping[str, float | None]) -> tuple[float | None, int | None, str | None]:
        """The weight or the category of the trial, or why it has none."""
        category = self._number("category", int)
        if category is not None:
            return self._number("value", float), category, None
        for name, value in said.items():
            if value is None:
                given = as_text(self._row[name])
                raise self._log_error(f"{name} must be a number, or true or false, but got {given:.80}")
            return value, None, None
        error = self._text("grader_error")
        if error is None and self._row.get("text") is None:
            raise self._log_error("must have a category, a score, correct, or a text to be graded")
        return None, None, error

    def _question(self) -> LoggedQuestion:
        choices = self._row.get("choices")
        if isinstance(choices, str):
            choices = self._json("choices", choices)
        if not isinstance(choices, list | tuple | None):
            raise self._log_error("choices must be a list, as JSON")
        return LoggedQuestion(
            self._text("prompt") or "",
            self._text("answer") or "",
            tuple(map(as_text, choices or ())),
            self._text("cluster"),
        )

    def _answer(self) -> Answer | None:
        """The answer with all known facts; None if the table has only grades."""
        text = self._text("text")
        if text is None and not self._row.keys() & {"finish_reason", "seed"}:
            return None
        answer = NO_ANSWER if text is None else logged_answer(text, reasoning=self._text("reasoning"))
        flags, seed = self._text("flags"), self._number("seed", int)
        return replace(
            answer,
            finish_reason=tidy_text(self._text("finish_reason") or answer.finish_reason),
            seed=NOT_LOGGED if seed is None else seed,
            replica=tidy_text(self._text("replica") or answer.replica),
            latency=self._number("latency", float) or 0.0,
            prompt_tokens=self._number("prompt_tokens", int) or 0,
            completion_tokens=self._number("completion_tokens", int) or 0,
            ttft=self._number("ttft", float),
            attempts=self._number("attempts", int) or 1,
            completion_bpt=self._number("completion_bpt", float),
            prompt_bpt=self._number("prompt_bpt", float),
            signals=answer.signals if flags is None else self._flags(flags),
        )

    def _flags(self, flags: str) -> frozenset[Any]:
        given = frozenset(flags.split())
        if unknown := given.difference(FLAGS):
            allowed = ", ".join(sorted(FLAGS))
            raise self._log_error(
                f"flags must be some of {allowed}, separated by spaces, but got {', '.join(sorted(unknown))}"
            )
        return given

    def _signals(self) -> Mapping[str, SignalValue]:
        given = self._row.get("signals")
        value = self._json("signals", given) if isinstance(given, str) else given
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(
            isinstance(item, bool | int | float | str) for item in value.values()
        ):
            raise self._log_error("signals must be a mapping of names to numbers, texts, true or false")
        return value

    # -- single values --------------------------------------------------------------------------------------------

    def _named(self, key: str) -> str:
        name = as_text(self._row.get(key)).strip()
        if not name:
            raise self._log_error(f"{key} must be given")
        return name

    def _text(self, key: str) -> str | None:
        value = self._row.get(key)
        return None if value is None else as_text(value)

    def _number(self, key: str, kind: type[Number]) -> Number | None:
        value = self._row.get(key)
        if value is None:
            return None
        try:
            number = float(value) if isinstance(value, str | int | float) else float("nan")
        except (OverflowError, ValueError):
            number = float("nan")
        if not abs(number) <= MAX_EXACT_INTEGER or (kind is int and not number.is_integer()):
            what = "a whole number" if kind is int else "a number"
            raise self._log_error(f"{key} must be {what}, but got {as_text(value):.80}")
        low, high = LIMITS.get(key, (0, MAX_EXACT_INTEGER))
        if not low <= number <= high:
            limits = f"be from {low} to {high}" if key in LIMITS else "not be negative"
            raise self._log_error(f"{key} must {limits}, but got {as_text(value):.80}")
        return kind(number)

    def _json(self, key: str, text: str) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._log_error(f"{key} is not JSON") from error

    def _log_error(self, problem: str) -> Exception:
        return self._file.refuse(problem, self._place)
