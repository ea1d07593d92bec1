"""The rows of results.json on questions as objects."""

from dataclasses import replace

import orjson
from pydantic import TypeAdapter

from adaptive_eval.report.question_rows import QuestionRow, as_json
from adaptive_eval.report.results import Results


def contents(results: Results) -> tuple[Results, tuple[QuestionRow, ...]]:
    """The results, and their rows on questions: equal to those of any results that say the same."""
    return replace(results, questions=()), rows_of(results)


def rows_of(results: Results) -> tuple[QuestionRow, ...]:
    """What the results have of each question."""
    text = orjson.dumps(results.questions, default=as_json)
    return TypeAdapter(tuple[QuestionRow, ...]).validate_json(text)
