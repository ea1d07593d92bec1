"""A run that ends before its first look leaves a results.json that says so."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from live_runs import ENDED, MODELS, Site
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import UNJUDGED_FORMAT
from adaptive_eval.report.results_file import RESULTS_FILE, read_results

TOO_LITTLE = {"budget": {"trials": 10}}
NOTHING = "No answers were requested: the budget does not cover the first round."


def left_by(directory: Path) -> dict[str, Any]:
    """The file, which is no results of a look."""
    assert read_results(directory) is None
    document = json.loads((directory / RESULTS_FILE).read_text())
    assert document["format"] == UNJUDGED_FORMAT
    return dict(document)


def output_of(command: str, directory: Path, *options: str) -> str:
    """What a command that reads a run says of it."""
    result = CliRunner().invoke(app, [command, str(directory), *options])
    assert result.exit_code in (ExitCode.REACHED, ExitCode.SPENT), result.output
    return result.output


@pytest.mark.slow
def test_every_reader_of_a_run_says_that_its_cap_refused_the_first_round(site: Site) -> None:
    ended = site.run(site.write(**TOO_LITTLE))
    assert ended.exit_code == ExitCode.SPENT and NOTHING in ended.stdout
    document = left_by(site.directory())
    assert (document["run"]["status"], document["run"]["reason"], document["why"]) == ("finished", "budget", NOTHING)
    assert document["models"] == ["ada", "bob", "cyd"]
    assert document["trials"] == 0
    assert NOTHING in output_of("report", site.directory(), "--format", "md", "--output", "-")
    assert NOTHING in output_of("monitor", site.directory(), "--once")
    assert "intact" in output_of("verify", site.directory())
    assert "hint" not in output_of("plan", site.write(store=str(site.folder / "runs"), **TOO_LITTLE))
    page = output_of("report", site.directory(), "--format", "html", "--output", "-")
    assert NOTHING in page
    # what it says can be done is done, and the file is that of the run
    assert site.run(site.write(budget={"trials": 200})).exit_code in ENDED
    results = read_results(site.directory())
    assert results is not None and results.cost.trials >= 96


@pytest.mark.slow
def test_spending_before_a_first_look_is_reported(site: Site) -> None:
    priced = [{"name": name, "base_url": site.base_url, "price": {"input": 1, "output": 2}} for name in MODELS]
    ended = site.run(site.write(models=priced, trials={"min": 8, "max": 8}, budget={"usd": 0.05}))
    assert ended.exit_code == ExitCode.SPENT and "cost" not in left_by(site.directory())
    with closing(RunReader.open(site.directory())) as reader:
        trials, spent = reader.trial_count(), reader.log.spent()
    cost = f"cost      {trials} trials, {spent.tokens:,} tokens, ${spent.usd:.3f}"
    assert trials and cost in ended.stdout and cost in output_of("monitor", site.directory(), "--once")
    report = output_of("report", site.directory(), "--format", "md", "--output", "-")
    assert f"{trials} trials, {spent.tokens:,} tokens, ${spent.usd:.3f}, " in report
    nothing = site.run(site.write(**TOO_LITTLE), "--run-dir", str(site.directory("nothing")))
    assert "cost  " not in nothing.stdout
