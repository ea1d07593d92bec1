"""How much is tried: of a property's examples a tenth, the same ones each time; where `THOROUGH` is set all of them,
and others each time, as is done at night. Of a long simulation a part, and the whole before a release.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

THOROUGH = bool(os.environ.get("THOROUGH"))
FEWEST = 4


def examples(limit: int) -> int:
    """So many of at most these."""
    return limit if THOROUGH else min(limit, max(limit // 10, FEWEST))


def sizes(few: int, many: int) -> list[Any]:
    """How large a simulation is among the long tests, and how large before a release."""
    return [pytest.param(few, marks=pytest.mark.slow), pytest.param(many, marks=pytest.mark.release)]


def first_of(values: Iterable[Any], few: int) -> list[Any]:
    """The first few of these values, and the others among the long tests."""
    cases = list(values)
    return [*cases[:few], *(pytest.param(case, marks=pytest.mark.slow) for case in cases[few:])]


def in_turns(cases: Iterable[Any], *others: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Each case with a combination of the others, which take turns: all combinations occur, and no product."""
    values, combinations = list(cases), list(product(*others))
    number = max(len(values), len(combinations))
    return [(values[at % len(values)], *combinations[at % len(combinations)]) for at in range(number)]


def only_drawn(lives: int) -> settings:
    """So many whole lives of runs, neither kept nor made smaller where one fails: that would take too long."""
    return settings(
        max_examples=lives,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
