"""The result that a command reports in the last line that it prints, and the grader that takes its score."""

import json
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from adaptive_eval.base.errors import GraderError
from adaptive_eval.base.json_objects import RepeatedKey, object_of
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.types import GraderOptions, Marks, SignalValue, score_signals
from adaptive_eval.questions.load import as_text
from adaptive_eval.questions.types import Question

MAX_LINE_CHARS = 2**20
"""Longest line that is read as a result."""
MAX_TOKENS = 10**12
MAX_USD = 1e9
MAX_SCORE = 1e9
MAX_SHOWN = 60


class UnusableResult(Exception):
    """A line is meant as a result, and a value in it cannot be used."""


class ReportedResult(NamedTuple):
    """A command's report of its trial; None where it reports nothing."""

    score: float | None = None
    answer: str | None = None
    tokens: int | None = None
    usd: float | None = None
    transcript: str | None = None
    """A path."""

    @property
    def line(self) -> str:
        """The result as a line of JSON, for `parse_result`."""
        return json.dumps({name: value for name, value in self._asdict().items() if value is not None})

    @property
    def marks(self) -> Marks | None:
        """The marks by the score; None without a score."""
        if self.score is None:
            return None
        return Marks({**score_signals(self.score), "has_answer": True}, self.answer)


def parse_result(line: str) -> ReportedResult | None:
    """The result in a line; None if it is no JSON object with any of its keys. Raises `UnusableResult`."""
    if len(line) > MAX_LINE_CHARS or not line.lstrip().startswith("{"):
        return None
    repeated = None
    try:
        try:
            values = json.loads(line, object_pairs_hook=object_of)
        except RepeatedKey as error:
            repeated, values = error, json.loads(line)
    except (ValueError, RecursionError):  # other text, numbers too long, or nested too deeply
        return None
    if not isinstance(values, dict) or not values.keys() & set(ReportedResult._fields):
        return None
    if repeated is not None:
        raise UnusableResult(f"it has the key {repeated} twice, and must have it once")
    return ReportedResult(
        score=_number(values, "score", -MAX_SCORE, MAX_SCORE),
        answer=_text(values, "answer"),
        tokens=_tokens(values),
        usd=_number(values, "usd", 0.0, MAX_USD),
        transcript=_path(values),
    )


def split_output(output: str) -> tuple[str, ReportedResult]:
    """The output of a command, without its last line if that is a result. Raises `UnusableResult`."""
    text = output.rstrip()
    body, _, last = text.rpartition("\n")
    result = parse_result(last)
    return (text, ReportedResult()) if result is None else (body.rstrip(), result)


def result_of(answer: Answer) -> ReportedResult:
    """The result that came with an answer: the last line of what is stored as its reasoning."""
    try:
        return parse_result((answer.reasoning or "").rpartition("\n")[2]) or ReportedResult()
    except UnusableResult:  # nothing is certain in a run directory
        return ReportedResult()


def _number(values: Mapping[str, object], name: str, low: float, high: float) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not low <= value <= high:  # so is nan
        raise UnusableResult(f"its {name} must be a number from {low:g} to {high:g}, but is {_shown(value)}")
    return float(value)


def _tokens(values: Mapping[str, object]) -> int | None:
    number = None if isinstance(values.get("tokens"), bool) else _number(values, "tokens", 0.0, MAX_TOKENS)
    if values.get("tokens") is not None and (number is None or not number.is_integer()):
        raise UnusableResult(f"its tokens must be a whole number, but are {_shown(values['tokens'])}")
    return None if number is None else int(number)


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    if isinstance(value, dict | list) or (isinstance(value, float) and not math.isfinite(value)):
        raise UnusableResult(f"its {name} must be a text or a number, but is {_shown(value)}")
    # half of a surrogate pair cannot be stored
    return None if value is None else as_text(value).encode("utf-8", "replace").decode()


def _path(values: Mapping[str, object]) -> str | None:
    if not isinstance(values.get("transcript", ""), str | None):
        raise UnusableResult(f"its transcript must be a path, but is {_shown(values['transcript'])}")
    return _text(values, "transcript")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits
        return "too long to be shown"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."


class Reported(GraderOptions):
    """Takes the `score` that a command reports: 1 is right, 0 is wrong, and others need a rubric."""

    reads_key = False
    comes_with_answer = True
    kind: Literal["reported"] = "reported"

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"score", "is_correct", "has_answer"})

    def stored_marks(self, answer: Answer, signals: Mapping[str, SignalValue], extracted: str | None) -> Marks | None:
        return result_of(answer).marks

    def grade(self, text: str, question: Question) -> Marks:
        raise GraderError("takes the score that a command reports, and this answer has none")
