"""Contract of an importer of a table: a log may hold anything in any place, and what it lacks is not made up."""

import copy
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adaptive_eval.endpoints.types import Answer
from adaptive_eval.exchange.detect import TABLES, TableFormat
from adaptive_eval.exchange.samples import MAX_EXACT_INTEGER, Record
from adaptive_eval.exchange.tables.reader import json_rows
from adaptive_eval.report.log_files import LogError, LogFile
from adaptive_eval.testing.runs import fail_unless
from contracts.elsewhere import check_elsewhere

AMISS: tuple[Any, ...] = (
    None,
    5,
    -1,
    0,
    1,
    1e308,
    10**400,
    math.nan,
    True,
    False,
    "",
    "x",
    "true",
    "false",
    "\ud800",
    "x" * 5000,
    "9" * 17,
    "9" * 5000,  # more digits than Python makes a number of
    [],
    [None],
    {},
    {"": None},
)
"""Values that may stand where something else should."""
STRANGE_COLUMNS = ((), ("a", "b"), ("model", "question", "category"), ("model", "question", "text", "correct"))
"""Columns of no tool's table; the last two are those of our own."""
ALMOST_ALIKE = (
    "org/One",
    "org/one",
    "other/one",
    "one",
    " one",
    "one ",
    "a:one",
    "one@a",
    "one  1",
    "one 1",
    "o" * 300 + "1",
    "o" * 300 + "2",
)
"""Names of several models or questions, which are one where case, spaces, a folder or what comes late is left out."""
PLAIN = "words of a model"
NO_NAMES = ("None", "null")
"""Names that a reader makes of nothing."""
LEFT_OUT = object()
NO_GRADES: tuple[Any, ...] = ("", "x", "x" * 5000, [], [None], {}, {"": None})
"""Values of `AMISS` that are no grade in any tool's words."""
MANY, AHEAD = 3000, 2000
"""Rows of a long table, and of these how many may be read before there is a record."""

Row = Mapping[str, Any]


def check_importer(table: TableFormat, logged: Sequence[tuple[Row, Mapping[str, Any]]]) -> None:
    """Raise AssertionError unless the importer keeps to its contract.

    Args:
        table: The format.
        logged: Rows of the tool, one trial each, with what their records must say: any of `model`, `question`,
            `trial`, `text`, `category`, `value`, and `missing`, whether it is no trial.

    Raises:
        AssertionError: It does not; the message says what is broken, and for which row.

    Example:
        One row of a tool, and what its record must say:

            check_importer(TOOL, [({"llm": "big", "task": "q1", "ok": 1}, {"model": "big", "value": 1.0})])
    """
    fail_unless(
        len(table.name.split()) > 1 and "_" not in table.name,
        f"its name stands in lists for people and must be several plain words, such as 'logs of mine', but is "
        f"{table.name!r}",
    )
    with TemporaryDirectory() as folder:
        reading = _Reading(table, Path(folder) / "log.jsonl")
        _check_recognition(table, [row for row, _ in logged])
        alone = [reading.one(row, expected) for row, expected in logged]
        together = reading.all([row for row, _ in logged] * 2)
        fail_unless(
            [_unplaced(record) for record in together] == [_unplaced(record) for record in alone] * 2,
            f"{table.name}: rows that are read together give other records than each by itself, in their order",
        )
        fail_unless(
            len({record.place for record in together}) == len(together), f"{table.name}: two records have one place"
        )
        _check_memory(reading, logged[0][0])
        for row, record in zip((row for row, _ in logged), alone, strict=True):
            _check_names(reading, row, record)
            _check_names_apart(reading, row, record)
            for path, values in groupby(_amiss(row), key=itemgetter(0)):
                readings = [(value, _check_amiss(reading, row, path, value, changed)) for _, value, changed in values]
                _check_place(table.name, ".".join(map(str, path)), _record_values(record), readings)
            _check_text_kept(reading, row, record)
    check_elsewhere(_facts_of_all, (table, [row for row, _ in logged]), table.name)


