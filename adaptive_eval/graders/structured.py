"""The grader for JSON answers: compares a field or the whole document with the answer key."""

import json
import re
from collections import deque
from typing import Any, Literal

from adaptive_eval.graders.answer_text import embedded_json, final_text
from adaptive_eval.graders.types import GraderOptions, Marks, marks
from adaptive_eval.questions.load import as_text
from adaptive_eval.questions.types import Question

FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
BRACKET = re.compile(r"[{\[]")
_NONE = object()


class Json(GraderOptions):
    """Correct: a field of the JSON in the answer equals the answer key.

    The JSON is the whole text, else the last fenced block that is JSON, else the last object or list in the text. The
    key is compared as JSON if it is JSON, else as text; 1, 1.0 and "1" are equal, true and 1 are not.
    """

    kind: Literal["json"] = "json"
    field: str = ""
    """Path of the answer, such as `result.value` or `items.0`; default: the whole document."""

    @property
    def gives(self) -> frozenset[str]:
        return super().gives | {"valid_json"}

    def right_answers(self, question: Question) -> tuple[str, ...]:
        """The key, parsed or as text, at its path in a document."""
        key = _parsed(question.answer)
        values = [question.answer] if key is _NONE else [key, question.answer]
        return tuple(json.dumps(_document_with(value, self.field)) for value in values)

    def grade(self, text: str, question: Question) -> Marks:
        document = _document(final_text(text))
        value = _value_at(document, self.field)
        if value is _NONE:
            return marks(False, None, valid_json=document is not _NONE)
        return marks(_equal(value, _parsed(question.answer), question.answer), as_text(value), valid_json=True)


def _document(text: str) -> Any:
    for candidate in (text, *reversed(FENCE.findall(text))):
        value = _parsed(candidate)
        if value is not _NONE:
            return value
    values = deque(embedded_json(text, BRACKET), maxlen=1)
    return values[0][0] if values else _NONE


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NONE


def _value_at(document: Any, path: str) -> Any:
    value = document
    for part in path.split(".") if path else ():
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and len(part) < 10 and int(part) < len(value):
            value = value[int(part)]
        else:
            return _NONE
    return value


def _document_with(value: Any, path: str) -> Any:
    """A document with a value at a path."""
    for part in reversed(path.split(".") if path else ()):
        value = {part: value}
    return value


def _equal(value: Any, key: Any, written_key: str) -> bool:
    if not isinstance(value, dict | list):
        is_same_kind = isinstance(value, bool) == isinstance(key, bool)
        is_equal = key is not _NONE and is_same_kind and bool(value == key)
        return is_equal or as_text(value).strip() == written_key.strip()
    try:
        return key is not _NONE and _canonical(value) == _canonical(key)
    except RecursionError:  # nested more deeply than the key, which could be parsed
        return False


def _canonical(value: Any) -> str:
    """JSON with sorted keys, where 1.0 is written 1."""
    plain = json.loads(json.dumps(value), parse_float=lambda digits: _as_integer(float(digits)))
    return json.dumps(plain, sort_keys=True)


def _as_integer(number: float) -> float | int:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
