"""results.json of a run that has ended before its first look."""

import json
from pathlib import Path

from adaptive_eval.core.types import Reason
from adaptive_eval.report.build import build_unjudged
from adaptive_eval.report.ending import Ending
from adaptive_eval.report.results import UNJUDGED_FORMAT
from adaptive_eval.report.results_file import RESULTS_FILE, is_intact, read_results, write_results
from adaptive_eval.report.snapshot import RunSubject


def test_before_the_first_look_the_file_says_how_the_run_has_ended(tmp_path: Path) -> None:
    subject = RunSubject("run", ("ada", "bob"), ("q1", "q2"), (None, None), 0.0)
    ending = Ending(reason=Reason.BUDGET, results=None, trials=4, short_caps={"trials": 9.0})
    write_results(tmp_path, build_unjudged(subject, ending, elapsed=1.5, now=60.0))
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert (written["format"], written["models"], written["trials"]) == (UNJUDGED_FORMAT, ["ada", "bob"], 4)
    assert (written["run"]["status"], written["why"]) == ("finished", ending.why)
    assert is_intact(tmp_path) and read_results(tmp_path) is None
