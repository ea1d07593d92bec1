"""Reads samples of lm-evaluation-harness: `samples_TASK_TIME.jsonl`, one row for each document and filter.

A row has all repeats (`resps`) and only one aggregate score, so each repeat is graded again; rows of other filters have
the same answers. The model's name is in `results_TIME.json` beside the file, or is the name of its folder.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adaptive_eval.exchange.samples import (
    SEVERAL,
    LoggedQuestion,
    LoggedSettings,
    Record,
    known_sampling,
    logged_answer,
    mapping,
    sequence,
    single_prompt,
)
from adaptive_eval.exchange.tables.reader import Row, json_rows
from adaptive_eval.questions.load import as_text
from adaptive_eval.record.log_files import MOST_BYTES, LogFile

NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d\-.:]+))?\.jsonl")
SAMPLING = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_gen_toks": "max_tokens"}
NO_ANSWER = "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"
"""The text that the harness writes if a server gave no content."""


def is_samples(row: Row) -> bool:
    """Whether a row has the columns of a sample."""
    return {"doc_id", "resps", "target"} <= row.keys()


def read_samples(file: LogFile) -> Iterator[Record]:
    """Read the trials of a file of samples."""
    match = NAME.fullmatch(file.path.name)
    task = match["task"] if match else file.path.stem
    told = _results(file.path, match["time"] if match else None)
    model = file.model or as_text(told.get("model_name")) or _model_from_folder(file)
    api = "completions" if as_text(mapping(told.get("config")).get("model")) == "local-completions" else "chat"
    seen: dict[str, tuple[str, object, set[str]]] = {}
    for place, row in json_rows(file):
        if not is_samples(row):
            raise file.refuse("is not a sample of lm-eval: it must have doc_id, resps and target", place)
        key, answers, by = as_text(row["doc_id"]), _repeats(file, row, place), as_text(row.get("filter"))
        if key in seen:
            _require_other_filter(file, place, by, answers, seen[key])
            seen[key][2].add(by)
            continue
        seen[key] = (place, hash(tuple(answers)), {by})
        if isinstance(row["target"], list) and len(row["target"]) > 1:
            raise file.refuse(SEVERAL, place)
        asked, settings = _question_and_settings(row, model, api)
        for trial, text in enumerate(answers):
            yield Record(
                place=f"{place}, repeat {trial + 1}",
                model=model,
                question=key,
                trial=trial,
                task=task,
                asked=asked,
                settings=settings,
                answer=logged_answer(text, finish_reason="unknown"),
                has_text=True,
                missing="the server gave no content" if text.strip() == NO_ANSWER else None,
            )


def _repeats(file: LogFile, row: Row, place: str) -> list[str]:
    requests = sequence(row["resps"])
    texts = list(sequence(requests[0])) if len(requests) == 1 else None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise file.refuse(
            "has no sampled answers (resps must be one list of texts); only generate_until tasks have trials", place
        )
    return texts


def _require_other_filter(
    file: LogFile, place: str, by: str, answers: list[str], before: tuple[str, object, set[str]]
) -> None:
    """Raise `LogError` unless a document occurs again only for another filter of the same answers."""
    first, known, filters = before
    if by in filters:
        raise file.refuse(f"has the document of {first} again; remove one of the two", place)
    if hash(tuple(answers)) != known:
        raise file.refuse(f"has other answers than {first}, another filter of the same document", place)


def _question_and_settings(row: Row, model: str, api: Any) -> tuple[LoggedQuestion, LoggedSettings]:
    """The question and the model's settings, as far as the request has them."""
    arguments = mapping(next(iter(mapping(row.get("arguments")).values()), None))
    request = arguments.get("arg_0")
    text = as_text(request[0]) if isinstance(request, list) and request else as_text(request)
    turns = [(turn.get("role"), as_text(turn.get("content"))) for turn in _turns(text)]
    last = turns[-1][1] if turns and turns[-1][0] == "user" else text
    prompt, system = single_prompt(turns) or (last, None)
    choices = tuple(map(as_text, sequence(mapping(row.get("doc")).get("choices"))))
    settings = LoggedSettings(
        served=model,
        sampling=_sampling(mapping(arguments.get("arg_1"))),
        system=system,
        api="chat" if turns else api if not text else "completions",
    )
    return LoggedQuestion(prompt, as_text(row["target"]), choices), settings


def _turns(text: str) -> list[Mapping[str, Any]]:
    """The messages of a request in JSON; empty for plain text."""
    if not text.lstrip().startswith("[{"):
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(map(mapping, value)) if isinstance(value, list) else []


def _sampling(given: Mapping[str, Any]) -> Mapping[str, object]:
    """Convert sampling settings; with do_sample false the temperature is 0."""
    known = {ours: given[theirs] for theirs, ours in SAMPLING.items() if given.get(theirs) is not None}
    if stop := [as_text(one) for one in sequence(given.get("until")) if as_text(one)]:
        known["stop"] = stop
    if given.get("do_sample") is False:
        known["temperature"] = 0.0
    return known_sampling(known)


def _results(path: Path, time: str | None) -> Mapping[str, Any]:
    """Read the file of results beside the samples; empty if there is none."""
    beside = path.with_name(f"results_{time}.json")
    try:
        return mapping(json.loads(beside.read_bytes())) if beside.stat().st_size <= MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _model_from_folder(file: LogFile) -> str:
    """The model's name from its folder, in which `/` is written as `__`."""
    name = file.path.absolute().parent.name.replace("__", "/")
    if "/" not in name:
        raise file.refuse(f"does not say its model, and results_TIME.json is not beside it; write NAME={file.path}")
    return name
