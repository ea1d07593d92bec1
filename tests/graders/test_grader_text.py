"""exact, contains and regex."""

from typing import Any

import pytest
from pydantic import ValidationError

from adaptive_eval.graders.answer_text import final_text
from adaptive_eval.graders.text import Contains, Exact, Regex
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question


def correct(grader: GraderOptions, text: str, key: str) -> Any:
    return grader.grade(text, Question("q", "?", key)).signals["is_correct"]


@pytest.mark.parametrize(
    ("text", "key", "options", "expected"),
    [
        ("Paris", "Paris", {}, True),
        ("\n Paris \t", "Paris", {}, True),
        ("New  York\n", "New York", {}, True),
        ("paris", "Paris", {}, False),
        ("STRASSE", "straße", {"ignore_case": True}, True),
        ("e\u0301te\u0301", "été", {}, True),
        ("Paris.", "Paris", {}, False),
    ],
)
def test_exact(text: str, key: str, options: dict[str, Any], expected: bool) -> None:
    assert correct(Exact(**options), text, key) is expected


@pytest.mark.parametrize(
    ("text", "key", "options", "expected"),
    [
        ("I think it is 5.", "5", {}, True),
        ("I think it is 15.", "5", {}, False),
        ("A CAT!", "cat", {}, True),
        ("A CAT!", "cat", {"ignore_case": False}, False),
        ("C++ it is", "C++", {}, True),
        ("new\nyork", "New York", {}, True),
        ("-5", "5", {}, True),
    ],
)
def test_contains(text: str, key: str, options: dict[str, Any], expected: bool) -> None:
    assert correct(Contains(**options), text, key) is expected


@pytest.mark.parametrize(
    ("text", "key", "options", "expected"),
    [
        ("Answer: 4\nAnswer: 5", "5", {}, True),
        ("So\nAnswer: 4\nAnswer: 5", "4", {"pattern": r"\A(?s:.*?)Answer: (\w+)"}, True),
        ("ANSWER: 5", "5", {"ignore_case": True}, True),
        ("ANSWER: 5", "5", {}, False),
        ("no such thing", "5", {}, False),
    ],
)
def test_regex(text: str, key: str, options: dict[str, Any], expected: bool) -> None:
    assert correct(Regex(**{"pattern": r"Answer: (\w+)", **options}), text, key) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\d+", "12"),
        (r"(\d)\d", "1"),
        (r"(?P<unit>\d)(?P<answer>\d)", "2"),
        (r"(x)?(\d+)", "12"),
        (r"(?P<answer>x)|\d", None),
    ],
)
def test_regex_takes_the_named_group_the_first_group_or_the_match(pattern: str, expected: str | None) -> None:
    assert Regex(pattern=pattern).grade("12", Question("q", "?", "1")).extracted == expected


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValidationError, match="must be a regular expression: missing \\)"):
        Regex(pattern="(")


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a", ""),
        ("b <think>a", "b <think>a"),
        ("<think>a</think>\n<think>b", ""),
        ("<thinking>a</thinking>b", "b"),
        ("<thinking>a</think>b", ""),
        ("b <thinking>a</thinking> b", "b <thinking>a</thinking> b"),
        ("[THINK]a [b] </think>[/THINK]b", "b"),
        ("<think></think>[THINK]a[/THINK]b", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b", ""),
        ("<|channel|>final <|constrain|>json<|message|>{}", "{}"),
    ],
)
def test_final_text(text: str, final: str) -> None:
    assert final_text(text) == final
