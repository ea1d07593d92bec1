"""Long form: one row a trial, in the order of commitment, the same columns in every format.

In Parquet grader signals are JSON texts, since their names differ from grader to grader.

`write_signals` gives the base signals of every trial as JSON lines, in the form that the paper's categorical pipeline
reads. There `seed` numbers the repeats of a problem, and a table of problems by seeds is made of it: here it is the
number of the trial, which means the same for every question, and `request_seed` is the seed that was sent.
`scorio.categorical` reads a line with `signals_of`. (The package of that name on PyPI reads the lines too, but its
`evaluate_schema` counts a seed that a problem does not have as the lowest category: give it problems with equally many
trials.)

In a spreadsheet what a model wrote stays text, whatever it looks like. A cell that begins like a formula (=, +, -, @
and their full-width twins, also after white space) is run by the programs that open it, so such a text gets an
apostrophe in front. Line breaks stay within quotes, as one character each.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import orjson

from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.exchange.source import ExportSource, OnProgress
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.imports import load_pyarrow
from adaptive_eval.store import TrialRecord
from adaptive_eval.store.rows import valid_text

FORMULA = frozenset("=+-@＝＋－＠")
APOSTROPHE = "'"
ColumnKind = Literal["text", "integer", "number", "mapping"]
Row = dict[str, object]


def harmless(value: object) -> object:
    """A value as a spreadsheet may have it; numbers are numbers."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return APOSTROPHE + text if text.lstrip()[:1] in FORMULA or text[:1] in ("\t", "\n") else text


def write_signals(source: ExportSource, path: Path, on_progress: OnProgress) -> None:
    """One object a trial."""
    with path.open("wb") as file:
        for number, record in enumerate(source.reader.trials(), 1):
            file.write(orjson.dumps(_line(record, source.rubric), option=orjson.OPT_APPEND_NEWLINE))
            on_progress(number)


def _line(record: TrialRecord, rubric: Rubric) -> dict[str, object]:
    answer, signals = record.answer, record.signals
    mean = _mean_logprob(answer.completion_bpt)
    return {
        "seed": record.trial,
        "data_id": record.question,
        "model": record.model,
        "output": {
            "finish_reason": answer.finish_reason,
            "num_prompt_tokens": answer.prompt_tokens,
            "num_completion_tokens": answer.completion_tokens,
        },
        "tokens": {
            "completion_avg_logprob": mean,
            "completion_sum_logprob": None if mean is None else mean * answer.completion_tokens,
            "completion_ppl": _perplexity(answer.completion_bpt),
            "prompt_avg_logprob": _mean_logprob(answer.prompt_bpt),
            "prompt_ppl": _perplexity(answer.prompt_bpt),
        },
        "processed_results": {
            "is_correct": _flag(signals.get("is_correct")),
            "has_box": _flag(signals.get("has_box")),
            "extracted": record.extracted,
        },
        **_grade(record, rubric),
        "request_seed": answer.seed,
        "round": record.round,
    }


def _grade(record: TrialRecord, rubric: Rubric) -> Row:
    category = record.category
    return {
        "category": category,
        "label": None if category is None else rubric.names[category],
        "value": None if category is None else float(rubric.weights[category]),
        "grader_error": record.grader_error,
    }


def _mean_logprob(bits: float | None) -> float | None:
    """In nats: mean ln p = -bpt ln 2."""
    return None if bits is None else -bits * math.log(2.0)


def _perplexity(bits: float | None) -> float | None:
    """2^bpt; beyond what a number holds there is none."""
    return None if bits is None or bits >= 1024.0 else 2.0**bits


def _flag(value: object) -> int | None:
    return None if not isinstance(value, bool | int | float) else int(value)


