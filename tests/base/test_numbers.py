"""Numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.base.numbers import plain_number


@pytest.mark.parametrize(
    ("value", "significant", "text"),
    [
        (0.00001, 6, "0.00001"),
        (1e6, 6, "1,000,000"),
        (1234567.8, 6, "1,234,568"),
        (150.0, 2, "150"),
        (0.1 + 0.2, 15, "0.3"),
        (2.50, 6, "2.5"),
        (0.0, 6, "0"),
        (-0.25, 1, "-0.2"),
        (float("inf"), 6, "inf"),
    ],
)
def test_a_number_has_no_power_of_ten(value: float, significant: int, text: str) -> None:
    assert plain_number(value, significant) == text
    assert plain_number(value, significant, grouped=False) == text.replace(",", "")


@given(st.floats(-1e15, 1e15).filter(lambda value: value == 0.0 or abs(value) > 1e-12))
def test_fifteen_digits_are_the_number(value: float) -> None:
    text = plain_number(value, 15, grouped=False)
    assert "e" not in text and float(text) == pytest.approx(value, rel=1e-14)
