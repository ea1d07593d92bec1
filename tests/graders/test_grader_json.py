"""Fields of JSON answers."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.graders.structured import Json
from adaptive_eval.questions.types import Question


def grade(text: str, key: str, field: str = "") -> dict[str, Any]:
    return dict(Json(field=field).grade(text, Question("q", "?", key)).signals)


@pytest.mark.parametrize(
    ("text", "field", "key"),
    [
        ('{"a": 1}', "a", "1"),
        ('{"a": "x"}', "a", '"x"'),
        ('{"a": {"b": [10, 20]}}', "a.b.1", "20"),
        ('{"a": 1.0}', "a", "1"),
        ('{"a": "1"}', "a", "1"),
        ('{"a": true}', "a", "true"),
        ('{"a": [1, 2]}', "a", "[1.0, 2]"),
        ('{"b": 2, "a": 1}', "", '{"a": 1, "b": 2}'),
        ('Sure!\n```json\n{"a": 1}\n```\nDone.', "a", "1"),
        ('```\n{"a": 0}\n```\n```json\n{"a": 1}\n```', "a", "1"),
        ('I answer {"a": 1}, as asked.', "a", "1"),
        ('First {"a": 0} then {"a": 1}', "a", "1"),
        ('a set {x} and {"a": 1}', "a", "1"),
    ],
)
def test_correct(text: str, field: str, key: str) -> None:
    assert grade(text, key, field) == {"is_correct": True, "has_answer": True, "valid_json": True}


@pytest.mark.parametrize(
    ("text", "field", "key"),
    [
        ('{"a": 2}', "a", "1"),
        ('{"a": true}', "a", "1"),
        ('{"a": [2, 1]}', "a", "[1, 2]"),
        ('{"a": "x"}', "a", "X"),
    ],
)
def test_wrong(text: str, field: str, key: str) -> None:
    assert grade(text, key, field) == {"is_correct": False, "has_answer": True, "valid_json": True}


@pytest.mark.parametrize(("text", "valid"), [('{"b": 1}', True), ("[1]", True), ('{"a": ', False), ("a: 1", False)])
def test_without_the_field_there_is_no_answer(text: str, valid: bool) -> None:
    assert grade(text, "1", "a") == {"is_correct": False, "has_answer": False, "valid_json": valid}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=examples(50))
@given(values, st.sampled_from(["{}", "Here:\n```json\n{}\n```", "I say: {}"]))
def test_any_value_is_found_and_equal_to_itself(value: Any, around: str) -> None:
    document = json.dumps({"value": value})
    signals = grade(around.replace("{}", document), json.dumps(value), "value")
    if "```" not in document:
        assert signals["is_correct"] is True
