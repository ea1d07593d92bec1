"""Whole runs are as they were recorded (`record.py` records them anew)."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from golden_cases import CASES
from golden_record import EXPECTED, Line, differences, parts_of, read, stored_report
from golden_stage import Stage
from record import compared

LONG = {
    *("pool", "batches", "imported", "cap_usd", "r0_related"),
    *("holm", "top_k", "ties", "pairs", "threshold", "several_answers_a_request", "verifier", "recorded"),
    *("judge_votes", "judge_criteria", "judge_against_a_field"),
    *("regraded", "drawn", "extended", "r0", "thresholds", "best", "precision", "published", "model_set_aside"),
    *("coupled", "partial_credit", "time", "cheapest", "cap_tokens"),
}
"""Of these the parts have short tests, or another of their kind is among the short ones."""

REPORTED = {"plain", "gate", "extended", "judge", "cap_tokens", "drawn", "threshold", "r0", "model_set_aside"}
"""Of these the report that the last look has stored, which readers read, is what was recorded of results.json, too."""


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
    case, stored = CASES[name], list[Line]()
    with ExitStack() as exits:
        case.play(stage := Stage(tmp_path, exits))
        actual = compared(name, stage)
        if name in REPORTED:
            stored = stored_report(stage.directory(), stage.folder)
    changes = differences(actual, parts_of(read(case.expected), case.parts))
    if name in REPORTED:
        changes += differences(stored, parts_of(read(case.expected), ["result"]))
    assert not changes, "\n".join([f"{name} is not as in {case.expected}.jsonl:", *changes])


def test_every_expectation_belongs_to_a_run() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == {case.expected for case in CASES.values()}
