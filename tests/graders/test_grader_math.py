"""Mathematics: boxes, text, numbers, expressions, and the traps of math-verify."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.answer_text import MAX_BOX, last_box
from adaptive_eval.graders.mathematics import Math, normal_form, rational
from adaptive_eval.graders.oversized import oversized
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.questions.types import Question

balanced = st.recursive(
    st.text(alphabet="ab1 +\n$", max_size=4),
    lambda inner: st.lists(
        inner | inner.map(lambda text: f"{{{text}}}") | st.sampled_from([r"\{", r"\}", r"\frac"])
    ).map("".join),
)


def grade(answer: str, key: str) -> tuple[bool, str]:
    signals = Math().grade(rf"So it is $\boxed{{{answer}}}$.", Question("q", "?", key)).signals
    return signals["is_correct"] is True, str(signals["method"])


class TestBox:
    @pytest.mark.parametrize(
        ("text", "inside"),
        [
            (r"\boxed{5}", "5"),
            (r"\boxed{1} then \boxed{2}", "2"),
            (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
            (r"\boxed{\boxed{3}}", "3"),
            (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
            (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
            ("\\boxed{\n 7 \n}", "7"),
            (r"\boxed{2} and put it in \boxed{}.", "2"),
            (r"\boxed{2} and \boxed{3", "2"),
            (r"\boxed 5", "5"),
            ("\\boxed{5}\\", "5"),
            (r"\boxed{}", None),
            (r"\boxed{5", None),
            (r"use \boxed as asked", None),
            (r"\boxedx{5}", None),
            ("", None),
        ],
    )
    def test_examples(self, text: str, inside: str | None) -> None:
        assert last_box(text) == inside

    @settings(max_examples=examples(60))
    @given(balanced, st.text(alphabet="ab{}$ \n"), st.text(alphabet="ab{}$ \n"))
    def test_what_goes_in_comes_out(self, inside: str, before: str, after: str) -> None:
        assert last_box(f"{before}\\boxed{{{inside}}}{after}") == (inside.strip() or None)

    def test_a_box_that_never_closes_is_left_alone(self) -> None:
        assert last_box("\\boxed{1} \\boxed{" + "x" * (MAX_BOX + 1) + "}") == "1"


class TestNormal:
    @pytest.mark.parametrize(
        "texts",
        [
            ("(1,2)", "( 1, 2 )", r"\left(1,\,2\right)", "$(1,2)$", r"\((1,2)\)"),
            ("1/2", "1 / 2", "1/2."),
            (r"\frac{1}{2}", r"\frac12", r"\dfrac{1}{2}", r"\tfrac12"),
            ("evelyn", "Evelyn", r"\text{Evelyn}", r"\textbf{ Evelyn }", r"\mathrm{Evelyn}"),
            ("5", r"5^\circ", r"5^{\circ}", "5°", r"\$5", "$5$", " 5. "),
            ("50%", r"50\%", r"50 \%"),
            ("-1", "−1"),
        ],
    )
    def test_the_same(self, texts: tuple[str, ...]) -> None:
        assert len({normal_form(text) for text in texts}) == 1

    @pytest.mark.parametrize("texts", [("12", "1 2"), (r"\Phi", r"\phi"), ("(1,2)", "[1,2]"), ("1,2", "2,1")])
    def test_not_the_same(self, texts: tuple[str, str]) -> None:
        assert normal_form(texts[0]) != normal_form(texts[1])

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("042", 42),
            ("1,000", 1000),
            ("1{,}000,000", 1_000_000),
            ("-.5", -0.5),
            (r"-\frac{3}{4}", -0.75),
            ("3/4", 0.75),
            ("1,00", None),
            ("1, 000", None),
            ("1/0", None),
            ("x", None),
            ("1e5", None),
            ("", None),
            ("9" * 2000, None),
        ],
    )
    def test_values(self, text: str, value: float | None) -> None:
        assert rational(text) == value


class TestTraps:
    """What math-verify makes of pairs that people stumble over; a change of its version shows here."""

    @pytest.mark.parametrize(
        ("answer", "key", "method"),
        [
            ("070", "70", "number"),
            ("1,000", "1000", "number"),
            ("0.5", r"\frac{1}{2}", "number"),
            ("2,3", "(2,3)", "expression"),
            (r"\{2,1\}", r"\{1,2\}", "expression"),
            ("0.33333333", r"\frac{1}{3}", "expression"),
            ("0.5", "50%", "expression"),
            (r"10\text{ cm}", "10", "expression"),
            ("x = 3", "3", "expression"),
            (r"\frac{1}{\sqrt{2}}", r"\sqrt{2}/2", "expression"),
            ("(x-1)(x+1)", "x^2-1", "expression"),
            ("3628800", "10!", "expression"),
            (r"\text{Evelyn}", "Evelyn", "text"),
            ("3/4", "$\\boxed{0.75}$", "number"),
            (r"\sqrt[9]{512}", "2", "expression"),
            ("101_{2}", "101_2", "expression"),
            ("101", "101_2", "expression"),
        ],
    )
    def test_equal(self, answer: str, key: str, method: str) -> None:
        assert grade(answer, key) == (True, method)

    @pytest.mark.parametrize(
        ("answer", "key", "method"),
        [
            ("[1,2]", "(1,2)", "expression"),
            (r"\frac{1}{3}", "0.333", "number"),
            ("6.283", r"2\pi", "expression"),
            ("1 2", "12", "expression"),
            (r"5 \text{ or } 6", "5", "expression"),
            ("x", "y", "expression"),
            ("101_3", "101_2", "text"),
            ("101_{10}", "101_{2}", "text"),
            ("101_{(3)}", "101_2", "text"),
            ("110_2", "101_2", "expression"),
        ],
    )
    def test_not_equal(self, answer: str, key: str, method: str) -> None:
        assert grade(answer, key) == (False, method)

    @pytest.mark.parametrize(
        ("answer", "key"), [("{" * 400 + "1" + "}" * 400, "2"), ("x+" * 2000 + "1", "2"), ("(" * 400 + ")" * 400, "2")]
    )
    def test_nothing_is_computed_that_cannot_matter(self, answer: str, key: str) -> None:
        start = time.process_time()
        assert grade(answer, key)[0] is False
        assert time.process_time() - start < 60.0

    def test_an_empty_box_is_no_answer(self) -> None:
        marks = Math().grade(r"\boxed{}", Question("q", "?", "1"))
        assert marks == ({"is_correct": False, "has_answer": False, "has_box": False, "method": "none"}, None)

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ("The answer is 42.", "42"),
            ("Thus $x = \\frac{1}{2}$.", "0.5"),
            ("The answer is **42**.", "42"),
            ("**Final answer:** *42*", "42"),
            ("So it is `42`.", "42"),
            ("3**2 and 4**2 leave 42", "42"),
            ("The answer is −3.", "-3"),
            ("**Answer: −3**", "-3"),
            ("5 − 8 = −3", "-3"),
            ("The answer is −1/2.", "-0.5"),
            ("The answer is 101_2.", "101_2"),
        ],
    )
    def test_without_a_box_the_end_of_the_text_is_read(self, text: str, key: str) -> None:
        signals = Math().grade(text, Question("q", "?", key)).signals
        assert (signals["is_correct"], signals["has_box"]) == (True, False)

    def test_another_base_is_wrong_without_a_box_too(self) -> None:
        for text in ("The answer is 101_3.", "The answer is $101_3$."):
            assert Math().grade(text, Question("q", "?", "101_2")).signals["is_correct"] is False

    def test_the_box_decides_whatever_stands_beside_it(self) -> None:
        assert Math().grade(r"\boxed{41} The answer is 42.", Question("q", "?", "42")).signals["is_correct"] is False


@pytest.mark.parametrize("text", ["So x = 4.", "The answer is 4", "$4$", "4", "", "\\boxed{5} or 4", "\\boxed{8/2}"])
def test_a_rubric_can_count_only_boxes(text: str) -> None:
    categories = [
        {"name": "boxed", "weight": 1, "when": {"is_correct": True, "has_box": True}},
        {"name": "rest", "weight": 0},
    ]
    rubric = open_rubric(RubricConfig.model_validate_json(json.dumps({"categories": categories})))
    marks = Math().grade(text, Question("q", "?", "4"))
    assert marks.signals["has_box"] == ("boxed" in text)
    assert rubric.names[rubric.category(marks.signals)] == ("boxed" if text == "\\boxed{8/2}" else "rest")


NINES = "9" * 400
BOMBS = [
    (r"(x+1)^{10000}", "power"),
    (r"\left(\frac{x+1}{x-1}\right)^{5000}", "power"),
    (r"x^{9^{9^9}}", "exponent"),
    ("9^{9^{9^{9}}}", "exponent"),
    ("10^1000000000", "exponent"),
    ("10000000000!", "factorial"),
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


@pytest.mark.parametrize("giant", ["10^{10^{10}}", "9^{9^{9^{9}}}", "10000000000!"])
def test_giants_written_alike_are_equal(giant: str) -> None:
    assert grade(giant, rf"${giant}$") == (True, "text")


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
