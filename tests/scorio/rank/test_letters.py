"""Compact letter displays: letters say exactly what the matrix of pairs says, with no letter too many."""

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scorio.rank import letter_display


def letters(text: str) -> set[str]:
    return set(re.findall(r"[a-zA-Z]\d*", text))


@st.composite
def matrices(draw: st.DrawFn) -> NDArray[np.bool_]:
    models = draw(st.integers(1, 9))
    apart = np.zeros((models, models), bool)
    for first, second in combinations(range(models), 2):
        apart[first, second] = apart[second, first] = draw(st.booleans())
    return apart


@given(matrices())
def test_a_letter_is_shared_exactly_by_those_who_are_not_told_apart(apart: NDArray[np.bool_]) -> None:
    shown = [letters(row) for row in letter_display(apart)]
    assert all(shown)
    for first, second in combinations(range(len(apart)), 2):
        assert bool(shown[first] & shown[second]) != apart[first, second]


@given(matrices())
def test_the_groups_are_all_that_cannot_grow(apart: NDArray[np.bool_]) -> None:
    """By brute force over all sets of models: those without a pair told apart that are part of no larger one."""
    models = len(apart)
    alike = [
        frozenset(group)
        for size in range(1, models + 1)
        for group in combinations(range(models), size)
        if not apart[np.ix_(group, group)].any()
    ]
    largest = {group for group in alike if not any(group < other for other in alike)}
    shown = [letters(row) for row in letter_display(apart)]
    groups = {letter: frozenset(at for at in range(models) if letter in shown[at]) for letter in set().union(*shown)}
    assert set(groups.values()) == largest
    assert len(groups) == len(largest)


@pytest.mark.parametrize(
    ("apart", "shown"),
    [
        ([], ("a", "a", "a")),
        ([(0, 2)], ("a", "ab", "b")),
        ([(0, 1), (0, 2), (1, 2)], ("a", "b", "c")),
        ([(0, 1), (0, 2)], ("a", "b", "b")),
    ],
)
def test_the_best_model_has_the_first_letter(apart: list[tuple[int, int]], shown: tuple[str, ...]) -> None:
    matrix = np.zeros((3, 3), bool)
    for first, second in apart:
        matrix[first, second] = matrix[second, first] = True
    assert letter_display(matrix) == shown


def test_letters_past_the_alphabet_stay_apart() -> None:
    shown = letter_display(~np.eye(120, dtype=bool))
    assert shown[:2] + shown[51:53] + shown[104:105] == ("a", "b", "Z", "a2", "a3")
    assert len(set(shown)) == 120
