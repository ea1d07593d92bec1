"""A run, its resume and a reader of its log get the same results whatever happens, and caps hold."""

import pytest
from scripted_lives import life
from thoroughness import THOROUGH

LIVES_EACH = 400 if THOROUGH else 40


@pytest.mark.parametrize("seed", range(2))
def test_killed_runs_find_what_unkilled_runs_find(seed: int) -> None:
    life(seed)


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow if part < 3 else pytest.mark.release) for part in range(10)]
)
def test_many_killed_runs_find_what_unkilled_runs_find(part: int) -> None:
    for seed in range(part * LIVES_EACH, (part + 1) * LIVES_EACH):
        life(seed)
