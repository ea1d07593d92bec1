"""Property tests draw the same examples in every run, and others only where that is asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import THOROUGH, only_drawn


def drawn(chosen: settings) -> list[list[int]]:
    examples: list[list[int]] = []

    @chosen
    @given(st.lists(st.integers()))
    def draw(example: list[int]) -> None:
        examples.append(example)

    draw()
    return examples


@pytest.mark.parametrize("chosen", [settings(max_examples=20), only_drawn(20)])
def test_a_property_draws_the_same_examples_each_time(chosen: settings) -> None:
    assert (drawn(chosen) == drawn(chosen)) is not THOROUGH
