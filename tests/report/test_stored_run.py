"""A reader reads a run once, and prepares nothing."""

from collections import Counter
from typing import Any

import pytest
from live_runs import EndedRuns, Site

from adaptive_eval.config import prepare as preparing
from adaptive_eval.config.run import RunConfig
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import RESULTS_FILE
from adaptive_eval.report.stored import read_counts
from adaptive_eval.report.view import read_view
from adaptive_eval.show.serve.feed import Feed

CAP: dict[str, Any] = {"budget": {"tokens": 10_000_000}}


@pytest.fixture
def done(site: Site, ended_runs: EndedRuns) -> Site:
    """A run with a cap that reserves its prompts, and without results.json."""
    (ended_runs.copy(site, **CAP) / RESULTS_FILE).unlink()
    return site


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the slow steps are done."""
    made: Counter[str] = Counter()

    def counting(place: Any, name: str) -> None:
        really = getattr(place, name)

        def call(*arguments: Any, **named: Any) -> Any:
            made[name] += 1
            return really(*arguments, **named)

        monkeypatch.setattr(place, name, call)

    counting(preparing, "render")
    counting(RunReader, "header")
    counting(RunReader, "events")
    counting(RunConfig, "model_validate_json")
    return made


ONCE = {"header": 1, "events": 1, "model_validate_json": 1}


def test_a_run_is_read_once(done: Site, calls: Counter[str]) -> None:
    assert read_view(done.directory()).results is not None
    assert calls == ONCE
    calls.clear()
    assert read_counts(done.directory()).cells.any()
    assert calls == {"header": 1, "model_validate_json": 1}


def test_a_monitor_reads_a_run_once_and_then_only_what_is_new(done: Site, calls: Counter[str]) -> None:
    feed = Feed(done.directory())
    feed.poll()
    assert feed.results is not None and calls == ONCE


def test_lengths_of_prompts_are_not_published(done: Site) -> None:
    assert all("longest_prompts" not in event.body for event in read_view(done.directory()).events)