COLUMNS: dict[str, ColumnKind] = {
    "model": "text",
    "question": "text",
    "trial": "integer",
    "category": "integer",
    "label": "text",
    "value": "number",
    "round": "integer",
    "seed": "integer",
    "finish_reason": "text",
    "flags": "text",
    "extracted": "text",
    "signals": "mapping",
    "grader_error": "text",
    "prompt_tokens": "integer",
    "completion_tokens": "integer",
    "tokens": "integer",
    "usd": "number",
    "gpu_seconds": "number",
    "latency": "number",
    "ttft": "number",
    "attempts": "integer",
    "replica": "text",
    "completion_bpt": "number",
    "prompt_bpt": "number",
}
"""`category` is the number and `label` its name; both and `value` are empty where the grader failed, as `grader_error`
says. `flags` are those of the answer (truncated, empty, refusal ...), `signals` those of the grader."""
TEXTS: dict[str, ColumnKind] = {"text": "text", "reasoning": "text", "token_logprobs": "mapping"}
"""What the model wrote, and with `logprobs: tokens` its tokens and their natural log-probabilities."""


def columns(texts: bool) -> dict[str, ColumnKind]:
    """The columns of a row."""
    return COLUMNS | TEXTS if texts else COLUMNS


def rows(source: ExportSource, texts: bool) -> Iterator[Row]:
    """Every stored trial, one at a time."""
    for record in source.reader.trials():
        row = _row(record, source.rubric)
        if texts:
            row["text"], row["reasoning"] = valid_text(record.answer.text), valid_text(record.answer.reasoning)
            row["token_logprobs"] = named_tokens(record.answer.token_logprobs)
        yield row


def named_tokens(told: AnswerLogprobs | None) -> dict[str, object] | None:
    """Tokens and their log-probabilities; None where they were not kept."""
    return None if told is None else {"tokens": list(map(valid_text, told.tokens)), "logprobs": list(told.values)}


def _row(record: TrialRecord, rubric: Rubric) -> Row:
    answer = record.answer
    return {
        "model": record.model,
        "question": record.question,
        "trial": record.trial,
        **_grade(record, rubric),
        "round": record.round,
        "seed": answer.seed,
        "finish_reason": answer.finish_reason,
        "flags": " ".join(sorted(answer.signals)),
        "extracted": record.extracted,
        "signals": dict(record.signals),
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


MOST_ROWS = 10_000
MOST_CHARACTERS = 16 * 2**20
"""A row group has at most so many rows, and about so much text: that much is in memory."""


def write_parquet(source: ExportSource, path: Path, texts: bool, on_progress: OnProgress) -> None:
    """One row a trial, in row groups."""
    pyarrow, parquet = load_pyarrow()
    types = {"text": pyarrow.string(), "integer": pyarrow.int64(), "number": pyarrow.float64()}
    types["mapping"] = types["text"]
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns(texts).items()])
    written = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _groups(map(_flat, rows(source, texts))):
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))
            written += len(group)
            on_progress(written)


def _flat(row: Row) -> Row:
    return row | {name: json.dumps(value, sort_keys=True) for name, value in row.items() if isinstance(value, dict)}


def _groups(many: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    characters = 0
    for row in many:
        group.append(row)
        characters += sum(len(str(row.get(name) or "")) for name in TEXTS)
        if len(group) == MOST_ROWS or characters >= MOST_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def write_jsonl(source: ExportSource, path: Path, texts: bool, on_progress: OnProgress) -> None:
    """One object a trial, with a key for every column."""
    with path.open("wb") as file:
        for number, row in enumerate(rows(source, texts), 1):
            file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            on_progress(number)


def write_csv(source: ExportSource, path: Path, texts: bool, on_progress: OnProgress) -> None:
    """One row a trial."""
    names = list(columns(texts))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for number, row in enumerate(rows(source, texts), 1):
            writer.writerow([harmless(_plain(row[name])) for name in names])
            on_progress(number)


def _plain(value: object) -> object:
    """A mapping as JSON, for which a cell has no other form."""
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True) if value else None
    return value
