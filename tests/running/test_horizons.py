"""`trials.max` changed on resume: what is stored says so, leads to the same looks again, and the reader is told."""

from contextlib import closing

import pytest
from live_runs import Site
from stored_runs import stored_header
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.notes import SettingsChanged, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.stored import StoredRun
from adaptive_eval.running.settings_of_run import replay_stored

FINISHED = {ExitCode.REACHED, ExitCode.SPENT}


def run_to(site: Site, max_trials: int, min_trials: int = 2) -> str:
    """The messages of a run with this horizon."""
    ended = site.run(site.write(trials={"min": min_trials, "max": max_trials}))
    assert ended.exit_code in FINISHED, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_each_change_of_the_horizon_is_stored_reported_and_replayed(site: Site) -> None:
    run_to(site, 3)
    with closing(RunReader.open(site.directory())) as reader:
        first = reader.looks()
    run_to(site, 6)
    output = run_to(site, 9)
    assert "trials.max was raised from 3 to 6 after look" in output
    results = site.results()
    texts = [warning["text"] for warning in results["warnings"] if warning["kind"] == "horizon"]
    assert [text.split(" after")[0] for text in texts] == [
        "trials.max was raised from 3 to 6",
        "trials.max was raised from 6 to 9",
    ]
    with closing(RunReader.open(site.directory())) as reader:
        looks = reader.looks()
        assert [look.body["scores"] for look in looks[: len(first)]] == [look.body["scores"] for look in first]
        stored = StoredRun(reader)
        changes = events_of_kind(reader.events(), SettingsChanged)
        assert changes[0].looks == len(first)
        controller = replay_stored(reader.log, stored.setup.config, stored.setup.questions).controller
        before = controller.plan.before
        assert before is not None and before.run.plan.before is not None
        first_stage = before.run.plan.before.run
        assert [first_stage.taker.taken, before.run.taker.taken] == [change.looks for change in changes]
        assert [first_stage.plan.trials.max, before.run.plan.trials.max] == [3, 6]
    assert [list(look.scores) for look in controller.looks] == [look.body["scores"] for look in looks]
    assert [extension.now for extension in controller.extensions] == [6, 9]


def test_the_first_look_stays_where_it_was(site: Site) -> None:
    run_to(site, 3)
    refused = site.run(site.write(trials={"min": 3, "max": 6}))
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "trials.min cannot change after the first look: it was 2, and is now 3" in refused.stderr
    with closing(RunReader.open(site.directory())) as reader:
        assert len(reader.configurations()) == 1


@pytest.mark.slow
def test_the_place_of_the_first_look_stays_when_the_horizon_that_set_it_is_raised(site: Site) -> None:
    """By default it lies at a fifth of `trials.max`, at least at 2 and at most at 4."""
    for max_trials in (6, 20):
        ended = site.run(site.write(trials={"max": max_trials}))
        assert ended.exit_code in FINISHED, ended.stderr
        assert stored_config(stored_header(site.directory())).trials.min == 2
        assert CliRunner().invoke(app, ["report", str(site.directory()), "--format", "md"]).exit_code == 0
        report = (site.directory() / "report.md").read_text()
        assert "2 trials per question before the first look" in report, "not what a run of today's horizon begins with"
    refused = site.run(site.write(trials={"max": 20, "min": 4}))
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "trials.min cannot change after the first look: it was 2, and is now 4" in refused.stderr


def test_the_first_look_of_a_small_budget_stays_when_the_budget_is_raised(site: Site) -> None:
    for budget in (60, 600):  # three and 33 trials of each of six questions by three models
        ended = site.run(site.write(trials={"max": 20}, budget={"trials": budget}))
        assert ended.exit_code in FINISHED, ended.stderr
        assert stored_config(stored_header(site.directory())).trials.min == 2
    with closing(RunReader.open(site.directory())) as reader:
        assert len(reader.looks()) > 1


@pytest.mark.slow
def test_the_first_look_stays_as_large_as_it_was(site: Site) -> None:
    """Rounds as large as the need begin with a part of the horizon."""
    run_to(site, 20)
    refused = site.run(site.write(trials={"min": 2, "max": 20, "optimize": "time"}))
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "first look came after 2 trials per question" in refused.stderr
    assert "trials.optimize time would place it at 3; keep trials.optimize cost, or" in refused.stderr


@pytest.mark.slow
def test_a_run_that_chooses_its_pace_keeps_the_one_it_began_with(site: Site) -> None:
    """`auto` would take another now: GPUs are named, and the stored run says what it began with."""
    gpus = [{"name": name, "base_url": site.base_url, "gpus": 1} for name in ("ada", "bob", "cyd")]
    begun = site.run(site.write(trials={"min": 2, "max": 10, "optimize": "cost"}, models=gpus))
    assert begun.exit_code in FINISHED, begun.stderr
    again = site.run(site.write(trials={"min": 2, "max": 10}, models=gpus))
    assert again.exit_code in FINISHED, again.stderr
    assert stored_header(site.directory()).configuration["trials"]["optimize"] == "cost"
    folder = str(site.directory("fresh"))
    fresh = site.run(site.write(trials={"min": 2, "max": 10}, models=gpus), "--run-dir", folder)
    assert fresh.exit_code in FINISHED, fresh.stderr
    assert stored_header(site.directory("fresh")).configuration["trials"]["optimize"] == "time"
