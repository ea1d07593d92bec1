"""results.json of a run that has ended before its first look."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

from adaptive_eval.report.build import build_unjudged
from adaptive_eval.report.results import UNJUDGED_FORMAT
from adaptive_eval.report.results_file import RESULTS_FILE, is_intact, read_results, write_results
from adaptive_eval.report.snapshot import RunSubject


def test_before_the_first_look_the_file_says_what_is_known_of_each_question(tmp_path: Path) -> None:
    arrived = np.zeros((2, 2, 2), dtype=np.int64)
    for answer in [*[(0, 1, 1)] * 3, (1, 1, 0)]:
        arrived[answer] += 1
    subject = RunSubject("run", ("ada", "bob"), ("q1", "q2"), (None, None), 0.0)
    write_results(tmp_path, build_unjudged(subject, np.array([0.0, 1.0]), arrived, elapsed=1.5, now=60.0))
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert (written["format"], written["models"], written["run"]["status"]) == (
        UNJUDGED_FORMAT,
        ["ada", "bob"],
        "stopped",
    )
    first, second = written["questions"]
    assert (first["trials"], first["mean"], first["not_judged"]) == ([0, 0], [0.5, 0.5], [0, 0])
    assert (second["counts"], second["not_judged"]) == ([[0, 3], [1, 0]], [3, 1])
    assert second["mean"] == pytest.approx([4 / 5, 1 / 3])
    assert [second["lo"][0], second["hi"][0]] == pytest.approx(beta(4, 1).ppf([0.025, 0.975]))
    assert is_intact(tmp_path) and read_results(tmp_path) is None
