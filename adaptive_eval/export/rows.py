"""Long form: one row a trial, in the order of commitment, the same columns in every format."""

from collections.abc import Iterator
from typing import Literal

from adaptive_eval.export.source import Source
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.store import TrialRecord
from adaptive_eval.store.packing import clean

Kind = Literal["text", "integer", "number", "mapping"]
Row = dict[str, object]

COLUMNS: dict[str, Kind] = {
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
TEXTS: dict[str, Kind] = {"text": "text", "reasoning": "text"}
"""What the model wrote."""


def columns(texts: bool) -> dict[str, Kind]:
    """The columns of a row."""
    return COLUMNS | TEXTS if texts else COLUMNS


def rows(source: Source, texts: bool) -> Iterator[Row]:
    """Every stored trial, one at a time."""
    for record in source.reader.trials():
        row = _row(record, source.rubric)
        if texts:
            row["text"], row["reasoning"] = clean(record.answer.text), clean(record.answer.reasoning)
        yield row


def _row(record: TrialRecord, rubric: Rubric) -> Row:
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
