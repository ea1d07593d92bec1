"""Reads samples of lm-evaluation-harness.

It writes `samples_TASK_TIME.jsonl`, one row for each document and filter; rows of other filters have the same
answers. The model's name is in `results_TIME.json` beside the file, or is the name of its folder.

A document with one answer has its grade in the row: the value of each metric, by filter. The file of results states
whether lower values are better. Several answers share one value, so each is graded again.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adaptive_eval.exchange.log_files import MOST_BYTES, LogError, LogFile
from adaptive_eval.exchange.samples import (
    SEVERAL_ANSWERS,
    LoggedQuestion,
    LoggedSettings,
    Record,
    known_sampling,
    logged_answer,
    mapping,
    sequence,
    single_prompt,
    value_of_score,
)
from adaptive_eval.exchange.tables.reader import Row, json_rows
from adaptive_eval.questions.benchmark import LM_EVAL_SAMPLING
from adaptive_eval.questions.load import as_text

NO_ANSWER = "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"
"""The text that lm-eval writes if a server gave no content."""


SAMPLES_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d\-.:]+))?\.jsonl")


def is_samples(row: Row) -> bool:
    """Whether a row has the columns of a sample."""
    return {"doc_id", "resps", "target"} <= row.keys()


def read_samples(file: LogFile) -> Iterator[Record]:
    """Read the trials of a file of samples."""
    match = SAMPLES_NAME.fullmatch(file.path.name)
    task = match["task"] if match else file.path.stem
    results = _results(file.path, match["time"] if match else None)
    model = file.name_model(as_text(results.get("model_name"))) or _model_from_folder(file)
    api = "completions" if as_text(mapping(results.get("config")).get("model")) == "local-completions" else "chat"
    seen: dict[str, tuple[str, object, set[str]]] = {}
    scores = _Scores(file, mapping(mapping(results.get("higher_is_better")).get(task)))
    for place, row in json_rows(file):
        if not is_samples(row):
            raise file.refuse("is not a sample of lm-eval: it must have doc_id, resps and target", place)
        if scores.filter and as_text(row.get("filter")) != scores.filter:
            continue
        file.scores[task].update(scores.names(row))
        key, by, asked_for = as_text(row["doc_id"]), as_text(row.get("filter")), sequence(row["resps"])
        answers = list(sequence(asked_for[0])) if len(asked_for) == 1 else []
        if not answers or not all(isinstance(text, str) for text in answers):
            rule = "resps must be one list of texts; only generate_until tasks have trials"
            raise file.refuse(f"has no sampled answers ({rule})", place)
        if key in seen:
            _require_other_filter(file, place, by, answers, seen[key])
            seen[key][2].add(by)
            continue
        seen[key] = (place, hash(tuple(answers)), {by})
        if isinstance(row["target"], list) and len(row["target"]) > 1:
            raise file.refuse(SEVERAL_ANSWERS, place)
        asked, settings = _question_and_settings(row, model, api)
        grade = scores.of_row(place, row) if len(answers) == 1 else {}
        for trial, text in enumerate(answers):
            yield Record(
                place=f"{place}, sample {trial + 1}",
                model=model,
                question=key,
                trial=trial,
                task=task,
                asked=asked,
                settings=settings,
                answer=logged_answer(text, finish_reason="unknown"),
                has_text=True,
                missing="the server gave no content" if text.strip() == NO_ANSWER else None,
                **grade,
            )


OTHER_COLUMNS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
    | {"doc_hash", "prompt_hash", "target_hash"}
)
"""Columns of a sample that are not metrics."""
HIGHER_IS_BETTER = frozenset({"exact_match", "acc", "acc_norm", "accuracy", "em", "f1"})
"""Metrics known to be better when higher, without the file of results."""


class _Scores:
    """The values of a metric in the rows of a file; `higher` says for each metric whether higher values are better."""

    def __init__(self, file: LogFile, higher: Mapping[str, Any]) -> None:
        self._file, self._higher = file, higher
        self._metric, _, self.filter = (file.scorer or "").partition(",")  # the filter that counts, if one is named

    def names(self, row: Row) -> list[str]:
        """The scores of a row that --scorer leaves to choose from, as it names them."""
        return [_score_name(row, metric) for metric in ([self._metric] if self._metric else _metrics(row))]

    def of_row(self, place: str, row: Row) -> dict[str, Any]:
        """The grade of a row's answer, as fields of a record; empty if it has none.

        Raises `LogError` if it is not usable as a grade, and texts are not graded again.
        """
        try:
            return self._grade(place, row)
        except LogError:
            if self._file.graded_anew:
                return {}
            raise

    def _grade(self, place: str, row: Row) -> dict[str, Any]:
        names = _metrics(row)
        metric = self._metric or next(iter(names), "")
        if not metric:
            return {}
        if metric not in names or metric not in row:
            hint = f"name one with --scorer: {', '.join(names)}" if names else "give --grader"
            raise self._file.refuse(f"has no metric {metric!r}; {hint}", place)
        value = value_of_score(row[metric])
        if value is None:
            rule = f"{metric} is computed over all answers together, so single answers have no score"
            hint = "name another metric with --scorer, give --grader, or leave the file out"
            raise self._file.refuse(f"{rule}; {hint}", place)
        if metric not in self._higher and metric not in HIGHER_IS_BETTER:
            rule = f"does not say whether higher values of {metric} are better"
            raise self._file.refuse(f"{rule}; put results_TIME.json next to it, or give --grader", place)
        lower_is_better = self._higher.get(metric) is False
        return {"value": value, "scorer": _score_name(row, metric), "lower_is_better": lower_is_better}


def _metrics(row: Row) -> list[str]:
    """The names of a row's metrics."""
    named = row.get("metrics")
    return sorted(row.keys() - OTHER_COLUMNS) if named is None else list(map(as_text, sequence(named)))


def _score_name(row: Row, metric: str) -> str:
    """The name of a metric with the row's filter, as --scorer takes it."""
    return f"{metric},{as_text(row.get('filter')) or 'none'}"


def _require_other_filter(
    file: LogFile, place: str, by: str, answers: list[str], before: tuple[str, object, set[str]]
) -> None:
    """Raise `LogError` unless a document occurs again only for another filter of the same answers."""
    first, known_hash, filters = before
    if by in filters:
        raise file.refuse(f"has the document of {first} again; remove one of them", place)
    if hash(tuple(answers)) != known_hash:
        raise file.refuse(f"has other answers than {first}, another filter of the same document", place)


def _question_and_settings(row: Row, model: str, api: Any) -> tuple[LoggedQuestion, LoggedSettings]:
    """The question and the model's settings, if the request has them."""
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
    settings = {ours: given[theirs] for theirs, ours in LM_EVAL_SAMPLING.items() if given.get(theirs) is not None}
    if stop := [as_text(text) for text in sequence(given.get("until")) if as_text(text)]:
        settings["stop"] = stop
    if given.get("do_sample") is False:
        settings["temperature"] = 0.0
    return known_sampling(settings)


def _results(path: Path, time: str | None) -> Mapping[str, Any]:
    """Read the file of results next to the samples; empty if there is none."""
    results_path = path.with_name(f"results_{time}.json")
    try:
        return mapping(json.loads(results_path.read_bytes())) if results_path.stat().st_size <= MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _model_from_folder(file: LogFile) -> str:
    """The model's name from its folder, in which `/` is written as `__`."""
    name = file.path.absolute().parent.name.replace("__", "/")
    if "/" not in name:
        raise file.refuse(
            f"does not name its model, and there is no results_TIME.json next to it; write NAME={file.path}"
        )
    return name
