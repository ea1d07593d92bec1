"""What a command reports: its last line, whatever it holds, is a result, plain text, or unusable."""

import json
import math

import pytest

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.reported import (
    MAX_LINE_CHARS,
    Reported,
    ReportedResult,
    UnusableResult,
    parse_result,
    result_of,
    split_output,
)
from adaptive_eval.questions.types import Question


def answer(reasoning: str | None) -> Answer:
    return Answer("", "stop", 0, "x", 0.0, reasoning=reasoning)


def test_all_keys_are_read_as_they_are_written_and_others_ignored() -> None:
    line = '{"score": 0.5, "answer": 42, "tokens": 7.0, "usd": 1e-3, "transcript": "a.txt", "steps": [1]}'
    assert parse_result(line) == ReportedResult(0.5, "42", 7, 0.001, "a.txt")
    assert parse_result('{"score": true}') == ReportedResult(1.0)
    assert parse_result('{"score": null, "answer": "x"}') == ReportedResult(answer="x")
    result = ReportedResult(1 / 3, 'a "quoted"\nanswer', 10**9, math.pi, "x/y.txt")
    assert parse_result(result.line) == result and "\n" not in result.line


OTHER = [
    "",
    "42",
    "[1]",
    '"score"',
    "{}",
    '{"steps": 3}',
    '{"steps": 3, "steps": 4}',
    "{score: 1}",
    '{"score": 1} done',
]
TOO_MUCH = {
    "deep": '{"score": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "digits": '{"score": ' + "9" * 10_000 + "}",
    "long": json.dumps({"answer": "x" * MAX_LINE_CHARS}),
}


@pytest.mark.parametrize("line", [*OTHER, *TOO_MUCH.values()], ids=[*OTHER, *TOO_MUCH])
def test_other_lines_and_those_that_are_too_much_are_text(line: str) -> None:
    assert parse_result(line) is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ('{"score": NaN}', "its score must be a number from -1e+09 to 1e+09, but is nan"),
        ('{"score": "1"}', "its score must be a number from -1e+09 to 1e+09, but is '1'"),
        ('{"score": ' + "9" * 400 + "}", "its score must be"),
        ('{"score": 1, "score": 0}', "it has the key 'score' twice, and must have it once"),
        ('{"score": 1, "usd": -0.01}', "its usd must be a number from 0 to 1e+09, but is -0.01"),
        ('{"tokens": 1.5}', "its tokens must be a whole number, but are 1.5"),
        ('{"tokens": true}', "its tokens must be a whole number, but are True"),
        ('{"tokens": 1e15}', "its tokens must be"),
        ('{"answer": {"a": 1}}', "its answer must be a text or a number, but is {'a': 1}"),
        ('{"transcript": 3}', "its transcript must be a path, but is 3"),
    ],
)
def test_values_that_cannot_be_used_are_named(values: str, problem: str) -> None:
    with pytest.raises(UnusableResult) as error:
        parse_result(values)
    assert str(error.value).startswith(problem) and len(str(error.value)) < 200


def test_the_result_is_the_last_line_with_words() -> None:
    assert split_output('a\n{"score": 0}\nb\n{"score": 1}\n\n') == ('a\n{"score": 0}\nb', ReportedResult(1.0))
    assert split_output('{"score": 1}') == ("", ReportedResult(1.0))
    assert split_output('{"score": 1}\nbye\n') == ('{"score": 1}\nbye', ReportedResult())
    assert split_output("") == ("", ReportedResult())


def test_a_score_between_is_neither_right_nor_wrong() -> None:
    signals = {score: dict(ReportedResult(score, "x").marks.signals) for score in (0.0, 0.5, 1.0)}  # type: ignore[union-attr]
    assert signals[0.5] == {"score": 0.5, "has_answer": True}
    assert signals[0.0]["is_correct"] is False and signals[1.0]["is_correct"] is True
    assert ReportedResult(answer="x").marks is None


def test_the_grade_of_a_stored_answer_is_in_its_last_line() -> None:
    line = ReportedResult(1.0, tokens=3).line
    marks = Reported().stored_marks(answer(f"thoughts\n{line}"), {}, None)
    assert marks is not None and marks.signals["is_correct"] is True
    for reasoning in (None, "thoughts", '{"tokens": 3}', '{"score": "1"}', '{"score": NaN}'):
        assert Reported().stored_marks(answer(reasoning), {"score": 1.0}, None) is None
    assert result_of(answer('{"usd": NaN}')) == ReportedResult()
    with pytest.raises(GraderError, match="takes the score that a command reports, and this answer has none"):
        Reported().grade(line, Question("q", "?", "1"))