def _facts_of_all(table: TableFormat, rows: Sequence[Row]) -> str:
    with TemporaryDirectory() as folder:
        return repr([_record_values(record) for record in _Reading(table, Path(folder) / "log.jsonl").all(rows)])


class _Reading:
    """A table that reads rows from a file."""

    def __init__(self, table: TableFormat, path: Path) -> None:
        self.table, self.path = table, path

    def read(self, rows: Sequence[Row], model: str | None = None) -> list[Record] | LogError:
        """The records of a file with these rows, or its refusal."""
        self.path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        file = LogFile(self.path, model)
        try:
            return list(self.table.read(file, json_rows(file)))
        except LogError as error:
            fail_unless(str(self.path) in str(error), f"{self.table.name}: a refusal names no file: {error}")
            return error
        except Exception as error:  # whatever it is: no log may end an import with a traceback
            raise AssertionError(f"{self.table.name} raises {error!r:.200} for {rows[-1]!r:.300}") from error

    def all(self, rows: Sequence[Row]) -> list[Record]:
        """Records that must be there."""
        records = self.read(rows)
        if isinstance(records, LogError):
            raise AssertionError(f"{self.table.name} refuses {rows[-1]!r:.300}: {records}")
        return records

    def one(self, row: Row, expected: Mapping[str, Any]) -> Record:
        """The record of a row, which must say what is expected."""
        (record,) = self._single(row)
        values = _record_values(record)
        for key, value in expected.items():
            fail_unless(values[key] == value, f"{self.table.name}: {key} must be {value!r}, but is {values[key]!r}")
        _check_record(record, self.table.name, row)
        fail_unless(self.all([row]) == [record], f"{self.table.name} gives another record the second time")
        return record

    def _single(self, row: Row) -> list[Record]:
        records = self.all([row])
        fail_unless(
            len(records) == 1, f"{self.table.name}: a row must give one record, but {row!r:.300} gives {len(records)}"
        )
        return records


def _record_values(record: Record) -> dict[str, Any]:
    """Values of a record, None if unknown; a record that is no trial has neither text nor grade."""
    present = record.missing is None
    return {
        "model": record.model,
        "question": record.question,
        "trial": record.trial,
        "text": record.answer.text if present and record.has_text and record.answer is not None else None,
        "category": record.category if present else None,
        "value": record.value if present else None,
        "missing": not present,
    }


def _unplaced(record: Record) -> Record:
    return record._replace(place="")


def _check_recognition(table: TableFormat, rows: Sequence[Row]) -> None:
    for strange in STRANGE_COLUMNS:
        fail_unless(not table.recognises(frozenset(strange)), f"{table.name} claims a table with the columns {strange}")
    for row in rows:
        columns = frozenset(row)
        fail_unless(table.recognises(columns), f"{table.name} does not recognise the columns of {row!r:.300}")
        for other in TABLES:
            claimed = other.read is not table.read and other.recognises(columns)
            fail_unless(not claimed, f"{table.name}: {other.name} claim the columns of {row!r:.300}")


def _check_names(reading: _Reading, row: Row, record: Record) -> None:
    """The user may name the model (NAME=PATH); the order of keys means nothing."""
    records = reading.read([row], "a name of the user's")
    fail_unless(
        isinstance(records, list) and [named.model for named in records] == ["a name of the user's"],
        f"{reading.table.name}: the name that the user gives the model of a file (`file.model`) must count",
    )
    turned = dict(reversed(list(row.items())))
    fail_unless(reading.all([turned]) == [record], f"{reading.table.name}: the order of columns makes a difference")


def _check_names_apart(reading: _Reading, row: Row, record: Record) -> None:
    """Names that differ are names of two models, or of two questions, however little they differ by."""
    for key in ("model", "question"):
        for path, text in _texts(row):
            if text != getattr(record, key):
                continue
            seen: dict[tuple[str, str], str] = {}
            for name in ALMOST_ALIKE:
                records = reading.read([_with_text(row, path, name)])
                if isinstance(records, LogError) or len(records) != 1 or records[0].model == records[0].question:
                    continue
                as_read = (records[0].model, records[0].question)
                other = seen.setdefault(as_read, name)
                fail_unless(
                    other == name,
                    f"{reading.table.name}: {'.'.join(map(str, path))} {_end(other)} and {_end(name)} give one {key}, "
                    f"{_end(getattr(records[0], key))}",
                )
                copies = record.identity is not None and records[0].identity == record.identity
                fail_unless(not copies, f"{reading.table.name}: trials of two {key}s have one identity, as if copies")


