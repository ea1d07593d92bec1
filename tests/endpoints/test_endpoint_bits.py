"""Bits per token of an answer, by its log-probabilities."""

import pytest

from adaptive_eval.endpoints.answers import mean_bits


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([-1.0, -2.0], 1.5),
        ([-1.0, None, True, -4], 5 / 2),
        ([-1.0, float("nan"), -2.0], 1.5),
        ([float("nan"), -2.0], 2.0),
        ([-1.0, float("-inf")], 1.0),
        ([-1.0, -1e300], 1.0),
        ([float("inf"), float("-inf"), -3.0], 3.0),
        ([-1.0, 5.0, -2.0], 1.5),
        ([5], None),
        ([-1.0, 1e-6], 0.4999995),
        ([float("nan")], None),
        ([], None),
    ],
)
def test_bits_are_of_the_tokens_that_say_something(values: list[object], mean: float | None) -> None:
    bits = mean_bits(values)
    assert bits == (None if mean is None else pytest.approx(mean / 0.6931471805599453))
