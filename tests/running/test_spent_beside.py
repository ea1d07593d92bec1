"""What answers have cost and servers are told to be, also what was spent on a removed model, since caps count it."""

import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from fakes import HEADER, SKILLS
from live_runs import ENDED, MODELS, Site, models_at, small_world
from stored_runs import stored_results

from adaptive_eval.base.roster import Names
from adaptive_eval.config.load import load_config
from adaptive_eval.config.planning import trial_cost
from adaptive_eval.core.settings import Budget
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.types import Answer, Endpoint
from adaptive_eval.machine.clocks import HeldTime
from adaptive_eval.machine.events import Graded
from adaptive_eval.machine.notes import note_of
from adaptive_eval.notes import AnswersLost, ServerLaunching
from adaptive_eval.report.costs import further_costs
from adaptive_eval.report.other_costs import HeldServers, counted_gpu_seconds, extra_costs, other_costs
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.results import OtherCostRow
from adaptive_eval.running.regrade_costs import RegradeCosts
from adaptive_eval.show.serve.attach import stored_status
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.simulate.faults import Faults
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.store.errors import DATABASE_FILE
from adaptive_eval.store.write import RunStore

PRICE = {"input": 10.0, "output": 20.0}
CAPS = {"tokens": 10_000_000, "usd": 1000.0, "trials": 5000}


def sums(site: Site) -> dict[str, tuple[int, int, float]]:
    """Trials, tokens and USD of each model, by SQL."""
    with closing(sqlite3.connect(site.directory() / DATABASE_FILE)) as database:
        rows = database.execute(
            "SELECT name, count(*), sum(tokens), sum(usd) FROM trials JOIN models ON models.id = model GROUP BY name"
        )
        return {name: (trials, tokens, usd) for name, trials, tokens, usd in rows}


@pytest.mark.slow
def test_the_cost_of_a_removed_model_is_shown_everywhere(site: Site) -> None:
    models = models_at(site.base_url, price=PRICE, gpus=1)
    capped = {"budget": CAPS | {"trials": 3 * 8 * 4}}
    site.finished(models=models, trials={"min": 4, "max": 4}, **capped)
    ended = site.run(site.write(models=models[:2], trials={"min": 4, "max": 5}, **capped), code=ENDED)
    spent = sums(site)
    trials, tokens, usd = spent["cyd"]
    results = stored_results(site.directory())
    (row,) = results.cost.beside
    assert (row.what, row.model, row.trials, row.tokens, row.usd) == ("left", "cyd", trials, tokens, pytest.approx(usd))
    assert results.cost.trials == results.cost.allowed_trials == 2 * 8 * 4 < results.cost.max_trials
    assert results.cost.in_all("usd") == pytest.approx(sum(amounts[2] for amounts in spent.values()))
    with closing(RunReader.open(site.directory())) as reader:
        held = reader.held_times()
    assert row.server_seconds == held["cyd"].seconds and results.cost.server_seconds is not None
    assert results.cost.server_seconds == pytest.approx(sum(held_time.seconds for held_time in held.values()))
    assert f"also      {trials} trials, {tokens:,} tokens, ${usd:.2f}, " in ended.stdout
    assert " GPU hours on cyd, no longer in the run" in ended.stdout
    feed = Feed(site.directory())
    feed.poll()
    caps = {cap.name: cap.used for cap in stored_status(feed).caps}
    assert caps == pytest.approx(
        {name: sum(amounts[at] for amounts in spent.values()) for at, name in enumerate(("trials", "tokens", "usd"))}
    )
    assert f"| cyd, no longer in the run | {trials} " in re.sub(" +", " ", site.report())
    compared = typed("compare", site.directory(), site.directory()).stdout
    asked = sum(amounts[0] for amounts in spent.values())
    assert asked == results.cost.asked and f"answers requested {asked} → {asked}, tokens" in compared


def test_requests_of_a_regrade_count_until_its_grades_are_stored(tmp_path: Path) -> None:
    """At its worst before it is sent, at its cost when it has come, and not twice once grades are stored."""
    worst, used = Cost(100, 0.1, 9.0), Cost(7, 0.007, 0.3)
    with closing(RunStore.open(tmp_path, HEADER)) as store:
        costs = RegradeCosts(store, worst, NO_COST, Budget(), 4)
        costs.reserve(3)
        (row,) = beside(store, SKILLS)
        assert (row.what, row.tokens) == ("regrade", 300) and store.reader.spent() == worst.times(3)
        costs.settle([Graded((0, 1, trial), None, cost=used) for trial in range(3)])
        assert store.reader.spent() == pytest.approx(used.times(3))
        costs.reserve(1)
        (row,) = beside(store, SKILLS)
        assert (row.what, row.tokens, row.usd) == ("regrade", 121, pytest.approx(0.121))
        store.append(costs.taken_back())
        assert store.reader.spent() == pytest.approx(NO_COST, abs=1e-12) and not beside(store, SKILLS)