def _check_text_kept(reading: _Reading, row: Row, record: Record) -> None:
    """What a model wrote is stored as it is, with all its spaces: repeats and grades go by it."""
    for path, original in _texts(row):
        if record.answer is None or not record.has_text or original != record.answer.text:
            continue
        for text in (PLAIN, f" {original}\n", f"\t{original} "):
            records = reading.read([_with_text(row, path, text)])
            if isinstance(records, LogError) or len(records) != 1 or records[0].answer is None or records[0].missing:
                continue
            if text == PLAIN and records[0].answer.text != text:
                break  # the key, or something else that is the same here
            fail_unless(
                records[0].answer.text == text,
                f"{reading.table.name}: {text!r:.60} was written, and {records[0].answer.text!r:.60} would be stored",
            )


def _end(name: str) -> str:
    return repr(name if len(name) <= 40 else f"...{name[-37:]}")


def _check_memory(reading: _Reading, row: Row) -> None:
    """Rows are read one by one: a table may be larger than the memory."""
    lines_read = 0

    def rows() -> Iterator[tuple[str, Row]]:
        nonlocal lines_read
        for lines_read in range(1, MANY + 1):
            yield f"line {lines_read}", row

    records = iter(reading.table.read(LogFile(reading.path), rows()))
    next(records)
    fail_unless(
        lines_read <= AHEAD,
        f"{reading.table.name} reads the whole table before its first record; give one for each row",
    )
    count = 1 + sum(1 for _ in records)
    fail_unless(count == MANY, f"{reading.table.name}: a table of {MANY:,} rows gives {count:,} records")


def _check_amiss(
    reading: _Reading, row: Row, path: tuple[str | int, ...], value: object, changed: Row
) -> Mapping[str, Any] | None:
    """A value is something else, or is not there: the row is read, or refused by its line; gives what it says."""
    name, where = reading.table.name, ".".join(map(str, path))
    records, alone = reading.read([row, changed]), reading.read([changed])
    if isinstance(records, LogError):
        in_line = "2" in str(records).removeprefix(str(reading.path))
        fail_unless(in_line, f"{name}: the refusal of {where} in line 2 does not name the line: {records}")
        return None
    fail_unless(
        len(records) > 1,
        f"{name}: a row vanishes where {where} is {_shown(value)}; refuse it, or say why it is missing",
    )
    itself = not isinstance(alone, LogError) and list(map(_unplaced, alone)) == list(map(_unplaced, records[1:]))
    fail_unless(itself, f"{name}: where {where} is {_shown(value)}, the row takes something from the one before it")
    for record in records[1:]:
        _check_record(record, name, changed)
    return _record_values(records[1])


def _check_place(
    name: str, where: str, before: Mapping[str, Any], readings: Sequence[tuple[object, Mapping[str, Any] | None]]
) -> None:
    """Check that a row with a strange value in one place makes nothing up; None stands for a refused row."""
    accepted = [(value, facts) for value, facts in readings if facts is not None]
    trials = {facts["trial"] for value, facts in accepted if value is not None and value is not LEFT_OUT}
    for value, facts in accepted:
        if value is None or value is LEFT_OUT:
            for key in ("text", "category", "value", "trial"):
                if before["missing"] and key != "trial":
                    continue  # what said that the request failed may be the part that is null now
                made_up = facts[key] is not None and (facts[key] != before[key] or (key == "trial" and len(trials) > 1))
                fail_unless(
                    not made_up,
                    f"{name}: where {where} is {_shown(value)}, {key} must be unknown, or the row `missing`, but it is "
                    f"{facts[key]!r}",
                )
    for key in ("category", "value"):
        _check_grades(name, where, key, [(value, facts[key]) for value, facts in accepted])


