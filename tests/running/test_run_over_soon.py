"""Runs over HTTP whose servers are kept busy: every answer that was requested is stored and counted."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from gated import GatedServer
from live_runs import ENDED, MODELS, RunOutcome, Site, kill, small_world, wait_for_trials
from stored_runs import events_in

from adaptive_eval.notes import RunFinished
from adaptive_eval.report.looks import read_look
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.rescore import rescore
from adaptive_eval.report.stored import open_run
from adaptive_eval.simulate.server import serving

TRIALS = {"min": 4, "max": 30}
AHEAD = {**TRIALS, "optimize": "time"}


@pytest.mark.slow
def test_scores_count_the_answers_waited_for_also_when_computed_again(site: Site) -> None:
    config = site.write("late", trials=AHEAD, concurrency=64)
    directory = site.directory("late")
    assert site.run(config, "--run-dir", str(directory)).exit_code in ENDED
    published, judged = models_of(directory), judged_trials(directory)
    assert set(ended(directory).waited_for or ()) == judged.keys()
    counted = {name: row["trials"] for name, row in published.items()}
    assert sum(counted.values()) == len(RunOutcome.of(directory).outcomes) > sum(judged.values())
    with open_run(directory) as stored:
        anew = stored.results(running=False)
    assert anew is not None
    assert {row.name: (row.score, row.trials) for row in anew.models} == {
        name: (row["score"], row["trials"]) for name, row in published.items()
    }
    (rubric, *_) = rescore(directory).rubrics
    assert {row.name: row.score for row in rubric.models} == pytest.approx(
        {n: row["score"] for n, row in published.items()}
    )
    assert site.run(config, "--run-dir", str(directory)).exit_code in ENDED
    assert models_of(directory) == published


@pytest.mark.slow
def test_scores_of_a_killed_run_count_only_judged_answers(site: Site) -> None:
    """The requests in flight then were slow ones, and their answers are unknown."""
    directory = site.directory("cut")
    with serving(GatedServer(small_world(), 60)) as url:
        models = [{"name": name, "base_url": url} for name in MODELS]
        process = site.start(site.write("cut", models=models, trials=AHEAD), "--run-dir", str(directory))
        assert wait_for_trials(directory, 40, process)
        kill(process)
    assert site.run(site.write("cut", trials=AHEAD), "--run-dir", str(directory)).exit_code in ENDED
    assert ended(directory).waited_for is None
    assert json.loads((directory / "results.json").read_text())["run"]["kills"] == 1
    assert {name: row["trials"] for name, row in models_of(directory).items()} == judged_trials(directory)


def models_of(directory: Path) -> dict[str, Any]:
    """The published results of each model."""
    rows = json.loads((directory / "results.json").read_text())["models"]
    return {row["name"]: row for row in rows}


def judged_trials(directory: Path) -> dict[str, int]:
    """Trials of each model that the last look has judged."""
    with closing(RunReader.open(directory)) as reader:
        models, look = read_look(reader.looks()[-1])
        return dict(zip(models, look.trials, strict=True))


def ended(directory: Path) -> RunFinished:
    return events_in(directory, RunFinished)[-1]
