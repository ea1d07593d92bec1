"""From a question to the line that a command is given, and from what it prints to an answer."""

import json
from typing import Any

import pytest

from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.graders.types import MarkedAnswer
from adaptive_eval.questions.types import Question
from adaptive_eval.supplies.commands.outcome import (
    CommandOutcome,
    answer_cost,
    make_answer,
    question_text,
    read_outcome,
)
from adaptive_eval.supplies.commands.process import EndedCommand

QUESTION = Question("q1", "1 + 1?", "2", ("1", "2"), "sums", {"repo": "x", "id": "other"}, ("another's answer",))
SECRET = "sk-live-4f9c2e71d8a3b605e9c7"


def given(*names: str, prompt: Prompt | None = None) -> dict[str, Any]:
    values = json.loads(question_text(QUESTION, prompt or Prompt(text="1 + 1?"), 3, 77, names))
    assert isinstance(values, dict)
    return values


def outcome(output: str, *, needs_score: bool = False, **changes: Any) -> CommandOutcome:
    values: dict[str, Any] = {"status": 0, "errors": "", "seconds": 1.5, "is_late": False, "is_flood": False}
    return read_outcome(
        EndedCommand(output=output, **values | changes), 60.0, Redactor([SECRET]), needs_score=needs_score
    )


def test_a_command_gets_the_fields_that_are_named_and_no_answer_key_else() -> None:
    asked = {"id": "q1", "prompt": "1 + 1?", "trial": 3, "seed": 77}
    assert given() == asked
    assert given("choices", "cluster", "repo", "id") == asked | {"choices": ["1", "2"], "cluster": "sums", "repo": "x"}
    assert given("answer") == asked | {"answer": "2"}


def test_the_turns_of_a_chat_are_one_prompt() -> None:
    chat = Prompt(messages=(Message("system", "Be brief."), Message("user", "1 + 1?")))
    assert given(prompt=chat)["prompt"] == "Be brief.\n\n1 + 1?"


@pytest.mark.parametrize(
    ("output", "text", "reasoning"),
    [
        ("so\nit is 2\n", "so\nit is 2", None),
        ('so\nit is 2\n{"tokens": 7}\n', "so\nit is 2", '{"tokens": 7}'),
        ('so\n{"answer": 2, "usd": 0.5}', "2", 'so\n{"answer": "2", "usd": 0.5}'),
        ('{"answer": ""}\n', "", '{"answer": ""}'),
        ('{"a": 1}', '{"a": 1}', None),
    ],
)
def test_the_answer_is_what_is_given_or_else_printed(output: str, text: str, reasoning: str | None) -> None:
    answer = make_answer(outcome(output), 5, "./agent", 2, is_graded=False)
    assert (answer.text, answer.reasoning, answer.seed, answer.attempts, answer.latency) == (text, reasoning, 5, 2, 1.5)
    assert not isinstance(answer, MarkedAnswer) and ("empty" in answer.signals) == (not text)


def test_a_score_is_the_grade_and_its_usage_the_cost() -> None:
    answer = make_answer(outcome('{"score": 1, "tokens": 9, "usd": 0.25}', needs_score=True), 5, "x", 1, is_graded=True)
    assert isinstance(answer, MarkedAnswer) and answer.marks is not None and answer.marks.signals["is_correct"] is True
    assert not answer.signals, "it says nothing, and is not empty"
    assert answer_cost(answer) == Cost(9, 0.25) and answer.completion_tokens == 9
    assert answer_cost(make_answer(outcome("2"), 5, "x", 1, is_graded=False)) == Cost()


@pytest.mark.parametrize(
    ("output", "changes", "problem"),
    [
        ('{"score": 1}', {"status": 3}, "exited with status 3"),
        ('{"score": 1}', {"status": -9}, "was killed by SIGKILL"),
        ('{"score": 1}', {"status": None}, "was stopped"),
        ('{"score": 1}', {"status": None, "is_late": True}, "did not end within 60 s"),
        ("yyy", {"status": None, "is_flood": True}, "printed more than 1 GiB"),
        ('{"score": "1"}', {}, "printed a result that cannot be used: its score must be a number from -1e+09 to"),
        ("", {}, "printed no answer"),
        ('{"tokens": 3}', {}, "printed no answer"),
        (
            "all good",
            {"needs_score": True},
            "reported no score: its last line is 'all good', and must be like {\"score\"",
        ),
        ('{"answer": 2}', {"needs_score": True}, "reported no score: its last line is '{\"answer\": 2}'"),
    ],
)
def test_what_is_no_answer_has_a_reason(output: str, changes: dict[str, Any], problem: str) -> None:
    assert (outcome(output, **changes).problem or "").startswith(problem)


def test_the_end_of_standard_error_is_shown_safely() -> None:
    errors = "first\n" * 50 + f"\x1b[31mno key {SECRET}\x1b[0m\r\n\u202etraceback" + "x" * 5000
    problem = outcome(f"\x1b]0;title\x07 {SECRET}", status=1, errors=errors).problem or ""
    head, *lines = problem.splitlines()
    assert head == f"exited with status 1; its standard error ends with: {lines[-1].strip()}" and "xxx" in head
    assert lines[:-1] == ["  first", "  first", "  no key ***"]
    assert not set(problem) & {"\x1b", "\r", "\u202e", "\x07"} and SECRET not in problem and len(problem) < 500
    needs_score = outcome(f"\x1b]0;title\x07 {SECRET}", needs_score=True).problem or ""
    assert "\x1b" not in needs_score and SECRET not in needs_score


def test_one_line_of_standard_error_is_shown_once() -> None:
    assert outcome("", status=3, errors="no such skill: v2\n").problem == (
        "exited with status 3; its standard error ends with: no such skill: v2"
    )


def test_a_failed_command_still_says_what_it_has_used() -> None:
    assert outcome('{"usd": 0.5}', status=1).used.usd == 0.5
    assert outcome('{"usd": -1}', status=1).used.usd is None
