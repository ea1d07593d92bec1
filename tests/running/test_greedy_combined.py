"""Greedy answers that come first, where models are asked in batches or take turns on servers that the run starts."""

from pathlib import Path

import pytest
from live_runs import ENDED, MODELS, EndedRuns, Found, Site, kill, small_world, trials_in, wait_until
from test_launched_run import events, launched, none_left, nothing_is_left, places_of_its_own, printed  # noqa: F401

from adaptive_eval.record.results_file import read_results
from adaptive_eval.simulate.faults import BatchHabits
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.store import ServerLaunched

GREEDY = {"prior_evidence": {"greedy": True}}


def greedy_of(site: Site, name: str = "run") -> Path:
    return site.directory(name) / "greedy"


def found_by(site: Site, name: str, **changes: object) -> Found:
    """What the run of that name finds."""
    ended = site.run(site.write(name, **GREEDY, **changes), "--run-dir", str(site.directory(name)))
    assert ended.exit_code in ENDED, ended.output
    return Found.of(site.directory(name))


@pytest.mark.parametrize("batched", [pytest.param(MODELS, marks=pytest.mark.slow), MODELS[:1]], ids=["all", "one"])
def test_greedy_answers_come_in_batches_as_others_do(
    site: Site, ended_runs: EndedRuns, batched: tuple[str, ...]
) -> None:
    trials = {"min": 3, "max": 8, "favour": "answers"}
    direct = Found.of(ended_runs.copy(site, site.directory("direct"), **GREEDY, trials=trials))
    server = SimulatedServer(small_world(), batches=BatchHabits(seconds=0.05))
    with serving(server) as url:
        batch = {"base_url": url, "batch": {"kind": "openai", "first_poll": 0.02, "longest_poll": 0.05}}
        models = [{"name": one, **(batch if one in batched else {"base_url": site.base_url})} for one in MODELS]
        found = found_by(site, "run", trials=trials, models=models)
    both = found.outcomes.keys() & direct.outcomes.keys()
    assert both and all(found.outcomes[key] == direct.outcomes[key] for key in both)
    assert Found.of(greedy_of(site)).outcomes == Found.of(greedy_of(site, "direct")).outcomes
    asked = [model for place in (site.directory(), greedy_of(site)) for model, _, _ in Found.of(place).outcomes]
    assert server.batch_counts["answered"] == sum(model in batched for model in asked)
    assert server.counts.get("answered", 0) == 0


@pytest.mark.slow
def test_servers_of_a_pool_are_there_for_greedy_answers_first(site: Site) -> None:
    """The run is killed while the second model answers greedily, and at the first server of the run itself."""

    def pooled(*flags: str) -> dict[str, object]:
        models = launched(site, *flags, exclusive=None)
        trials = {"min": 3, "max": 6, "favour": "answers"}
        return {"models": models, "servers": {"pool": {"places": ["0"]}}, "trials": trials}

    whole = found_by(site, "whole", **pooled())
    process = site.start(site.write(**GREEDY, **pooled("held=5")), "--run-dir", str(site.directory()))
    wait_until(lambda: trials_in(greedy_of(site)) >= 5, process)
    kill(process)
    assert none_left(site) and not trials_in(site.directory())
    (site.folder / "go").touch()
    process = site.start(site.write(**GREEDY, **pooled("held=5")), "--run-dir", str(site.directory()))
    assert printed(process, "greedy answers count as R0")
    assert printed(process, "is ready after")
    kill(process)
    assert none_left(site)
    assert found_by(site, "run", **pooled()) == whole
    assert Found.of(greedy_of(site)) == Found.of(greedy_of(site, "whole"))
    for place in (greedy_of(site), site.directory()):
        assert {one.model for one in events(place, ServerLaunched)} == set(MODELS)
    results = read_results(site.directory())
    assert results is not None
    (row,) = results.cost.beside
    assert (row.what, row.trials) == ("greedy", len(MODELS) * 8)
