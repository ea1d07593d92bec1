"""MathArena: the rows of its data sets, one an answer, which say of each whether it is right."""

from collections.abc import Iterator, Mapping
from typing import Any

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.exchange.samples import (
    LogFile,
    LoggedQuestion,
    LoggedSettings,
    Record,
    finite_number,
    logged_answer,
    value_of_score,
    whole_number,
    whole_number_told,
)
from adaptive_eval.exchange.tables.reader import Rows
from adaptive_eval.questions.load import as_text


def is_output(columns: frozenset[str]) -> bool:
    """Whether columns are those of a data set of outputs."""
    return {"problem_idx", "model_name", "idx_answer", "correct"} <= columns


def read_outputs(file: LogFile, rows: Rows) -> Iterator[Record]:
    """The trials of a data set's rows."""
    for place, row in rows:
        trial = whole_number_told(row.get("idx_answer"))
        if row.get("problem_idx") is None or row.get("model_name") is None or trial is None:
            raise file.refuse("must have problem_idx, model_name and idx_answer", place)
        prompt = as_text(row.get("user_message")) or as_text(row.get("problem"))
        model, text, said = file.model or as_text(row["model_name"]), row.get("answer"), row.get("parsed_answer")
        value = value_of_score(row.get("correct"))
        yield Record(
            place=place,
            model=model,
            question=as_text(row["problem_idx"]),
            trial=trial,
            asked=LoggedQuestion(prompt, as_text(row.get("gold_answer"))),
            settings=LoggedSettings(served=model, grader="math"),
            answer=None if text is None else _answer(as_text(text), row),
            has_text=text is not None,
            value=value,
            extracted=None if said is None else as_text(said),
            grader_error=None if value is not None else "the log does not say whether it is right",
            cost=Cost(sum(_tokens(row)), finite_number(row.get("cost")) or 0.0),
            missing="there is no answer" if text is not None and not as_text(text) and said is None else None,
        )


def _answer(text: str, row: Mapping[str, Any]) -> Answer:
    prompt, completion = _tokens(row)
    return logged_answer(
        text,
        finish_reason="unknown",
        latency=finite_number(row.get("time")) or 0.0,
        prompt_tokens=prompt,
        completion_tokens=completion,
    )


def _tokens(row: Mapping[str, Any]) -> tuple[int, int]:
    """Number of tokens of the prompt and of the answer."""
    return whole_number(row.get("input_tokens")) or 0, whole_number(row.get("output_tokens")) or 0
