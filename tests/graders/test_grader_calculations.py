"""Numbers that are written as calculations: their value at a bounded cost, and never one that they do not have."""

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from adaptive_eval.graders.bounded import HugeNumber, equal, interval
from adaptive_eval.graders.calculation import value_of
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.questions.types import Question

BOXES = [
    (r"\sum_{k=0}^{1012}\binom{2024}{2k}", "42", False),
    (r"\binom{10^{9}}{5\cdot 10^{8}}", "42", False),
    (r"\binom{2024}{1012}", "42", False),
    (r"2^{2024}-1", "42", False),
    (r"\frac{2024!}{1012!\cdot 1012!}", "42", False),
    (r"\frac{2024!}{1012!\cdot 1012!}", r"\binom{2024}{1012}", True),
    (r"\sum_{k=1}^{2024} k^2", "42", False),
    (r"\sum_{k=1}^{2024} \frac{1}{k(k+1)}", r"\frac{2024}{2025}", True),
    (r"\prod_{k=1}^{100} \frac{k+1}{k}", "101", True),
    ("2024!", "42", False),
    ("100!", "42", False),
    (r"\sqrt{2024}", "42", False),
    (r"\sqrt[3]{2024}+\pi", "42", False),
    ("3^{3^{3^{3}}}", "42", False),
    ("9^{9^{9^{9}}}", "42", False),
    ("(10^{1000})!", "42", False),
    (r"\frac{1+\sqrt{5}}{2}", "42", False),
    (r"\left(\frac{1+\sqrt{5}}{2}\right)^{2024}", "42", False),
    (r"\sum_{k=1}^{2024}\binom{2024}{k}k", "42", False),
    (r"\sum_{k=0}^{100} (-1)^k \binom{100}{k}", "0", True),
    (r"\prod_{k=1}^{2024}\left(1+\frac{1}{k^2}\right)", "42", False),
    (r"\sum_{k=1}^{1000} \sqrt{k}", "42", False),
    (r"\sum_{k=1}^{99}\frac{1}{\sqrt{k}+\sqrt{k+1}}", "9", True),
    (r"\binom{100}{50}\cdot 2^{50}", "42", False),
    ("(2^{1000}+1)(2^{1000}-1)", "2^{2000}-1", True),
    ("7^{7^{7}}", "42", False),
    (r"\frac{10^{2024}-1}{9}", "42", False),
    (r"\lfloor \sqrt{2024} \rfloor", "44", True),
    (r"\frac{\binom{52}{5}}{4}", "649740", True),
    (r"\sum_{i=1}^{100}\sum_{j=1}^{100} ij", "25502500", True),
    (r"\sum_{k=0}^{2024} \binom{2024}{k}\binom{2024}{2024-k}", "42", False),
    (r"\sum_{k=0}^{1012}\binom{2024}{2k}", "2^{2023}", True),
    (r"\sum_{k=1}^{10} k!", "4037913", True),
    (r"2\cos(\frac{\pi}{5})", r"\frac{1+\sqrt{5}}{2}", True),
    (r"\sqrt{2}\sqrt{3}", r"\sqrt{6}", True),
    ("-7^{2}", "-49", True),
]


@pytest.mark.parametrize(("said", "key", "correct"), BOXES)
def test_competition_boxes_are_graded_quickly(said: str, key: str, correct: bool) -> None:
    start = time.process_time()
    signals = Math().grade(rf"\boxed{{{said}}}", Question("q", "?", key)).signals
    assert (signals["is_correct"], signals["method"]) == (correct, "number")
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize(
    "latex",
    [
        r"2\frac{1}{2}",
        r"1/2\pi",
        "2^10",
        "3!!",
        "1 2",
        "x",
        "x+1",
        "3,5",
        "50%",
        r"\sin 30^\circ",
        r"\sum_{k=1}^{\infty}\frac{1}{k^2}",
        r"\sum_{n=1}^{10^{9}} n",
        r"\sum_{k=1}^{3} n",
        r"\pm 3",
        "1/0",
        r"\sqrt{-1}",
        "0^{-1}",
        "(1",
        "1)",
        "",
        "{" * 400 + "1" + "}" * 400,
        r"\sum_{k=1}^{10000}\sum_{j=1}^{10000}\frac{1}{k+j}",
        r"\tan(\frac{\pi}{2})" + "0",
        "2^{-10^{12}}",
        r"\binom{10^{300}}{3}",
    ],
)
def test_what_is_not_plain_arithmetic_has_no_value(latex: str) -> None:
    start = time.process_time()
    assert value_of(latex) is None
    assert time.process_time() - start < 5.0


terms = st.recursive(
    st.integers(0, 40).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda parts: f"({''.join(parts)})"),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]})/({parts[1]})"),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(terms)
def test_arithmetic_is_that_of_python(text: str) -> None:
    exact = "".join(f"Fraction({part})" if part.isdigit() else part for part in _parts(text))
    try:
        expected = eval(exact, {"Fraction": Fraction})  # digits and signs that were made above
    except ZeroDivisionError:
        expected = None
    assert value_of(text) == expected


def _parts(text: str) -> list[str]:
    parts = [""]
    for character in text:
        if character.isdigit() and parts[-1].isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@settings(max_examples=examples(100), deadline=None)
@given(st.fractions(), st.fractions())
def test_intervals_hold_what_they_stand_for(one: Fraction, other: Fraction) -> None:
    first, second = interval(one), interval(other)
    assert equal(first, one) is not False
    if equal(first, second) is not None:
        assert equal(first, second) == (one == other)


def test_sizes_are_lower_bounds() -> None:
    assert equal(HugeNumber(1000.0), Fraction(10**900)) is False
    assert equal(HugeNumber(1000.0), Fraction(10**1100)) is None
    assert equal(HugeNumber(1000.0), HugeNumber(2000.0)) is None
    assert equal(HugeNumber(1000.0), HugeNumber(1000.0, sign=-1)) is False
