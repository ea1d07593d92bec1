"""A case of every grader: its options, a question, and answers that are right and wrong."""

import re
from typing import Any, NamedTuple

from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.questions.types import Question

KEY = Question("q", "?", "4")


def pong(text: str, question: Question, sign: str = "") -> bool:
    """A grader function of one's own."""
    return re.search(rf"(?<!\w){re.escape(question.answer + sign)}(?!\w)", text) is not None


class GraderCase(NamedTuple):
    """What a grader must find right, and what wrong."""

    right: str
    wrong: str
    question: Question = KEY
    options: dict[str, Any] = {}


CASES = {
    "exact": GraderCase(" 4 ", "5"),
    "choice": GraderCase("The answer is (B).", "The answer is (C).", Question("q", "?", "B", ("one", "two", "three"))),
    "numeric": GraderCase("So it is 4.0", "So it is 4.01"),
    "regex": GraderCase(
        "answer is 5, no: answer is 4", "answer is 4, no: answer is 5", options={"pattern": r"answer is (\w+)"}
    ),
    "contains": GraderCase("It is 4, I think.", "It is 44."),
    "math": GraderCase(r"\boxed{\frac{8}{2}}", r"\boxed{5}"),
    "json": GraderCase('```json\n{"a": {"b": 4}}\n```', '{"a": {"b": 5}}', options={"field": "a.b"}),
    "python": GraderCase("4!", "5", options={"function": "grader_cases:pong", "options": {"sign": "!"}}),
}


def graders() -> dict[str, GraderOptions]:
    """Every grader with the options of its case."""
    return {name: GRADERS[name].model_validate(case.options) for name, case in CASES.items()}
