"""Whole runs are as they were recorded (`record.py` records them anew)."""

from pathlib import Path

import pytest
from golden_cases import CASES
from golden_record import EXPECTED, differences, parts_of, read
from record import played

LONG = {
    *("pool", "batches", "imported", "cap_usd", "r0_related"),
    *("holm", "top_k", "ties", "pairs", "threshold", "several_answers_a_request", "verifier", "recorded"),
    *("judge_votes", "judge_criteria", "judge_against_a_model"),
    *("gate", "regraded", "drawn", "extended", "r0", "thresholds", "best", "precision", "published", "model_set_aside"),
    *("coupled", "partial_credit", "time", "cheapest", "cap_tokens"),
}
"""Of these the parts have short tests, or another of their kind is among the short ones."""


def marks_of(name: str, like: str) -> list[pytest.MarkDecorator]:
    """Runs that go like another one with more or fewer requests at once are played before a release."""
    if name.endswith("_at_a_time"):
        return [pytest.mark.release]
    return [pytest.mark.slow] if name in LONG or like != name else []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=marks_of(name, case.expected)) for name, case in CASES.items()],
)
def test_a_golden_run_is_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    actual = parts_of(played(name, tmp_path), case.parts)
    changes = differences(actual, parts_of(read(case.expected), case.parts))
    assert not changes, "\n".join([f"{name} is not as in {case.expected}.jsonl:", *changes])


def test_every_expectation_belongs_to_a_run() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {case.expected for case in CASES.values()}
