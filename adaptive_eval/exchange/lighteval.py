"""Reads lighteval details: `details/MODEL/TIME/details_TASK_TIME.parquet`, one row for each question.

A row has all samples and only one aggregate score, so each sample is graded again. The column of tokens is not read: 64
answers of 32k tokens take a hundred MB.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from adaptive_eval.exchange.samples import (
    SEVERAL,
    LoggedQuestion,
    LoggedSettings,
    Record,
    logged_answer,
    mapping,
    sequence,
    single_prompt,
    whole_number,
)
from adaptive_eval.exchange.tables.reader import parquet_rows
from adaptive_eval.questions.load import as_text
from adaptive_eval.record.log_files import LogFile

NAME = re.compile(r"details_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d\-.:]+\.parquet")
DOC = ("query", "choices", "gold_index", "id")
RESPONSE = ("text", "reasonings", "input")
NEEDED = [
    f"{mark}{column}{mark}.{part}"
    for mark in ("", "__")
    for column, parts in (("doc", DOC), ("model_response", RESPONSE))
    for part in parts
]
"""Columns that are read, under either name."""


def is_details(columns: frozenset[str]) -> bool:
    """Whether a table has the columns of details; earlier versions of lighteval had underscores around them."""
    return {"doc", "model_response"} <= columns or {"__doc__", "__model_response__"} <= columns


def read_details(file: LogFile) -> Iterator[Record]:
    """Read the trials of a file of details."""
    match = NAME.fullmatch(file.path.name)
    task = match["task"] if match else file.path.stem
    model = file.model or _model_from_folders(file)
    for number, (place, row) in enumerate(parquet_rows(file, NEEDED)):
        doc, response = (mapping(row.get(name) or row.get(f"__{name}__")) for name in ("doc", "model_response"))
        texts, thoughts = sequence(response.get("text")), sequence(response.get("reasonings"))
        if not texts or not all(isinstance(text, str) for text in texts):
            raise file.refuse("has no sampled answers (model_response.text must be a list of texts)", place)
        asked, system = _parse_question(doc, response)
        if len(sequence(doc.get("gold_index"))) > 1:
            raise file.refuse(SEVERAL, place)
        for trial, text in enumerate(texts):
            reasoning = thoughts[trial] if trial < len(thoughts) else None
            yield Record(
                place=f"{place}, sample {trial + 1}",
                model=model,
                question=as_text(doc.get("id")) or str(number),
                trial=trial,
                task=task,
                asked=asked,
                settings=LoggedSettings(served=model, system=system),
                answer=logged_answer(text, finish_reason="unknown", reasoning=as_text(reasoning) or None),
                has_text=True,
            )


def _parse_question(doc: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[LoggedQuestion, str | None]:
    """The question with its key, which is one of the choices or the only one, and the system message."""
    choices = tuple(map(as_text, sequence(doc.get("choices"))))
    gold = doc.get("gold_index")
    at = [whole_number(one) for one in (gold if isinstance(gold, list) else [gold])]
    keys = [choices[one] for one in at if one is not None and 0 <= one < len(choices)]
    turns = [(turn.get("role"), as_text(turn.get("content"))) for turn in map(mapping, sequence(response.get("input")))]
    prompt, system = single_prompt(turns) or (as_text(doc.get("query")), None)
    return LoggedQuestion(prompt, "\n".join(keys), choices if len(choices) > 1 else ()), system


def _model_from_folders(file: LogFile) -> str:
    """The model's name from its folders, details/MODEL/TIME."""
    folders = file.path.absolute().parent.parts
    if "details" not in folders:
        raise file.refuse(f"does not say its model, nor do its folders (details/MODEL/TIME); write NAME={file.path}")
    last = len(folders) - 1 - folders[::-1].index("details")
    return "/".join(folders[last + 1 : -1]) or "/".join(folders[last + 1 :]) or "model"
