"""Runs whose idle slots are asked ahead, over HTTP: one that is killed again and again finds what `cost` finds."""

import json

import pytest
from live_runs import ENDED, MODELS, Found, Site, kill, stored, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.cli import app


def priced(site: Site) -> list[dict[str, object]]:
    """The models, whose tokens have a price."""
    return [{"name": name, "base_url": site.base_url, "price": {"input": 1, "output": 4}} for name in MODELS]


def test_without_a_price_it_is_the_default_and_what_is_asked_in_vain_is_told_without_a_warning(site: Site) -> None:
    config = site.write("soon", trials={"min": 4, "max": 30, "favour": "auto"}, concurrency=64)
    ended = site.run(config, "--run-dir", str(site.directory("soon")))
    assert ended.exit_code in ENDED
    results = json.loads((site.directory("soon") / "results.json").read_text())
    assert results["decisions"]["trials"]["favour"] == "soon"
    assert any(row["what"] == "unwanted" and row["tokens"] > 0 for row in results["cost"]["beside"])
    assert not any("would have been idle" in one["text"] for one in results["warnings"])
    asked = sum(row["answers"] for row in results["cost"]["beside"])
    report = CliRunner().invoke(app, ["report", str(site.directory("soon")), "--format", "md", "--output", "-"])
    assert f"{asked:,} answers asked ahead and not used" in ended.output
    assert f"of a fixed design, and {asked:,} answers that were asked ahead and not used" in report.output


@pytest.mark.slow
def test_killed_and_resumed_it_finds_what_a_run_without_idle_slots_finds(site: Site) -> None:
    cost = site.write("cost", models=priced(site), trials={"min": 4, "max": 30, "favour": "cost"}, concurrency=1)
    assert site.run(cost, "--run-dir", str(site.directory("cost"))).exit_code in ENDED
    soon = site.write("soon", trials={"min": 4, "max": 30, "favour": "soon"}, concurrency=64, models=priced(site))
    directory = site.directory("soon")
    for reached in (40, 160):
        process = site.start(soon, "--run-dir", str(directory))
        if wait_for_trials(directory, reached, process):
            kill(process)
    assert site.run(soon, "--run-dir", str(directory)).exit_code in ENDED
    assert Found.of(directory) == Found.of(site.directory("cost"))
    rounds = [
        {(one.model, one.question, one.trial): one.round for one in stored(site, name)} for name in ("soon", "cost")
    ]
    assert rounds[0] == rounds[1], "every answer is of the round that has asked for it"
    results = json.loads((directory / "results.json").read_text())
    assert any("asked for by slots that would have been idle" in one["text"] for one in results["warnings"])
    spent = {(row["what"], row["model"]): row["tokens"] for row in results["cost"]["beside"]}
    assert spent and all(what == "unwanted" and tokens > 0 for (what, _), tokens in spent.items())
