"""Runs whose idle slots are asked ahead, over HTTP: one that is killed again and again finds what `cost` finds."""

import json

from live_runs import ENDED, Found, Site, kill, stored, wait_for_trials


def test_killed_and_resumed_it_finds_what_a_run_without_idle_slots_finds(site: Site) -> None:
    cost = site.write("cost", trials={"min": 4, "max": 30, "favour": "cost"}, concurrency=1)
    assert site.run(cost, "--run-dir", str(site.directory("cost"))).exit_code in ENDED
    soon = site.write("soon", trials={"min": 4, "max": 30, "favour": "soon"}, concurrency=64)
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
