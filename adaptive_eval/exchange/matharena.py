"""MathArena: one JSON file for each problem (`outputs/COMPETITION/MODEL/IDX.json.zst`), and the rows of its data sets.

Both say of each answer whether it is right.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.exchange.bounded import parse_log_json, read_whole
from adaptive_eval.exchange.samples import (
    LogFile,
    LoggedQuestion,
    LoggedSettings,
    Record,
    finite_number,
    logged_answer,
    mapping,
    sequence,
    value_of_score,
    whole_number,
    whole_number_told,
)
from adaptive_eval.exchange.tables.reader import Row, Rows
from adaptive_eval.questions.load import as_text


def is_problem(value: Mapping[str, Any]) -> bool:
    """Whether a value is that of a problem's file."""
    return {"problem", "gold_answer", "answers", "correct"} <= value.keys()


def is_output(columns: frozenset[str]) -> bool:
    """Whether columns are those of a data set of outputs."""
    return {"problem_idx", "model_name", "idx_answer", "correct"} <= columns


def read_problem(file: LogFile) -> Iterator[Record]:
    """The trials of a problem's file."""
    told = mapping(parse_log_json(file, read_whole(file)))
    if not is_problem(told):
        raise file.refuse("is no problem of MathArena: it must have problem, gold_answer, answers and correct")
    correct, answers, messages = (sequence(told.get(name)) for name in ("correct", "answers", "messages"))
    costs = sequence(told.get("detailed_costs"))
    if not len(correct) == len(answers) == (len(messages) or len(answers)):
        found = f"{len(answers)} answers, {len(correct)} grades and {len(messages)} conversations"
        raise file.refuse(f"must have as many grades and conversations as answers, but has {found}; it may be cut off")
    file.share = 1.0
    model = file.model or _model(file)
    for trial, right in enumerate(correct):
        turns = sequence(messages[trial]) if messages else None
        asked = _asked(told, turns)
        yield _record(
            place=f"answer {trial + 1}",
            model=model,
            question=as_text(told.get("idx")) or file.path.name.partition(".")[0],
            trial=trial,
            asked=asked,
            right=right,
            said=answers[trial],
            written=None if turns is None else _written(turns),
            cost=mapping(costs[trial]) if trial < len(costs) else {},
        )


def read_outputs(file: LogFile, rows: Rows) -> Iterator[Record]:
    """The trials of a data set's rows."""
    for place, row in rows:
        trial = whole_number_told(row.get("idx_answer"))
        if row.get("problem_idx") is None or row.get("model_name") is None or trial is None:
            raise file.refuse("must have problem_idx, model_name and idx_answer", place)
        prompt = as_text(row.get("user_message")) or as_text(row.get("problem"))
        text = row.get("answer")
        yield _record(
            place=place,
            model=file.model or _named(row),
            question=as_text(row["problem_idx"]),
            trial=trial,
            asked=LoggedQuestion(prompt, as_text(row.get("gold_answer"))),
            right=row.get("correct"),
            said=row.get("parsed_answer"),
            written=(as_text(text), None) if text is not None else None,
            cost=row,
        )


def _record(
    *,
    place: str,
    model: str,
    question: str,
    trial: int,
    asked: LoggedQuestion,
    right: object,
    said: object,
    written: tuple[str, str | None] | None,
    cost: Mapping[str, Any],
) -> Record:
    value = value_of_score(right)
    return Record(
        place=place,
        model=model,
        question=question,
        trial=trial,
        asked=asked,
        settings=LoggedSettings(served=model, grader="math"),
        answer=None if written is None else _answer(*written, cost),
        has_text=written is not None,
        value=value,
        extracted=None if said is None else as_text(said),
        grader_error=None if value is not None else "the log does not say whether it is right",
        cost=Cost(sum(_tokens(cost)), finite_number(cost.get("cost")) or 0.0),
        missing="there is no answer" if written is not None and not any(written) and said is None else None,
    )


def _answer(text: str, reasoning: str | None, cost: Mapping[str, Any]) -> Answer:
    prompt, completion = _tokens(cost)
    return logged_answer(
        text,
        finish_reason="unknown",
        reasoning=reasoning,
        latency=finite_number(cost.get("time")) or 0.0,
        prompt_tokens=prompt,
        completion_tokens=completion,
    )


def _tokens(cost: Mapping[str, Any]) -> tuple[int, int]:
    """Of the prompt and of the answer."""
    return whole_number(cost.get("input_tokens")) or 0, whole_number(cost.get("output_tokens")) or 0


def _asked(told: Mapping[str, Any], turns: Sequence[Any] | None) -> LoggedQuestion:
    """What the model was sent, instruction and all, where the conversation says it."""
    users = [turn for turn in map(mapping, turns or ()) if turn.get("role") == "user"]
    prompt = _text(users[0].get("content")) if users else as_text(told.get("problem"))
    return LoggedQuestion(prompt, as_text(told.get("gold_answer")))


def _written(turns: Sequence[Any]) -> tuple[str, str | None]:
    """The model's last words, and its thoughts where they are kept apart."""
    own = [turn for turn in map(mapping, turns) if turn.get("role") == "assistant"]
    thoughts = [_text(turn.get("content")) for turn in own if turn.get("type") == "cot"]
    words = [_text(turn.get("content")) for turn in own if turn.get("type") != "cot"]
    return (words[-1] if words else ""), "\n".join(thoughts) or None


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(as_text(mapping(part).get("text")) for part in content)
    return as_text(content)


def _named(row: Row) -> str:
    """A model is its weights and how it was asked."""
    return as_text(row["model_name"])


def _model(file: LogFile) -> str:
    """The folders between the one that was given and the file, else the file's own folder."""
    own = file.path.absolute().parent
    given = own if file.folder is None else file.folder.absolute()
    between = own.relative_to(given) if own.is_relative_to(given) else Path()
    return between.as_posix() if between.parts else own.name
