"""Whole runs with a grader that fails on some answers: they go on, and nothing is lost by it."""

from pathlib import Path

import pytest
from live_runs import RunOutcome, Site
from patient_time import HANGS
from stored_runs import events_in
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.core.types import Cause
from adaptive_eval.notes import ModelSetAside

IN_FLIGHT = 8
GRADER = """
import hashlib, time
from pathlib import Path

HERE = Path(__file__).parent

def hang():
    late = time.monotonic() + 86_400.0
    time.monotonic = lambda: late  # the limit is over at once, and no answer of a busy machine is late
    time.sleep(1000)

def grade(text, question):
    if (HERE / "broken").exists() and len(text) > 2 * len(question.answer) + 20:  # an answer, not the key
        chance = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 1000 / 1000
        if chance < float((HERE / "broken").read_text()):
            hang() if (HERE / "hangs").exists() else 1 / 0
    return "{" + question.answer + "}" in text
"""


@pytest.fixture
def patchy(site: Site) -> Path:
    """A grader that fails on a share of all answers, which the file `broken` says."""
    (site.folder / "patchy.py").write_text(GRADER)
    grader, grading = {"kind": "python", "function": "patchy:grade"}, {"timeout": HANGS, "workers": 1}
    return site.write(trials={"min": 4, "max": 12}, grader=grader, grading=grading, concurrency=IN_FLIGHT)


def results(site: Site) -> dict[str, dict[str, object]]:
    rows = site.results()["models"]
    return {row["name"]: row for row in rows}


def requests(site: Site) -> int:
    return len(RunOutcome.of(site.directory()).outcomes)


@pytest.mark.slow
@pytest.mark.parametrize(("hangs", "share"), [(True, 0.003), (False, 0.012)])
def test_a_grader_that_fails_now_and_then_sets_nobody_aside(
    site: Site, patchy: Path, hangs: bool, share: float
) -> None:
    undisturbed = site.run(patchy, "--run-dir", str(site.directory("whole")))
    assert undisturbed.exit_code in (ExitCode.REACHED, ExitCode.SPENT), undisturbed.stdout
    (site.folder / "broken").write_text(str(share))
    if hangs:
        (site.folder / "hangs").touch()
    ended = site.run(patchy)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.stdout
    result, rows = RunOutcome.of(site.directory()), results(site)
    missing = [trial for trial, category in result.outcomes.items() if category is None]
    assert missing, "the grader failed on nothing: choose another share"
    assert all(row["set_aside"] is None for row in rows.values())
    assert min(rows, key=lambda name: rows[name]["rank"]) == "ada"  # type: ignore[arg-type, return-value]
    for name, row in rows.items():
        failed = sum(model == name for model, _, _ in missing)
        assert row["ungraded"] == failed
        assert (row["lowest"] < row["highest"]) == (failed > 0)  # type: ignore[operator]
        assert row["lowest"] <= row["score"] <= row["highest"]  # type: ignore[operator]
    assert "could not be graded; the score would be" in ended.stdout
    again = site.run(patchy)
    assert again.exit_code == ended.exit_code
    assert RunOutcome.of(site.directory()) == result, "a resume buys and changes nothing"

    (site.folder / "broken").unlink()
    done = CliRunner().invoke(app, ["regrade", str(site.directory()), "--config", str(patchy)])
    assert f"answers again: {len(missing)} have another category" in done.stdout
    assert site.run(patchy).exit_code == undisturbed.exit_code
    graded, reference = RunOutcome.of(site.directory()), RunOutcome.of(site.directory("whole"))
    assert sum(graded.looks[-1]["trials"]) == len(graded.outcomes), "all that was asked is in the scores"
    assert graded.looks[-1]["order"] == reference.looks[-1]["order"]
    assert None not in graded.outcomes.values()
    assert all(graded.outcomes[trial] == category for trial, category in reference.outcomes.items())


@pytest.mark.slow
def test_a_grader_that_fails_on_a_third_sets_the_models_aside(site: Site, patchy: Path) -> None:
    (site.folder / "broken").write_text("0.3")
    ended = site.run(patchy)
    assert ended.exit_code == ExitCode.SPENT, ended.stdout
    assert "more than 5%" in ended.stdout
    assert "if the grader ran out of time or its server failed, raise grading.timeout" in ended.stdout
    bought = requests(site)
    aside = events_in(site.directory(), ModelSetAside)
    assert {event.cause for event in aside} == {Cause.GRADER}
    again = site.run(patchy)
    assert again.exit_code == ExitCode.SPENT, again.stdout
    assert requests(site) == bought, "a resume buys nothing"
    (site.folder / "broken").unlink()
    mended = site.run(patchy)
    assert "set aside" not in mended.stdout
    assert all(row["set_aside"] is None and row["ungraded"] == 0 for row in results(site).values())
