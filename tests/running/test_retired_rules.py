"""Runs that rules of earlier versions have decided: they open and report as they were, and go on with `optimal`."""

import json
import re
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.cli import app
from adaptive_eval.record.restore import open_run
from adaptive_eval.record.view import read_view
from adaptive_eval.show.markdown import markdown
from adaptive_eval.store import RunReader, SettingsChanged, events_of_kind

STORED = Path(__file__).parent / "stored" / "old_rules.tar.xz"
"""Runs that earlier versions wrote: `old-rule` by `sequential`, with `futility: 0.05`, and `old-intervals` by
`intervals`, with `futility: false`, ended by a cap on trials; `old-zscore` by `zscore`, with `threshold: 3.5`."""
LOOKS = {"old-rule": 5, "old-intervals": 5, "old-zscore": 6}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    with tarfile.open(STORED) as archive:
        archive.extractall(tmp_path / "runs", filter="data")
    return tmp_path / "runs"


def config_of(runs: Path, name: str, **changes: object) -> Path:
    """The configuration of today for a stored run."""
    settings: dict[str, object] = {
        "name": name,
        "seed": 8 if name == "old-zscore" else 7,
        "questions": {"world": "coins", "limit": 6},
        "models": [{"name": one, "simulate": True} for one in ("coin-11", "coin-06", "coin-05")],
        "prompt": "{prompt}",
        "grader": "math",
        "trials": {"min": 4, "max": 40, "favour": "answers"},
        "budget": {"trials": 400},
        "concurrency": 16,
    }
    path = runs.parent / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings | changes))
    return path


@pytest.mark.parametrize(
    ("name", "rule", "promise"),
    [
        ("old-rule", "when |z| reaches c t^(-1/4)", "For each comparison: at most 5% risk of a wrong order"),
        ("old-intervals", "A comparison is called when two intervals part.", "None that survives repeated looks"),
        ("old-zscore", "A comparison is called when |z| exceeds 3.5 at a look.", "None that survives repeated looks"),
    ],
)
def test_it_opens_and_reports_as_it_was_stored(runs: Path, name: str, rule: str, promise: str) -> None:
    published = json.loads((runs / name / "results.json").read_text())
    view = read_view(runs / name)
    assert rule in view.words.rule and view.words.promise.startswith(promise)
    assert view.results is not None and not [one for one in view.results.warnings if one.kind == "plug_in"]
    assert [one.score for one in view.results.models] == [one["score"] for one in published["models"]]
    assert len(view.looks) == LOOKS[name] and view.words.promise in markdown(view)
    shown = CliRunner().invoke(app, ["monitor", str(runs / name)])
    assert shown.exit_code == ExitCode.SPENT and "promise   " in shown.stdout


def test_nothing_of_it_is_worked_out_by_another_rule(runs: Path) -> None:
    """As a run that was killed: its results are those that it wrote last, and say so."""
    with open_run(runs / "old-rule") as stored:
        found = stored.recompute_results(running=False)
        assert found is not None
        (said,) = [one.text for one in found.warnings if one.kind == "plug_in"]
        assert said.startswith("the run was decided by the rule sequential of an earlier version; `adaptive-eval run`")
        with pytest.raises(StoreError, match="decided by the rule sequential of an earlier version"):
            _ = stored.plan


@pytest.mark.parametrize(
    ("name", "was"), [("old-rule", "sequential"), ("old-intervals", "intervals"), ("old-zscore", "zscore")]
)
def test_it_goes_on_with_optimal_on_what_is_stored(runs: Path, name: str, was: str) -> None:
    with closing(RunReader.open(runs / name)) as reader:
        before = {(one.model, one.question, one.trial): one.category for one in reader.outcomes()}
    run = ["run", str(config_of(runs, name)), "--run-dir", str(runs / name)]
    done = CliRunner().invoke(app, run)
    assert done.exit_code in (ExitCode.REACHED, ExitCode.SPENT), done.output
    assert f"there is no rule {was} any more, optimal judges the stored answers again" in done.output
    assert re.search(f"stopping.rule: .*{was}.* → optimal; all looks were repeated", done.output)
    with closing(RunReader.open(runs / name)) as reader:
        after = {(one.model, one.question, one.trial): one.category for one in reader.outcomes()}
        (change,) = events_of_kind(reader.events(), SettingsChanged)
        assert change.looks == LOOKS[name]
    assert before.items() <= after.items()
    assert read_view(runs / name).words.rule.startswith("A comparison is called, or given up, where backward induction")
    again = CliRunner().invoke(app, run)
    assert "there is no rule" not in again.output