def _check_grades(name: str, where: str, key: str, readings: Sequence[tuple[object, Any]]) -> None:
    """Check that no other value is taken for a grade."""
    grades = {repr(value): grade for value, grade in readings}
    graded = {value: grade for value, grade in grades.items() if grade is not None}
    wrong, right = (graded.get(repr(number), graded.get(repr(bool(number)))) for number in (0, 1))
    if wrong is None or right is None or wrong == right:
        return  # no grade stands there
    allowed: dict[str, tuple[Any, ...]] = {repr(value): () for value in (None, LEFT_OUT, *NO_GRADES)}
    allowed |= {repr("true"): (right,), repr("false"): (wrong,)}
    for value, grade in readings:
        fail_unless(
            grade is None or grade in allowed.get(repr(value), (grade,)),
            f"{name}: where {where} is {_shown(value)}, {key} must be unknown, but it is {grade!r}",
        )
        beyond = isinstance(value, int) and not isinstance(value, bool) and value not in (0, 1)
        fail_unless(
            not (beyond and grade in (wrong, right)),
            f"{name}: where {where} is {_shown(value)}, {key} is {grade!r}, as if it were another grade",
        )


def _shown(value: object) -> str:
    return "left out" if value is LEFT_OUT else "null" if value is None else f"{value!r:.40}"


def _check_record(record: Record, name: str, row: Row) -> None:
    """A record can be taken into a run, whatever the log has."""

    def require(holds: bool, what: str) -> None:
        fail_unless(holds, f"{name}: {what}, for {row!r:.300}")

    require(bool(record.place), "a record must say its place")
    for key, text in (("model", record.model), ("question", record.question)):
        require(isinstance(text, str) and text not in NO_NAMES, f"{key} must be a name, but is {text!r:.60}")
    for key, number in (("trial", record.trial), ("category", record.category)):
        valid = isinstance(number, int) and not isinstance(number, bool) and number >= 0
        require(number is None or valid, f"{key} must be a number from 0 on, or None, but is {number!r:.60}")
        require(
            number is None or number <= MAX_EXACT_INTEGER, f"{key} is larger than any table can hold: {number!s:.60}"
        )
    require(record.value is None or math.isfinite(record.value), f"value must be finite, but is {record.value!r}")
    cost = record.cost
    require(
        all(math.isfinite(part) and part >= 0 for part in (cost.tokens, cost.usd, cost.gpu_seconds)), f"cost is {cost}"
    )
    answer = record.answer
    require(
        answer is None or (isinstance(answer, Answer) and isinstance(answer.text, str)), f"answer is {answer!r:.80}"
    )
    if answer is not None:
        require(_is_amount(answer.latency), f"latency must be seconds from 0 on, but is {answer.latency!r:.60}")
        counts = (answer.prompt_tokens, answer.completion_tokens)
        valid = all(isinstance(part, int) and part >= 0 for part in counts)
        require(valid, f"tokens must be whole numbers from 0 on, but are {counts!r:.60}")
    require(not record.has_text or answer is not None, "has_text is true, and there is no answer")
    require(record.missing is None or bool(record.missing), "missing must say why")


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each text in a row, and where it stands."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, str):
            yield (*path, key), part
        elif isinstance(part, dict | list):
            yield from _texts(part, (*path, key))


def _with_text(value: Any, path: tuple[str | int, ...], text: str) -> Any:
    """The row with another text in this place."""
    changed = copy.copy(value)
    changed[path[0]] = text if len(path) == 1 else _with_text(value[path[0]], path[1:], text)
    return changed


def _amiss(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], object, Any]]:
    """The value with one part of it changed or left out, for every part."""
    if not isinstance(value, dict | list):
        return
    for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
        place = (*path, key)
        others = [(place, other, other) for other in AMISS]
        for at, value_amiss, other in (*others, *_amiss(part, place)):
            changed = copy.copy(value)
            changed[key] = other
            yield at, value_amiss, changed
        if isinstance(value, dict):
            yield place, LEFT_OUT, {name: part_kept for name, part_kept in value.items() if name != key}
