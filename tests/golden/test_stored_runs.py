"""Runs that were stored in the format of an earlier day open, report as they did, and go on to the same looks."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from golden_cases import CASES, SAME
from golden_record import alike, differences, parts_of, read
from golden_stage import Stage
from golden_stored import (
    REPORTS,
    RUNS,
    STORED,
    archive_of,
    recompute_results,
    reports,
    results_then,
    unpack,
    without_warnings_texts,
)
from record import compared

FINISHED = [name for name, one in RUNS.items() if one.finished]
GOES_ON = [name for name, one in RUNS.items() if one.go_on is not None]


@pytest.mark.parametrize("name", FINISHED)
def test_a_stored_run_reports_as_it_did(name: str, tmp_path: Path) -> None:
    with ExitStack() as exits:
        unpack(name, stage := Stage(tmp_path, exits))
        for file, text in reports(name, stage).items():
            assert text == (STORED / file).read_text(), file
        now, then = (without_warnings_texts(one) for one in (recompute_results(stage), results_then(stage)))
        added = now.keys() - then.keys()  # later versions, for what this run has none of
        assert not any(now.pop(key) for key in added)
        assert alike(now, then), (now, then)


@pytest.mark.parametrize("name", GOES_ON)
def test_a_stored_run_goes_on_as_it_would_have(name: str, tmp_path: Path) -> None:
    one = RUNS[name]
    with ExitStack() as exits:
        unpack(name, stage := Stage(tmp_path, exits))
        assert one.go_on is not None
        one.go_on(stage)
        found = parts_of(compared(one.expected, stage), SAME)
    told = differences(found, parts_of(read(one.expected), SAME))
    assert not told, "\n".join(told)


def test_every_file_is_of_a_stored_run() -> None:
    known = {archive_of(name).name for name in RUNS} | {
        f"{name}.{end}" for name in FINISHED for end in REPORTS.values()
    }
    assert {path.name for path in STORED.iterdir()} == known
    assert {one.expected for one in RUNS.values()} <= CASES.keys()
