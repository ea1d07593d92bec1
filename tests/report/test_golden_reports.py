"""Reports of golden runs: what each look stores, and readers read, is what was recorded in results.json."""

import sys
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

from golden_cases import CASES
from golden_record import MASKED, Line, differences, masked, parts_of, read
from golden_stage import Stage

from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.stored import open_run

SHORT = {"plain", "gate"}
"""Of these runs one of each kind is among the short tests."""


def lines_of(directory: Path) -> list[Line]:
    """The newest stored report, line by line."""
    with open_run(directory) as stored:
        results = stored.results(running=False)
    lines: list[Line] = []
    for key, value in orjson.loads(orjson.dumps(results, default=as_json)).items():
        if isinstance(value, list) and key != "weights":
            lines += [["result", key, row] for row in value]
        elif value not in (None, {}) and key not in MASKED:
            lines.append(["result", key, value])
    return lines


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.slow)
        for name in ("plain", "gate", "extended", "judge", "cap_tokens", "drawn", "threshold", "r0")
    ],
)
def test_the_stored_report_of_a_golden_run_is_what_was_recorded(name: str, tmp_path: Path) -> None:
    with ExitStack() as exits:
        stage = Stage(tmp_path, exits)
        CASES[name].play(stage)
        lines = [masked(line, stage.folder) for line in lines_of(stage.directory())]
    assert not differences(lines, parts_of(read(CASES[name].expected), ["result"]))