def test_the_held_time_of_a_server_that_never_came_up_counts_for_a_removed_model(tmp_path: Path) -> None:
    """The removed model was paid for nevertheless, and counts for caps."""
    with closing(RunStore.open(tmp_path, HEADER)) as store:
        note = note_of(ServerLaunching("cyd"), store.reader.models())
        store.commit([(1, note)], held={"cyd": [*HeldTime(60.0, 120.0)]})
        (row,) = beside(store, ("ada", "bob"))
    assert (row.counted_gpu_seconds, row.server_seconds, row.server_gpu_seconds) == (120.0, 60.0, 120.0)


def beside(store: RunStore, models: Collection[str]) -> tuple[OtherCostRow, ...]:
    """What was spent beside the answers of these models."""
    reader = RunReader(store.reader)
    return extra_costs(reader, Names(models), HeldServers([None] * len(models), ()), reader.events())


def test_answers_that_never_came_count_as_the_caps_count_them() -> None:
    """GPU hours of a server that the run starts are those for which it is held, whatever was lost; where none
    was held, those of requests, and lost ones are among these."""
    events = [
        AnswersLost("ada", 2, 100, 0.5, 30.0),
        AnswersLost("bob", 1, 50, 0.25, 10.0, killed=True),
        AnswersLost("ada", 0, 7, 0.1, 1.0, verdicts=1),
        AnswersLost("cyd", 1, 9, 9.0, 9.0),
    ]
    removed = (OtherCostRow("left", "cyd", 3, 9, 1.0, 0.0, 0.0),)
    rows = other_costs(removed, Names(["ada", "bob"]), {1}, events)
    assert [(row.what, row.model, row.tokens, row.gpu_seconds, row.counted_gpu_seconds) for row in rows] == [
        ("left", "cyd", 9, 0.0, 0.0),
        ("lost", "ada", 100, 30.0, 30.0),
        ("lost", "bob", 50, 10.0, 0.0),
        ("lost_verdicts", "ada", 7, 1.0, 1.0),
    ]
    assert [row.answers for row in rows] == [0, 2, 1, 0]
    servers = HeldServers([None, HeldTime(100.0, 50.0)], {0, 1})
    assert servers.counted == {1}, "of ada it is not known for how long a server was held"
    assert counted_gpu_seconds(servers, [7.0, 8.0], rows) == 50.0 + 7.0 + 31.0
    ((label, text),) = further_costs(None, rows)
    left, lost = "on cyd, no longer in the run", "lost answers of 2 models; lost verdicts on answers of ada"
    assert (label, text) == ("also", f"3 trials, 166 tokens, $1.85, 0.0086 GPU hours {left}; {lost}")
    assert not list(further_costs(None, ()))


@pytest.fixture(scope="module")
def llama_url() -> Iterator[str]:
    """A server that has the habits of llama-server, and four places."""
    world = replace(small_world(), latency=Latency(median=0.02))
    with serving(SimulatedServer(world, faults=Faults(count_one=True), max_num_seqs=4)) as url:
        yield url


@pytest.fixture
def llama(tmp_path: Path, llama_url: str) -> Site:
    return Site.make(tmp_path, llama_url)


def test_results_say_what_was_sent_and_what_was_left_to_the_server(llama: Site) -> None:
    config = llama.write(trials={"min": 4, "max": 4}, concurrency={"in_flight": 8, "samples_per_request": 4})
    assert "warn  ada, bob, cyd  its server is llama.cpp" in llama.run(config, "--dry-run").stdout
    first = llama.run(config)
    assert "ada: its server is llama.cpp, which drops improbable tokens" in first.stdout, "while the run begins"
    assert llama.run(config).exit_code in ENDED, "it finds everything done"
    results = llama.results()
    for model in results["models"]:
        sampling = model["sampling"]
        assert (sampling["temperature"], sampling["max_tokens"]) == (0.6, 2000)
        assert sampling["top_p"] == sampling["top_k"] == "server default"
    cautioned = [warning["model"] for warning in results["warnings"] if warning["kind"] == "server_defaults"]
    assert sorted(cautioned) == list(MODELS)


def test_gpu_time_is_divided_by_concurrent_answers(site: Site) -> None:
    urls = [site.base_url, "http://127.0.0.1:9/v1"]
    models = [{"name": "ada", "base_url": urls, "gpus": 4}, {"name": "bob", "base_url": site.base_url}]
    sampling = {"temperature": 0.6, "max_tokens": 10, "timeout": 100}
    model = load_config(site.write(models=models, sampling=sampling, concurrency=64)).models[0]
    cost = trial_cost(model)
    answer = Answer("42", "stop", 1, urls[0], latency=32.0)
    assert cost(answer).gpu_seconds == pytest.approx(32.0 * 2 / 64)
    assert cost(replace(answer, concurrent_answers=8)).gpu_seconds == pytest.approx(32.0 * 2 / 8)
    reserved = 100 * 5 * 4 / 128
    assert cost(replace(answer, concurrent_answers=1)).gpu_seconds == reserved


def test_models_at_one_address_share_its_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a GPU of several adapters counts once."""
    opened = list[object]()

    def opening(*arguments: Any, **options: Any) -> Endpoint:
        opened.append(options["shared_time"])
        return open_endpoint(*arguments, **options)

    monkeypatch.setattr("adaptive_eval.supplies.opening.open_endpoint", opening)
    site.finished(trials={"min": 1, "max": 1})
    assert len(opened) == len(MODELS) and len({*map(id, opened)}) == 1
