"""Whoever reads a run reads it once, and prepares nothing."""

from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from adaptive_eval.report.old.restore import StoredRun
from forging import forging
from live_runs import EndedRuns, Site

from adaptive_eval.config import prepare as preparing
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import RunConfig
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results_file import RESULTS_FILE
from adaptive_eval.report.stored import open_run, read_counts
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
    """How often what takes its time is done."""
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
    assert calls == ONCE


def test_a_monitor_reads_a_run_once_and_then_only_what_is_new(done: Site, calls: Counter[str]) -> None:
    feed = Feed(done.directory())
    feed.poll()
    assert feed.results is not None and calls == ONCE


@pytest.mark.parametrize("budget", [CAP, {"budget": {"usd": 5.0}}, {}], ids=["tokens", "usd", "none"])
def test_what_a_trial_may_cost_is_what_the_run_has_reserved(site: Site, calls: Counter[str], budget: Any) -> None:
    priced = [{"name": name, "base_url": site.base_url, "price": {"input": 1, "output": 2}} for name in ("ada", "bob")]
    config = site.write(models=priced, trials={"min": 2, "max": 2}, **budget)
    site.run(config)
    reserved = prepare(load_config(config)).plan.bench.worst_cost
    calls.clear()
    with open_run(site.directory()) as stored:
        found = stored.plan.bench.worst_cost
    assert found == reserved
    assert calls["render"] == 0


def test_an_earlier_version_kept_no_lengths_of_prompts(done: Site, calls: Counter[str]) -> None:
    with closing(RunReader.open(done.directory())) as reader:
        kept = StoredRun(reader).plan.bench.worst_cost
    calls.clear()
    with forging(done.directory()) as database:
        database.execute("UPDATE events SET body = json_remove(body, '$.longest_prompts') WHERE kind = 'started'")
    with closing(RunReader.open(done.directory())) as reader:
        assert StoredRun(reader).plan.bench.worst_cost == kept
    assert calls["render"] == 8, "once a question, for models that are asked alike"


def test_lengths_of_prompts_are_not_published(done: Site) -> None:
    assert all("longest_prompts" not in event.body for event in read_view(done.directory()).events)
