"""Numbers within a tolerance."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adaptive_eval.graders.numeric import Numeric
from adaptive_eval.questions.types import Question


def correct(text: str, key: str, **options: float) -> bool:
    return Numeric(**options).grade(text, Question("q", "?", key)).signals["is_correct"] is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", "42"),
        ("The answer is 42, not 43", "42"),
        ("The answer is 41. No: the answer is 42", "42"),
        ("#### 42\nThank you for 2 minutes", "42"),
        (r"7 then \boxed{42} or 8", "42"),
        (r"\boxed{x = 42}", "42"),
        (r"\boxed{42^\circ}", "42"),
        (r"\boxed{\$42}", "42"),
        (r"\boxed{\sqrt{2}}", None),
        ("$1,234.50", "1,234.50"),
        ("−5", "-5"),
        ("pages 3-5", "5"),
        ("x=-5", "-5"),
        (r"\frac{1}{3}", "1/3"),
        (r"-\dfrac{ 1 }{ 3 }", "-1/3"),
        ("50%", "50%"),
        ("1e-3", "1e-3"),
        ("no number", None),
        ("", None),
    ],
)
def test_which_number_is_meant(text: str, expected: str | None) -> None:
    marks = Numeric().grade(text, Question("q", "?", "0"))
    assert marks.extracted == expected
    assert marks.signals["has_answer"] is (expected is not None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("42.0", "42"),
        ("4.2e1", "42"),
        ("1,000,000", "1000000"),
        ("0.5", "1/2"),
        ("50%", "0.5"),
        ("0.5", "50%"),
        ("$5", "$5"),
        ("1e400", "1e400"),
        ("1" * 900, "1" * 900),
        ("-0", "0"),
    ],
)
def test_equal(text: str, key: str) -> None:
    assert correct(text, key)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("0.3333", "1/3"),
        ("42.0001", "42"),
        ("1e401", "1e400"),
        ("1e99999999999999999999", "3"),
        ("1" * 899 + "2", "1" * 900),
        ("9" * 2000, "1"),
        ("1/0", "1"),
        ("0.1", "0.10000000000000001"),
    ],
)
def test_not_equal(text: str, key: str) -> None:
    assert not correct(text, key)


@pytest.mark.parametrize(
    ("text", "key", "tolerance", "expected"),
    [
        ("3.14", "3.14159", 0.01, True),
        ("3.1", "3.14159", 0.01, False),
        ("101.1", "100", "1%", False),
        ("-101", "-100", "1%", True),
        ("100.5", "100", "0.5%", True),
        ("0.001", "0", "50%", False),
        ("0.33", "1/3", 0.01, True),
    ],
)
def test_tolerance(text: str, key: str, tolerance: float | str, expected: bool) -> None:
    assert correct(text, key, tolerance=tolerance) is expected


@pytest.mark.parametrize("tolerance", [-0.1, "1", "-1%", "many"])
def test_what_is_no_tolerance_is_refused(tolerance: object) -> None:
    with pytest.raises(ValidationError, match="tolerance"):
        Numeric.model_validate({"tolerance": tolerance})


@given(st.decimals(-(10**15), 10**15, places=6), st.decimals(-1, 1, places=6))  # sums that a Decimal holds exactly
def test_tolerance_is_exact_at_its_edge(key: Decimal, off: Decimal) -> None:
    within = abs(off) <= Decimal("0.5")
    assert correct(f"{key + off:f}", f"{key:f}", tolerance=0.5) is within


@pytest.mark.parametrize("key", ["", "seven", "1 or 2", "1e99999999999999999999", "1/0", "1,00"])
def test_a_key_that_is_no_number_is_reported_before_a_run(key: str) -> None:
    assert Numeric().key_problem(Question("q", "?", key)) is not None
