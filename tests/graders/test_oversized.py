"""Expressions that would keep a computer algebra system busy are known by their size; others are compared."""

import pytest

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.graders.oversized import oversized
from adaptive_eval.questions.types import Question

NINES = "9" * 400
BOMBS = [
    (r"(x+1)^{10000}", "power"),
    (r"\left(\frac{x+1}{x-1}\right)^{5000}", "power"),
    (r"x^{9^{9^9}}", "exponent"),
    (rf"x^{{{NINES}}}", "digits"),
    (r"\sum_{k=1}^{10^9} \frac{x}{k}", "bound"),
    (r"100000!x", "factorial"),
    (r"\left(10^{7}\right)!x", "factorial"),
    (r"\binom{10^{9}}{5\cdot 10^{8}}x", "binomial"),
    (r"{10^{9} \choose 10^{8}}x", "binomial"),
    (r"\{" + ",".join(map(str, range(90))) + r"\}", "parts"),
    ("+".join(f"x^{{{k}}}" for k in range(90)), "parts"),
    ("|x-" * 20 + "1" + "|" * 20, "bars"),
]


@pytest.mark.parametrize(("answer", "what"), BOMBS)
def test_what_would_take_minutes_is_no_grade_at_once(answer: str, what: str) -> None:
    assert oversized(answer, "x^2-1") == what
    with pytest.raises(GraderError, match=rf"cannot compare an answer of this size \({what}\)"):
        Math().grade(rf"So \boxed{{{answer}}}", Question("q", "?", "x^2-1"))


@pytest.mark.parametrize(
    "answer",
    [
        r"2^{2024}-1",
        r"\binom{2024}{1012}",
        r"\left(2^{3}\right)!x",
        r"{2024 \choose 1012}",
        r"\sum_{k=0}^{1000} x^k",
        r"\int_{0}^{1} x^{100} dx",
        r"n^{n^{n}}",
        "0." + "3" * 600,
        r"|x-1|+|x-2|+|x-3|",
    ],
)
def test_usual_answers_are_small(answer: str) -> None:
    assert oversized(answer, "x") is None


def test_a_key_may_have_what_its_answers_have() -> None:
    assert oversized("(1+x)^{100}", "(x+1)^{100}") is None
    assert oversized("(1+x)^{101}", "(x+1)^{100}") == "power"
    for answer, right in (("(1+x)^{31}", True), ("(1+x)^{30}", False)):
        marks = Math().grade(rf"\boxed{{{answer}}}", Question("q", "?", "(x+1)^{31}"))
        assert marks.signals["is_correct"] is right


@pytest.mark.parametrize(
    "answer", ["^", "^{", "{^}", "((((", "_{^", "}}^{2}", r"\binom{", "x^{9" + "^{9" * 200, "!" * 900]
)
def test_broken_expressions_have_a_size_too(answer: str) -> None:
    assert oversized(answer, answer) is None
