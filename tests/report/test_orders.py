"""What is reported of a judge that depends on the order of two answers."""

from types import SimpleNamespace
from typing import Any

import pytest

from adaptive_eval.graders.judge import Judge
from adaptive_eval.report.records import ComparisonCount
from adaptive_eval.report.view import order_sentence

SERVER = {"base_url": "http://127.0.0.1:9/v1", "model": "judge"}


def sentence_of(*counts: ComparisonCount, **section: object) -> str | None:
    grader = Judge.model_validate({"kind": "judge", "server": SERVER, **section})
    reader: Any = SimpleNamespace(comparisons=lambda: list(counts))
    config: Any = SimpleNamespace(grader=grader)
    return order_sentence(reader, config)


@pytest.mark.parametrize(
    ("towards", "leaning"),
    [
        (1.0, ", by 25.0% in favour of the first place"),
        (-1.0, ", by 25.0% in favour of the second place"),
        (0.0, ""),
    ],
)
def test_how_often_the_order_decides_is_said_and_for_which_place(towards: float, leaning: str) -> None:
    counts = ComparisonCount(0.0, 0.0, 30), ComparisonCount(1.0, towards, 10)
    of_order = "25.0% depend on the order of the two answers, and count as ties"
    assert sentence_of(*counts, compare_to="baseline") == f"Of 40 comparisons {of_order}{leaning}."


def test_nothing_is_said_where_nothing_was_compared() -> None:
    assert sentence_of(compare_to="baseline") is None
    assert sentence_of(ComparisonCount(0.0, 0.0, 30)) is None
