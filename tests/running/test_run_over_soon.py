"""Runs whose servers are kept full, over HTTP: everything that was asked is stored and counted, whatever happens."""

import json

import pytest
from live_runs import ENDED, Found, Site, kill, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.cli import app

TRIALS = {"min": 4, "max": 30}


def test_without_a_price_it_is_the_default_and_every_answer_that_was_asked_for_is_counted(site: Site) -> None:
    config = site.write("time", trials={**TRIALS, "favour": "auto"}, concurrency=64)
    ended = site.run(config, "--run-dir", str(site.directory("time")))
    assert ended.exit_code in ENDED, ended.stderr
    results = json.loads((site.directory("time") / "results.json").read_text())
    assert results["decisions"]["trials"]["favour"] == "time"
    assert results["cost"]["trials"] == len(Found.of(site.directory("time")).outcomes)
    assert not results["cost"]["beside"]
    report = CliRunner().invoke(app, ["report", str(site.directory("time")), "--format", "md", "--output", "-"])
    assert f"{results['cost']['trials']:,} trials" in report.output


@pytest.mark.slow
def test_killed_and_resumed_it_comes_to_the_looks_of_a_run_with_one_request_at_a_time(site: Site) -> None:
    trials = {**TRIALS, "favour": "time"}
    alone = site.run(site.write("one", trials=trials, concurrency=1), "--run-dir", str(site.directory("one")))
    assert alone.exit_code in ENDED, alone.stderr
    many = site.write("many", trials=trials, concurrency=64)
    directory = site.directory("many")
    for reached in (40, 160):
        process = site.start(many, "--run-dir", str(directory))
        if wait_for_trials(directory, reached, process):
            kill(process)
    assert site.run(many, "--run-dir", str(directory)).exit_code in ENDED
    found, one = Found.of(directory), Found.of(site.directory("one"))
    assert found.looks == one.looks
    assert {key: found.outcomes[key] for key in found.outcomes.keys() & one.outcomes.keys()} == {
        key: one.outcomes[key] for key in found.outcomes.keys() & one.outcomes.keys()
    }
