"""Writes tables with one row per trial, in the order of commitment, with the same columns in every format.

Spreadsheets would evaluate a cell that begins like a formula (=, +, -, @ and their full-width forms, also after white
space), so such texts get a leading apostrophe, which `unescape_formula` takes away again. Line breaks stay within
quotes, as one character each.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import orjson

from adaptive_eval.base.imports import load_pyarrow
from adaptive_eval.exchange.source import ExportSource, OnProgress
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.store.packing import valid_text

FORMULA = frozenset("=+-@＝＋－＠")
APOSTROPHE = "'"
Row = dict[str, object]
PARQUET_ROWS, PARQUET_BYTES = 4096, 8 * 2**20
"""Limits of a Parquet row group: rows, and characters of texts."""


def escape_formula(value: object) -> object:
    """Escape a text that a spreadsheet would read as a formula; numbers are unchanged."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return APOSTROPHE + text if _may_be_escaped(text) else text


def unescape_formula(text: str) -> str:
    """Undo the apostrophe of `escape_formula`."""
    return text[1:] if text[:1] == APOSTROPHE and _may_be_escaped(text[1:]) else text


def _may_be_escaped(text: str) -> bool:
    """Whether a text is like a formula, also behind apostrophes, so that none of its own is taken away."""
    bare = text.lstrip(APOSTROPHE)
    return bare.lstrip()[:1] in FORMULA or bare[:1] in ("\t", "\n")


def csv_text(columns: Sequence[str], cells: Iterable[Sequence[object]]) -> str:
    """A table as CSV, safe for spreadsheets."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(escape_formula, row) for row in chain([columns], cells))
    return text.getvalue()


def rows(source: ExportSource, texts: bool) -> Iterator[Row]:
    """Rows of all stored trials; `texts` adds the models' texts, and their tokens if stored."""
    in_run = source.run.setup.roster.models
    for record in source.reader.trials():
        row = _trial_row(record, source.run.rubric) | {"removed": record.model not in in_run}
        if texts:
            row["text"], row["reasoning"] = valid_text(record.answer.text), valid_text(record.answer.reasoning)
            logprobs = record.answer.token_logprobs
            row["token_logprobs"] = logprobs and {
                "tokens": list(map(valid_text, logprobs.tokens)),
                "logprobs": list(logprobs.values),
            }
        yield row


def _trial_row(record: TrialRecord, rubric: Rubric) -> Row:
    """The columns of a trial. `category` is a number and `label` its name; both and `value` are empty if the grader
    failed (`grader_error`). `flags` are those of the answer (truncated, empty ...), `signals` those of the grader."""
    answer, category = record.answer, record.category
    return {
        "model": record.model,
        "question": record.question,
        "trial": record.trial,
        "category": category,
        "label": None if category is None else rubric.names[category],
        "value": None if category is None else float(rubric.weights[category]),
        "round": record.round,
        "seed": answer.seed,
        "finish_reason": answer.finish_reason,
        "flags": " ".join(sorted(answer.signals)),
        "extracted": record.extracted,
        "signals": dict(record.signals),
        "grader_error": record.grader_error,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "tokens": record.cost.tokens,
        "usd": record.cost.usd,
        "gpu_seconds": record.cost.gpu_seconds,
        "latency": answer.latency,
        "ttft": answer.ttft,
        "attempts": answer.attempts,
        "replica": answer.replica,
        "completion_bpt": answer.completion_bpt,
        "prompt_bpt": answer.prompt_bpt,
    }


def write_jsonl(source: ExportSource, path: Path, texts: bool, on_progress: OnProgress) -> None:
    """Write one JSON object per trial, with a key for every column."""
    with path.open("wb") as file:
        for number, row in enumerate(rows(source, texts), 1):
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            on_progress(number)


def write_csv(source: ExportSource, path: Path, texts: bool, on_progress: OnProgress) -> None:
    """Write one CSV row per trial, after a header with the column names."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, row in enumerate(rows(source, texts), 1):
            if number == 1:
                writer.writerow(row)
            writer.writerow([escape_formula(_plain(value)) for value in row.values()])
            on_progress(number)


def write_parquet(source: ExportSource, path: Path, texts: bool, on_progress: OnProgress) -> None:
    """Write a Parquet file with one row per trial, compressed with zstd; `signals` are JSON, as in CSV."""
    pyarrow, parquet = load_pyarrow()
    text, integer, number = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    kinds = {
        **dict.fromkeys(("trial", "category", "round", "seed", "prompt_tokens", "completion_tokens"), integer),
        **dict.fromkeys(("tokens", "attempts"), integer),
        **dict.fromkeys(("value", "usd", "gpu_seconds", "latency", "ttft", "completion_bpt", "prompt_bpt"), number),
        "removed": pyarrow.bool_(),
        "token_logprobs": pyarrow.struct({"tokens": pyarrow.list_(text), "logprobs": pyarrow.list_(number)}),
    }
    groups, done = _groups(rows(source, texts)), 0
    first = next(groups)
    schema = pyarrow.schema([(name, kinds.get(name, text)) for name in first[0]])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in chain([first], groups):
            table = [{**row, "signals": _plain(row["signals"])} for row in group]
            writer.write_table(pyarrow.Table.from_pylist(table, schema))
            for _ in group:
                on_progress(done := done + 1)


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in groups of at most `PARQUET_ROWS`, each complete once it has `PARQUET_BYTES` of texts."""
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) == PARQUET_ROWS or size >= PARQUET_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _plain(value: object) -> object:
    """Convert a mapping to JSON; other values are unchanged."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True) if value else None
    return value
