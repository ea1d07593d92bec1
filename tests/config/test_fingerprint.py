"""What keeps a run from going on is told in words that name the file, not by digests."""

from dataclasses import replace

import pytest
from two_by_two import HEADER

from adaptive_eval.base.errors import RunChanged
from adaptive_eval.config.fingerprint import require_same_meaning

TASK = {"inspect": "my_task.py@sums", "digest": "0123abcd"}
MEANING = {
    **HEADER.meaning,
    "benchmark": TASK,
    "benchmarks": {"code": {"weight": 2, "benchmark": TASK}},
    "grader": {"kind": "python", "sources": {"close.py": "0123abcd", "parts/more.py": "4567abcd"}},
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"benchmark": {**TASK, "digest": "4567"}},
            "benchmark.inspect: my_task.py was edited after the start of the run",
        ),
        ({"benchmark": {"inspect": "my_task.py@sums"}}, "benchmark.inspect: my_task.py no longer exists"),
        (
            {"benchmarks": {"code": {"weight": 2, "benchmark": {**TASK, "digest": "4567"}}}},
            "benchmarks.code.benchmark.inspect: my_task.py was edited after the start of the run",
        ),
        (
            {"grader": {"kind": "python", "sources": {"close.py": "0123abcd", "parts/more.py": "89"}}},
            "grader: parts/more.py was edited after the start of the run",
        ),
        ({"seed": 8}, "seed: 7 → 8"),
    ],
)
def test_a_changed_file_is_named(change: dict[str, object], expected: str) -> None:
    stored = replace(HEADER, meaning=MEANING)
    with pytest.raises(RunChanged) as changed:
        require_same_meaning(stored, replace(stored, meaning=MEANING | change), "runs/one")
    message = str(changed.value)
    assert (
        f"\n  {expected}\n" in message
        and "0123abcd" not in message
        and "start a new run: another --run-dir, or --fresh without --run-dir" in message
    )


@pytest.mark.parametrize("others", [{"prior": {"run": "old"}}, {"models": [{"name": "ada", "recorded": "old"}]}, {}])
def test_a_regrade_is_advised_only_where_all_answers_are_here(others: dict[str, object]) -> None:
    """Of R0 and of recorded models there are only grades, so that a regrade refuses such a run."""
    stored = replace(HEADER, meaning=MEANING, configuration=others)
    with pytest.raises(RunChanged) as changed:
        require_same_meaning(stored, replace(stored, meaning=MEANING | {"grader": {"kind": "math"}}), "runs/one")
    assert ("adaptive-eval regrade" in str(changed.value)) == (not others)
