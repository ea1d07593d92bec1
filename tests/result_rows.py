"""The rows of results.json on questions as objects."""

from dataclasses import dataclass
from pathlib import Path

import orjson
from pydantic import TypeAdapter

from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import RESULTS_FILE


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question."""

    id: str
    trials: tuple[int, ...]
    mean: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    not_judged: tuple[int, ...]


def rows_of(results: Results) -> tuple[QuestionRow, ...]:
    """What the results have of each question."""
    return _rows(orjson.dumps(results.questions, default=as_json))


def rows_in_file(directory: Path) -> tuple[QuestionRow, ...]:
    """What the file of a run has of each question."""
    return _rows(orjson.dumps(orjson.loads((directory / RESULTS_FILE).read_bytes())["questions"]))


def _rows(text: bytes) -> tuple[QuestionRow, ...]:
    return TypeAdapter(tuple[QuestionRow, ...]).validate_json(text)
